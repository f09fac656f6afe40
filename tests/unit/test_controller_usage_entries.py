"""Disks and copied checkpoints stand in the ledger too; what nobody knows the price of says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from pricing.money import Usd
from router.controller.history.metering import disk_entries, disk_gib, transfer_entries
from router.ledger.entry import GB, GIB_HOURS, CostItem
from router.state.records import JournalEntry
from tests.support.state_values import HOUR, NOW, attempt, node


def note(what: str, seq: int = 7, at: datetime = NOW, **details: object) -> JournalEntry:
    return JournalEntry(seq, at, "a1", what, details)


COPY: dict[str, Any] = {
    "from": "s3://east",
    "to": "gs://west",
    "origin": "aws/us-east-1",
    "bytes": 2_500_000_000,
    "seconds": 12.5,
}


def test_what_was_copied_is_egress_of_where_it_came_from() -> None:
    priced = {"price_as_of": "2026-11-01", "price_source": "a list", **COPY}
    (one,) = transfer_entries(attempt(), [note("copied", usd="0.225", **priced)], NOW + HOUR)
    assert (one.price_as_of, one.price_source) == ("2026-11-01", "a list")
    assert (one.what, one.quantity, one.unit, one.usd, one.unpriced) == (
        CostItem.EGRESS,
        Fraction(5, 2),
        GB,
        Usd.parse("0.225"),
        False,
    )
    assert (one.cloud, one.region, one.attempt, one.rank, one.team) == ("aws", "us-east-1", "a1", None, "research")
    assert (one.start, one.end, float(one.hours)) == (NOW - timedelta(seconds=12.5), NOW, 0.0)
    assert (one.resource, one.reference) == ("s3://east", "s3://east -> gs://west")


def test_what_was_copied_in_part_costs_too_and_an_unknown_price_is_not_zero() -> None:
    part, nothing = note("not copied", usd=None, **COPY), note("not copied", 8, usd="0", **{**COPY, "bytes": 0})
    entries = transfer_entries(attempt(), [part, nothing, note("saved", 9, **COPY)], NOW)
    assert [(entry.usd, entry.unpriced) for entry in entries] == [(Usd(0), True)]


def test_the_same_copy_again_has_the_same_key() -> None:
    once, again = (transfer_entries(attempt(), [note("copied", usd="1", **COPY)], NOW + n * HOUR) for n in (1, 2))
    assert once[0].key == again[0].key


def test_a_copy_stands_in_the_month_in_which_it_was_done() -> None:
    for at in (datetime(2026, 11, 1, 0, 0, 3, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)):
        (one,) = transfer_entries(attempt(), [note("copied", at=at, usd="1", **COPY)], NOW)
        assert one.period.begins <= one.start < one.end <= one.period.ends
        assert one.end == at


def test_disks_are_there_as_long_as_their_machines() -> None:
    made = datetime(2026, 10, 31, 22, tzinfo=UTC)
    nodes = [node(made_at=made, gone_at=made + 3 * HOUR), node(rank=1), node(rank=2, made_at=made)]
    entries = disk_entries(attempt(), nodes, 200, NOW)
    assert [(str(e.period), e.rank, float(e.quantity), e.unit, e.unpriced) for e in entries] == [
        ("2026-10", 0, 400.0, GIB_HOURS, True),
        ("2026-11", 0, 200.0, GIB_HOURS, True),
    ]
    assert {entry.hours for entry in entries} == {0}
    assert disk_entries(attempt(), nodes, None, NOW) == ()


def test_how_large_they_are_is_what_they_were_made_with() -> None:
    assert disk_gib([note("provisioning", disk_gib=200), note("met"), note("provisioning", disk_gib=300)]) == 300
    assert disk_gib([note("provisioning"), note("provisioning taken up", disk_gib=3)]) is None


def test_a_disk_is_told_by_its_machine() -> None:
    machines = [node(rank=n, machine_id=name, made_at=NOW, gone_at=NOW + HOUR) for n, name in enumerate(("i-7", None))]
    assert [one.resource for one in disk_entries(attempt(), machines, 100, NOW + HOUR)] == ["i-7/disk", ""]
