"""Tests of the copies of data on any database: stored by data and region, kept until a date, made in older states."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import text

from pricing.places import RegionId
from router.state.data_copies import DATA_COPIES, DataCopy
from router.state.store import StateStore
from router.state.versions import VERSIONS
from tests.support.state_suite import StateSuite
from tests.support.state_values import HOUR, NOW

WEST = RegionId("gcp", "us-west1")
COPY = DataCopy("s3://corpus/tökens", "gcp", "us-west1", "gs://near/x/t-1", "red", 5, 2, NOW, NOW, NOW + HOUR)


class DataCopiesSuite(StateSuite):
    """Copies of data."""

    def test_a_copy_is_one_for_each_data_and_region(self, store: StateStore) -> None:
        other = replace(COPY, region="us-east1")
        for copy in (COPY, other, replace(COPY, uri="s3://a"), replace(COPY, bytes=7)):
            store.data_copies.put(copy)
        assert store.data_copies.all() == (replace(COPY, uri="s3://a"), other, replace(COPY, bytes=7))
        assert store.data_copies.get(COPY.uri, WEST) == replace(COPY, bytes=7)
        assert store.data_copies.get("s3://b", WEST) is None
        store.data_copies.remove([COPY, other, other])
        assert store.data_copies.all() == (replace(COPY, uri="s3://a"),)

    def test_a_copy_counts_when_it_is_whole_and_until_its_date(self, store: StateStore) -> None:
        store.data_copies.put(COPY)
        store.data_copies.put(replace(COPY, uri="s3://a", made_at=None))
        assert store.data_copies.usable(NOW) == (COPY,)
        assert store.data_copies.usable(NOW + HOUR) == ()

    def test_a_state_from_before_gets_the_table_and_keeps_what_it_has(self, url: str) -> None:
        with StateStore.open(url, now=NOW) as store:
            store.plans.put_plan("p" * 64, "{}", NOW)
            with store._database.write() as connection:
                DATA_COPIES.drop(connection)
                connection.execute(text(f"UPDATE stepfare_version SET version_num = '{VERSIONS[-2]}'"))
        with StateStore.open(url, now=NOW) as store:
            store.data_copies.put(COPY)
            assert (store.data_copies.all(), store.plans.plan("p" * 64)) == ((COPY,), "{}")
