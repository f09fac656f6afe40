"""Rows that cannot be read: others are looked after all the same, and no message says what such a row holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from providers.fleet import CloudResource, FleetListing, ResourceKind
from router.controller.history.attempt_history import histories_of, resumable_histories
from router.controller.sweep import find_orphans
from router.showback.labels import JobLabels
from router.state.errors import StateError, UnreadableError
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.bare_site import bare_site
from tests.support.new_state import open_state
from tests.support.state_values import NOW, attempt, node

CANARY = "canary-5d11"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with open_state(tmp_path / "state.db", NOW) as store:
        for name in ("a1", "b1", "c1"):
            store.attempts.add(attempt(name, job=name[0]), (node(name, 0), node(name, 1)))
        yield store


def spoil(tmp_path: Path, statement: str) -> None:
    with sqlite3.connect(tmp_path / "state.db") as connection:
        assert connection.execute(statement, (CANARY,)).rowcount == 1


@pytest.mark.parametrize("column", ["phase", "created_at", "usd_per_hour_nanos", "at_risk_usd_nanos"])
def test_an_attempt_that_cannot_be_read(store: StateStore, tmp_path: Path, column: str) -> None:
    spoil(tmp_path, f"UPDATE attempts SET {column} = ? WHERE id = 'b1'")
    for read in (store.attempts.find, lambda: store.attempts.find(alive=True), lambda: store.attempts.get("b1")):
        with pytest.raises(UnreadableError, match=r"^attempts b1: the database holds what cannot be read of it$") as no:
            read()
        assert CANARY not in f"{no.value}{no.value.__cause__}"
        assert no.value.__suppress_context__
    skipped: list[UnreadableError] = []
    assert sorted(a.id for a in store.attempts.find(skipped=skipped)) == ["a1", "c1"]
    assert [error.key for error in skipped] == [("b1",)]
    alive, nodes = store.overview.alive()
    assert (sorted(a.id for a in alive), sorted({n.attempt for n in nodes})) == (["a1", "c1"], ["a1", "c1"])
    assert [error.key for error in store.overview.unreadable] == [("b1",)]


def test_text_that_is_no_text_is_one_unreadable_row(store: StateStore, tmp_path: Path) -> None:
    """The driver's own error ends the whole query, and quotes the row."""
    store.plans.put_jobs({"d1": "{}", "d2": "{}"}, NOW)
    store.plans.put_plan("p1", "{}", NOW)
    broken = f"CAST(x'{CANARY.encode().hex()}ff' AS TEXT)"
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute(f"UPDATE attempts SET message = {broken} WHERE id = 'b1'")
        connection.execute(f"UPDATE jobs SET spec = {broken} WHERE digest = 'd1'")
        connection.execute(f"UPDATE plans SET text = {broken}")
    skipped: list[UnreadableError] = []
    assert sorted(a.id for a in store.attempts.find(skipped=skipped)) == ["a1", "c1"]
    assert store.plans.jobs(["d1", "d2"], skipped) == {"d2": "{}"}
    assert [(error.table, error.key) for error in skipped] == [("attempts", ("b1",)), ("jobs", ("d1",))]
    assert sorted(a.id for a in store.overview.alive()[0]) == ["a1", "c1"]
    with pytest.raises(StateError, match="holds text that cannot be read") as no:
        store.plans.plan("p1")
    assert "`stepfare state restore`" in no.value.remedy
    assert CANARY not in f"{skipped}{no.value}"


def test_a_report_goes_on_without_the_labels_of_a_job_that_cannot_be_read(store: StateStore) -> None:
    store.plans.put_jobs({"d1": "not even JSON", "d2": '{"labels": {"phase": "sweep"}}', "d3": "[]"}, NOW)
    assert JobLabels(store).of_jobs({"d1", "d2", "d3"}) == {"": {}, "d1": {}, "d2": {"phase": "sweep"}, "d3": {}}


def test_a_machine_that_cannot_be_read_takes_its_attempt_along(store: StateStore, tmp_path: Path) -> None:
    """Half a gang would look like one that lost machines."""
    spoil(tmp_path, "UPDATE nodes SET market = ? WHERE attempt = 'b1' AND rank = 1")
    alive, nodes = store.overview.alive()
    assert sorted({a.id for a in alive} | {n.attempt for n in nodes}) == ["a1", "c1"]
    assert [error.key for error in store.overview.unreadable] == [("b1", "1")]
    with pytest.raises(UnreadableError, match=r"^nodes b1 1: "):
        store.attempts.nodes("b1")
    assert len(store.attempts.nodes("a1")) == 2


def test_a_job_with_an_attempt_that_cannot_be_read_does_not_go_on(store: StateStore, tmp_path: Path) -> None:
    """That one may still train."""
    for name in ("a1", "b1"):
        lost = {"phase": Phase.FAILED, "reason": "lost", "met_at": NOW, "gone_at": NOW, "result": "failed"}
        store.attempts.change(store.attempts.get(name) or attempt(name), **lost)
    ended = store.attempts.ended_last(NOW - timedelta(hours=1))
    assert {chain.last.id for chain in resumable_histories(store, ended, crashes=3)} == {"a1", "b1"}
    store.attempts.add(attempt("b0", job="b", number=2, gang="g1"), (node("b0", 0), node("b0", 1)))
    spoil(tmp_path, "UPDATE attempts SET end_at = ? WHERE id = 'b0'")
    assert set(histories_of(store, ended)) == {"a1"}


def test_machines_of_an_attempt_that_cannot_be_read_are_no_orphans(tmp_path: Path) -> None:
    """A sweep would end a gang that trains."""

    class Fleet:
        cloud = "aws"

        def found(self, regions: object) -> FleetListing:
            return FleetListing(
                tuple(
                    CloudResource(
                        "aws",
                        "us-east-1",
                        None,
                        f"i-{name}",
                        name,
                        state,
                        0,
                        ResourceKind.MACHINE,
                        "machine",
                        None,
                        billed=True,
                    )
                    for name in ("b1", "gone-1")
                )
            )

        def release(self, resources: object) -> tuple[None, ...]:
            raise AssertionError

    with bare_site(tmp_path, fleet=lambda _: Fleet()) as site:
        state = site.store.id
        site.store.attempts.add(attempt("b1", phase=Phase.RUNNING), (node("b1", 0), node("b1", 1)))
        spoil(tmp_path, "UPDATE attempts SET start_at = ? WHERE id = 'b1'")
        found = find_orphans(site, ["aws"], {})
        assert [orphan.attempt for orphan in found.orphans] == ["gone-1"]
        (gap,) = found.gaps
        assert gap.startswith("attempts b1: the database holds what cannot be read of it (")
        assert "`stepfare state restore`" in gap
