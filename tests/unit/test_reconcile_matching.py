"""Rows of bills and metered time: what is matched with what, what stays, and whose the money is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.support.reconciled import actual, levels


def at(hour: float, day: int = 3) -> datetime:
    return datetime(2026, 11, day, tzinfo=UTC) + timedelta(hours=hour)


def ran(start: datetime, end: datetime, usd: str = "0", **said: Any) -> dict[str, Any]:
    hours = (Decimal((end - start) // timedelta(seconds=1)) / 3600).quantize(Decimal("1e-18"))
    usual = {
        "team": "speech", "job": "asr", "attempt": "asr-1", "use": "work", "cloud": "aws", "region": "us-east-1",
        "instance_type": "p5", "market": "spot", "resource": "i-1",
    }  # fmt: skip
    money = Decimal(usd)
    return {"start": start, "end": end, "hours": hours, "billed": money, "effective": money} | usual | said


def bill(start: datetime, end: datetime, usd: str, **said: Any) -> dict[str, Any]:
    money = Decimal(usd)
    usual = {"source": "billed", "origin": "bill-1", "state": "Invoiced", "cloud": "aws", "region": "us-east-1"}
    return {"start": start, "end": end, "billed": money, "effective": money} | usual | said


def told(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_an_hour_of_a_bill_is_divided_among_the_uses_of_that_hour() -> None:
    rows = [
        ran(at(10), at(10.25), "5", use="startup", key="s"),
        ran(at(10.25), at(11), "15", useful=Decimal(900), key="w"),
        bill(at(10), at(11), "16", resource="i-1"),
    ]
    assert told(actual(rows), "source", "state", "use", "billed", "hours", "useful", "team", "attempt") == [
        ("billed", "Invoiced", "startup", Decimal(4), Decimal("0.25"), None, "speech", "asr-1"),
        ("billed", "Invoiced", "work", Decimal(12), Decimal("0.75"), Decimal(900), "speech", "asr-1"),
    ]


def test_what_no_row_covers_stays_as_it_was_metered_cut_at_the_bills_edge() -> None:
    rows = [ran(at(10), at(14), "40", useful=Decimal(400)), bill(at(10), at(11), "9", resource="i-1")]
    assert told(actual(rows), "source", "state", "start", "end", "billed", "hours", "useful") == [
        ("billed", "Invoiced", at(10), at(11), Decimal(9), Decimal(1), Decimal(100)),
        ("metered", "Estimated", at(11), at(14), Decimal(30), Decimal(3), Decimal(300)),
    ]


def test_a_gap_in_a_bill_stays_metered_between_two_billed_pieces() -> None:
    rows = [
        ran(at(10), at(13), "30"),
        bill(at(10), at(11), "9", resource="i-1"),
        bill(at(12), at(13), "9", resource="i-1"),
    ]
    assert told(actual(rows), "source", "start", "billed") == [
        ("billed", at(10), Decimal(9)),
        ("metered", at(11), Decimal(10)),
        ("billed", at(12), Decimal(9)),
    ]


def test_two_rows_of_one_hour_are_both_money_and_the_hour_counts_once() -> None:
    rows = [
        ran(at(10), at(11), "10", useful=Decimal(50)),
        bill(at(10), at(11), "4", resource="i-1", sku="on-demand part"),
        bill(at(10), at(11), "0", resource="i-1", sku="commitment part"),
    ]
    assert told(actual(rows), "billed", "hours", "useful", "use") == [
        (Decimal(4), Decimal(1), Decimal(50), "work"),
        (Decimal(0), None, None, "work"),
    ]


def test_time_that_costs_nothing_by_our_prices_takes_its_share_by_time() -> None:
    rows = [
        ran(at(10), at(10.25), "0", use="startup"),
        ran(at(10.25), at(11), "0"),
        bill(at(10), at(11), "8", resource="i-1"),
    ]
    assert told(actual(rows), "use", "billed") == [("startup", Decimal(2)), ("work", Decimal(6))]


def test_thirds_add_up() -> None:
    rows = [
        *(ran(at(10 + k / 3), at(10 + (k + 1) / 3), "1", key=str(k)) for k in range(3)),
        bill(at(10), at(11), "-1", resource="i-1", quantity=Decimal(1)),
    ]
    found = actual(rows)
    third = Decimal("-0.333333333333")
    assert told(found, "billed") == [(third - Decimal("1e-12"),), (third,), (third,)]
    assert sum(row["quantity"] for row in found) == 1


@pytest.mark.parametrize(
    "resource", ["arn:aws:ec2:us-east-1:1:instance/i-1", "I-1", "/projects/x/zones/y/instances/i-1"]
)
def test_a_resource_is_known_by_the_end_of_its_path(resource: str) -> None:
    rows = [ran(at(10), at(11), "10"), bill(at(10), at(11), "9", resource=resource)]
    assert set(levels(rows).values()) == {"resource"}
    rows = [ran(at(10), at(11), "10", resource=resource), bill(at(10), at(11), "9", resource="i-1")]
    assert set(levels(rows).values()) == {"resource"}


def test_two_paths_with_one_end_are_two_resources() -> None:
    rows = [ran(at(10), at(11), "10", resource="a/vm-0", job=None), bill(at(10), at(11), "9", resource="b/vm-0")]
    assert set(levels(rows).values()) == {"none"}


def test_one_id_in_two_of_our_clouds_is_two_resources() -> None:
    rows = [
        ran(at(10), at(11), "10", resource="n-1"),
        ran(at(10), at(11), "10", resource="n-1", cloud="gcp", job="tts"),
        bill(at(10), at(11), "9", resource="n-1", cloud="gcp"),
    ]
    assert told([row for row in actual(rows) if row["source"] == "billed"], "job", "cloud") == [("tts", "gcp")]


def test_tags_name_the_job_and_take_time_that_no_resource_has_taken() -> None:
    rows = [
        ran(at(10), at(11), "10", resource="i-1"),
        ran(at(10), at(11), "10", resource="i-2"),
        bill(at(10), at(11), "9", resource="i-1"),
        bill(at(10), at(11), "8", job="asr"),
    ]
    assert levels(rows) == {("bill-1", 3): "resource", ("bill-1", 4): "tags"}
    assert told(actual(rows), "source", "billed", "resource", "hours") == [
        ("billed", Decimal(9), "i-1", Decimal(1)),
        ("billed", Decimal(8), "i-2", Decimal(1)),
    ]


def test_an_attempt_in_the_tags_is_surer_than_a_job() -> None:
    rows = [
        ran(at(10), at(11), "10", attempt="asr-1", resource=None),
        ran(at(10), at(11), "10", attempt="asr-2", resource=None),
        bill(at(10), at(11), "9", job="asr", attempt="asr-2"),
    ]
    assert told([row for row in actual(rows) if row["source"] == "billed"], "attempt") == [("asr-2",)]


def test_a_days_row_covers_that_days_machines_of_its_kind() -> None:
    rows = [
        ran(at(1), at(2), "10", resource="x"),
        ran(at(5), at(8), "30", resource="y", team="vision", job="vit"),
        ran(at(1, day=4), at(2, day=4), "10", resource="z"),
        bill(at(0), at(24), "20", instance_type="p5"),
    ]
    assert set(levels(rows).values()) == {"sku_day"}
    assert told(actual(rows), "source", "team", "billed") == [
        ("billed", "speech", Decimal(5)),
        ("billed", "vision", Decimal(15)),
        ("metered", "speech", Decimal(10)),
    ]


@pytest.mark.parametrize(
    "other",
    [{"region": "eu-west-1"}, {"instance_type": "p4"}, {"account": "2"}, {"market": "on_demand"}, {"team": "vision"}],
)
def test_a_row_that_says_otherwise_is_of_something_else(other: dict[str, Any]) -> None:
    row = {"instance_type": "p5", "account": "1", "market": "spot", "team": "speech"} | other
    rows = [ran(at(10), at(11), "10", account="1"), bill(at(10), at(11), "9", **row)]
    assert set(levels(rows).values()) == {"none"}
    assert len(actual(rows)) == 2


def test_an_hour_that_the_cloud_counts_otherwise_is_found_on_its_day() -> None:
    rows = [ran(at(10), at(11), "10"), bill(at(11), at(12), "9", instance_type="p5")]
    assert set(levels(rows).values()) == {"sku_day"}
    assert told(actual(rows), "source", "start") == [("billed", at(10))]


def test_a_machine_billed_after_its_release_is_nobody_elses_and_is_told_whose_it_was() -> None:
    rows = [
        ran(at(10), at(11), "10", resource="i-1"),
        ran(at(12), at(13), "10", resource=None, job="tts", team="vision"),
        bill(at(12), at(13), "9", resource="i-1", instance_type="p5"),
    ]
    assert set(levels(rows).values()) == {"none"}
    row = next(row for row in actual(rows) if row["source"] == "billed")
    assert (row["team"], row["job"], row["hours"]) == ("speech", "asr", None)


@pytest.mark.parametrize("tags", [{}, {"job": "asr"}])
def test_a_machine_that_nobody_made_is_not_taken_for_one_of_ours(tags: dict[str, str]) -> None:
    known = [ran(at(10), at(12), "10"), bill(at(10), at(11), "9", resource="i-1", instance_type="p5")]
    stray = bill(at(11), at(12), "9", resource="i-9", instance_type="p5", **tags)
    assert levels([*known, stray]) == {("bill-1", 2): "resource", ("bill-1", 3): "none"}
    # Where no id of the cloud is ours, ids say nothing, and tags or the kind of machine may.
    assert set(levels([known[0], stray]).values()) == {"tags" if tags else "sku_day"}


def test_traffic_of_a_machine_is_its_jobs_money_and_covers_no_hour() -> None:
    rows = [
        ran(at(10), at(11), "10"),
        bill(at(10), at(11), "2", resource="i-1", what="egress", quantity=Decimal(20), unit="GB"),
    ]
    assert told(actual(rows), "source", "what", "job", "billed", "quantity", "hours", "use") == [
        ("billed", "egress", "asr", Decimal(2), Decimal(20), None, None),
        ("metered", "machine", "asr", Decimal(10), None, Decimal(1), "work"),
    ]


@pytest.mark.parametrize("said", [{"category": "Tax"}, {"category": "Credit"}, {"corrects": "2026-10"}])
def test_taxes_credits_and_corrections_cover_no_hour(said: dict[str, Any]) -> None:
    rows = [ran(at(10), at(11), "10"), bill(at(10), at(11), "2", resource="i-1", **said)]
    assert told(actual(rows), "source", "job", "billed") == [
        ("billed", "asr", Decimal(2)),
        ("metered", "asr", Decimal(10)),
    ]


def test_a_reservation_that_nobody_used_covers_nobodys_time() -> None:
    rows = [ran(at(10), at(11), "10"), bill(at(10), at(11), "2", instance_type="p5", use="reservation_unused")]
    assert set(levels(rows).values()) == {"none"}


def test_what_tags_alone_explain_has_the_team_of_its_job() -> None:
    rows = [ran(at(10), at(11), "10"), bill(at(0), at(24), "2", what="storage", job="asr")]
    assert set(levels(rows).values()) == {"tags"}
    assert told(actual(rows), "source", "team", "job") == [("billed", "speech", "asr"), ("metered", "speech", "asr")]


def test_nobodys_row_stays_nobodys_and_added_money_stays_as_it_is() -> None:
    added = {"source": "added", "category": "Purchase", "what": "other", "billed": Decimal(3), "reason": "support"}
    planned = {"source": "planned", "billed": Decimal(99)}
    rows = [bill(at(0), at(24), "2", what="other"), added, planned]
    assert told(actual(rows), "source", "team", "billed") == [("billed", None, Decimal(2)), ("added", None, Decimal(3))]


def test_what_is_unpriced_stays_unknown_until_a_bill_prices_it() -> None:
    disk = ran(at(10), at(11), what="disk", billed=None, effective=None, unpriced=True, resource=None, hours=None)
    assert told(actual([disk]), "billed", "unpriced") == [(None, True)]
    rows = [disk, bill(at(10), at(11), "3", what="disk", job="asr")]
    assert told(actual(rows), "billed", "unpriced", "team") == [(Decimal(3), False, "speech")]


def test_a_row_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="two billed facts are row 7 of bill-1"):
        actual([bill(at(0), at(1), "2", row=7), bill(at(0), at(1), "2", row=7)])
