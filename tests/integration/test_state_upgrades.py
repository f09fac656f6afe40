"""States and backups of another version, and copies of data, on every database."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from pricing.money import Usd
from pricing.places import RegionId
from router.state import state_backup, versions
from router.state.data_copies import DATA_COPIES, DataCopy
from router.state.errors import StateError, TooNewError
from router.state.ledger_file import LedgerFileKind, LedgerFileTitle, write_file
from router.state.store import StateStore
from router.state.versions import VERSIONS, check_version
from tests.support.state_values import HOUR, NOW, NewUrl, attempt, entry, node

WEST = RegionId("gcp", "us-west1")
COPY = DataCopy("s3://corpus/tökens", "gcp", "us-west1", "gs://near/x/t-1", "red", 5, 2, NOW, NOW, NOW + HOUR)


class TestDataCopies:
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


NEXT = "9001"
# It changes tables and rows; UPGRADED is what becomes of the text of a plan.
UPGRADES = """op.add_column("plans", sa.Column("made_up", sa.Text(), nullable=False, server_default="")); \
op.execute("UPDATE plans SET text = text || ' upgraded'")"""
UPGRADED = "{} upgraded"
_STEP = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{}", "{}", None, None


def upgrade():
    {}
"""


@contextlib.contextmanager
def next_version(monkeypatch: pytest.MonkeyPatch, folder: Path, upgrade: str = UPGRADES) -> Iterator[None]:
    """Open states as the next version would, inside the block; ``folder`` is for its steps."""
    steps = folder / "migrations"
    shutil.copytree(versions._FOLDER, steps, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (steps / "versions" / "next.py").write_text(_STEP.format(NEXT, versions.VERSIONS[-1], upgrade))
    known = (*versions.VERSIONS, NEXT)
    with monkeypatch.context() as patch:
        patch.setattr(versions, "_FOLDER", steps)
        # Not the recorded tables of tests, which are those of today's version.
        patch.setattr(versions, "_run_alembic", lambda connection: versions.migrate_tables(connection, "head"))
        for module in (versions, state_backup):
            patch.setattr(module, "VERSIONS", known)
        yield


PLAN = "p" * 64


class TestUpgrade:
    """A state of this version that the next one upgrades."""

    def test_it_is_upgraded_as_it_is_opened(self, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        with StateStore.open(url, now=NOW) as store:
            made = store.id
            _fill(store)
            with next_version(monkeypatch, tmp_path), StateStore.open(url, now=NOW + HOUR) as later:
                assert later.id == made
                assert later.plans.plan(PLAN) == UPGRADED
                assert later.attempts.nodes("a1") == (node("a1", 0), node("a1", 1))
                assert (later.ledger.entries(), later.ledger.verify().problems) == ((entry("k1"), entry("k2")), ())
            # It is not upgraded twice.
            with next_version(monkeypatch, tmp_path), StateStore.open(url, now=NOW + HOUR) as later:
                assert later.plans.plan(PLAN) == UPGRADED
            # Whoever has it open meanwhile is told, and this version does not open it again.
            with pytest.raises(TooNewError, match="9001"):
                check_version(store._database)
        with pytest.raises(TooNewError, match="later version"):
            StateStore.open(url, now=NOW + HOUR)

    def test_an_upgrade_that_fails_changes_nothing(
        self, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        with StateStore.open(url, now=NOW) as store:
            _fill(store)
        fails = "op.execute(\"UPDATE plans SET text = ''\"); op.drop_table('facts'); raise LookupError('made up')"
        with next_version(monkeypatch, tmp_path, fails), pytest.raises(LookupError, match="made up"):
            StateStore.open(url, now=NOW)
        with StateStore.open(url, now=NOW) as store:
            assert store.plans.plan(PLAN) == "{}"

    def test_its_backup_is_restored_as_its_state_is_upgraded(
        self, url: str, new_url: NewUrl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        with StateStore.open(url, now=NOW) as store:
            _fill(store)
            store.whole.write(tmp_path / "old.gz", ())
        with next_version(monkeypatch, tmp_path):
            with StateStore.open(new_url(), now=NOW + HOUR) as other:
                other.whole.restore(tmp_path / "old.gz")
                assert other.plans.plan(PLAN) == UPGRADED
                assert len(other.attempts.nodes("a1")) == 2
                other.whole.write(tmp_path / "restored.gz", ())
            with StateStore.open(url, now=NOW + HOUR) as later:
                later.whole.write(tmp_path / "upgraded.gz", ())
        assert (tmp_path / "restored.gz").read_bytes() == (tmp_path / "upgraded.gz").read_bytes()
        with StateStore.open(new_url(), now=NOW + HOUR) as other:
            with pytest.raises(TooNewError, match="9001"):
                other.whole.restore(tmp_path / "upgraded.gz")
            assert other.plans.plan(PLAN) is None

    def test_a_backup_with_rows_that_its_version_never_had_is_refused(
        self, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        lines: list[list[Any]] = [["version", VERSIONS[-1]], ["row", "plans", {"digest": PLAN, "made_up": ""}]]
        write_file(tmp_path / "odd.gz", LedgerFileTitle(LedgerFileKind.STATE, "s1"), lines)
        with next_version(monkeypatch, tmp_path), StateStore.open(url, now=NOW) as store:
            with pytest.raises(StateError, match="has rows of plans that its version does not know"):
                store.whole.restore(tmp_path / "odd.gz")
            assert store.plans.plan(PLAN) is None


def _fill(store: StateStore) -> None:
    store.plans.put_plan(PLAN, "{}", NOW)
    store.plans.put_jobs({"d1": '{"name": "ö☃"}'}, NOW)
    store.audit.add("anna", "apply", PLAN, Usd.parse("3.5"), NOW, gangs=1)
    store.journal.note("a1", "ready", NOW, ranks=2)
    store.attempts.add(attempt("a1"), (node("a1", 0), node("a1", 1)))
    store.ledger.add([entry("k1"), entry("k2")])
