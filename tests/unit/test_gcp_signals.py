"""Quotas, reservations, price history, advice and notices, from answers as the API's own messages print them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pricing.money import UsdPerHour
from pricing.places import Market
from providers.gcp.allowances import find_uncounted_accelerators, read_quotas, read_reservations, region_of
from providers.gcp.signals import NO_SHARE, read_preempted_share, read_spot_prices, read_stock_hint
from providers.protocol import GangQuery, QuotaUnit

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)


def quota(metric: str, limit: float, usage: float = 0.0) -> dict[str, Any]:
    return {"metric": metric, "limit": limit, "usage": usage}


def test_quotas_by_accelerator_and_market() -> None:
    rows = [
        quota("CPUS", 2400, 12),
        quota("NVIDIA_A100_80GB_GPUS", 16, 8),
        quota("PREEMPTIBLE_NVIDIA_A100_80GB_GPUS", 32),
        quota("COMMITTED_NVIDIA_A100_80GB_GPUS", 4),
        quota("NVIDIA_T4_VWS_GPUS", 1),
        quota("NVIDIA_K80_GPUS", 1),
    ]
    found = read_quotas("gcp", "us-central1", rows)
    assert [(q.accelerator, q.market, q.amount, q.used) for q in found] == [
        ("A100-80GB", Market.ON_DEMAND, 16, 8),
        ("A100-80GB", Market.SPOT, 32, 0),
        ("A100-80GB", Market.RESERVED, 4, 0),
    ]
    assert {(q.unit, q.region, q.families) for q in found} == {(QuotaUnit.ACCELERATORS, "us-central1", ())}


def test_quotas_of_one_accelerator_are_added() -> None:
    rows = [quota("NVIDIA_H100_MEGA_GPUS", 32, 1), quota("NVIDIA_H100_GPUS", 64, 2)]
    (found,) = read_quotas("gcp", "us-central1", rows)
    assert (found.accelerator, found.amount, found.used) == ("H100", 96, 3)
    assert found.name == "NVIDIA_H100_GPUS+NVIDIA_H100_MEGA_GPUS"


def test_the_quota_over_all_regions_names_no_accelerator() -> None:
    rows = [quota("GPUS_ALL_REGIONS", 128, 16), quota("NETWORKS", 5)]
    (found,) = read_quotas("gcp", None, rows)
    assert (found.region, found.accelerator, found.market, found.amount) == (None, None, None, 128)
    assert read_quotas("gcp", "us-central1", rows) == []


def test_a_quota_of_zero_forbids() -> None:
    (found,) = read_quotas("gcp", "us-central1", [quota("NVIDIA_L4_GPUS", 0)])
    assert found.amount == 0


def test_accelerators_without_a_quota_are_named() -> None:
    assert "B200" in find_uncounted_accelerators(read_quotas("gcp", "us-central1", [quota("NVIDIA_L4_GPUS", 8)]))
    assert "L4" not in find_uncounted_accelerators(read_quotas("gcp", "us-central1", [quota("NVIDIA_L4_GPUS", 8)]))


def reservation(**changes: Any) -> dict[str, Any]:
    return {
        "name": "gang",
        "zone": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a",
        "status": "READY",
        "creationTimestamp": "2026-10-01T00:00:00.000-07:00",
        "specificReservation": {
            "count": "4",
            "inUseCount": "1",
            "instanceProperties": {"machineType": "a3-highgpu-8g"},
        },
        **changes,
    }


def test_reservations_that_are_ready_are_held() -> None:
    rows = [reservation(), reservation(status="DELETING"), reservation(specificReservation={})]
    rows.append(reservation(deleteAtTime="2026-12-01T00:00:00Z", zone="zones/europe-west4-b"))
    first, second = read_reservations("gcp", rows, ())
    assert (first.region, first.zone, first.end) == (
        "europe-west4",
        "europe-west4-b",
        datetime(2026, 12, 1, tzinfo=UTC),
    )
    assert (second.zone, second.machines, second.free, second.end) == ("us-central1-a", 4, 3, None)
    assert second.start == datetime(2026, 10, 1, 7, tzinfo=UTC)
    (named,) = read_reservations("gcp", [reservation(specificReservationRequired=True)], ())
    assert (second.automatic, named.automatic) == (True, False)
    assert [h.region for h in read_reservations("gcp", rows, ("us-central1",))] == ["us-central1"]


def test_the_region_of_a_zone() -> None:
    assert region_of("northamerica-northeast1-a") == "northamerica-northeast1"


def record(start: str, end: str, nanos: int, **money: Any) -> dict[str, Any]:
    price = {"currencyCode": "USD", "nanos": nanos, **money}
    return {"interval": {"startTime": start, "endTime": end}, "listPrice": price}


def test_spot_prices_from_the_one_in_force_at_the_start() -> None:
    answer = {
        "machineType": "a3-highgpu-8g",
        "priceHistory": [
            record("2026-10-01T07:00:00Z", "2026-11-01T07:00:00Z", 3, units="25"),
            record("2026-09-01T07:00:00Z", "2026-10-01T07:00:00Z", 2),
            record("2026-11-01T07:00:00Z", "2026-11-22T08:00:00Z", 4),
            record("2026-12-01T07:00:00Z", "2026-12-02T08:00:00Z", 5),
            record("2026-11-02T07:00:00Z", "2026-11-03T08:00:00Z", 6, currencyCode="EUR"),
            record("2026-11-02T07:00:00Z", "2026-11-03T08:00:00Z", 0),
        ],
    }
    points = read_spot_prices("gcp", "us-central1", answer, datetime(2026, 10, 15, tzinfo=UTC), NOW)
    assert [(p.at, p.usd_per_hour) for p in points] == [
        (datetime(2026, 10, 1, 7, tzinfo=UTC), UsdPerHour(25 * 10**9 + 3)),
        (datetime(2026, 11, 1, 7, tzinfo=UTC), UsdPerHour(4)),
    ]
    assert {(p.zone, p.market, p.available, p.score) for p in points} == {(None, Market.SPOT, None, None)}


def day(*rates: object) -> dict[str, Any]:
    interval = {"startTime": "2026-11-01T07:00:00Z", "endTime": "2026-11-02T07:00:00Z"}
    return {
        "machineType": "a3-highgpu-8g",
        "preemptionHistory": [{"interval": interval, **({} if r is None else {"preemptionRate": r})} for r in rates],
    }


@pytest.mark.parametrize(
    ("answer", "share"),
    [(day(0.2, 0.4, None), 0.3), (day(0.0), 0.0), (day(1), 1.0), (day(None), None), (day(), None), ({}, None)],
)
def test_a_share_is_the_mean_of_the_days_on_which_machines_stopped(answer: dict[str, Any], share: float | None) -> None:
    found, dropped = read_preempted_share("us-central1-a", "a3-highgpu-8g", answer)
    assert found == (None if share is None else pytest.approx(share))
    assert dropped == ()


@pytest.mark.parametrize("odd", [1.5, -0.1, "NaN", "0.5"])
def test_a_day_that_cannot_be_used_is_named_and_the_others_count(odd: object) -> None:
    found, dropped = read_preempted_share("us-central1-a", "a3-highgpu-8g", day(odd, 0.25))
    assert found == 0.25
    assert [(d.row, d.why) for d in dropped] == [("us-central1-a/a3-highgpu-8g/spot", NO_SHARE)]


def advice(score: object, *zones: str) -> dict[str, Any]:
    return {"recommendations": [{"scores": {"obtainability": score}, "shards": [{"zone": z} for z in zones]}]}


@pytest.mark.parametrize(
    ("answer", "score", "zone"),
    [
        (advice(0.7, "us-central1-b"), 0.7, "us-central1-b"),
        (advice(1, "zones/us-central1-b", "zones/us-central1-b"), 1.0, "us-central1-b"),
        (advice(0.5, "us-central1-b", "us-central1-c"), 0.5, None),
        (advice(0.0), 0.0, None),
    ],
)
def test_advice_is_a_hint_for_the_zone_it_names(answer: dict[str, Any], score: float, zone: str | None) -> None:
    hint = read_stock_hint("us-central1", GangQuery("a3-highgpu-8g", 4, Market.SPOT), answer)
    assert hint is not None
    assert (hint.score, hint.zone, hint.machines, hint.market) == (score, zone, None, Market.SPOT)


@pytest.mark.parametrize("answer", [{}, {"recommendations": []}, {"recommendations": [{}]}, advice(1.5), advice("0.5")])
def test_no_score_is_no_hint(answer: dict[str, Any]) -> None:
    assert read_stock_hint("us-central1", GangQuery("a3-highgpu-8g", 4, Market.SPOT), answer) is None
