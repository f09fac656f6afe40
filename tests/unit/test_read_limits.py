"""Limits that were read, merged with those of the file, and the store of readings."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pricing.book_file import embedded_book
from pricing.places import Market
from pricing.problems import InvalidInputError
from providers.protocol import AccountAllowances, CapacityReservation, Quota, QuotaUnit, StockHint
from router.jobs.limits import Limits
from router.jobs.spec import Placement
from router.prices.allowance_store import (
    AllowanceReading,
    AllowanceStore,
    CloudAllowances,
    allowances_to_json,
    read_allowances,
)
from router.prices.read_limits import merge_read_limits

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
P5 = Quota("aws", "P5 spot", "us-east-1", ("p5", "p5e"), None, Market.SPOT, 576, 0, QuotaUnit.VCPUS)
HELD = CapacityReservation("aws", "cr-1", "us-east-1", "use1-az1", "p5.48xlarge", 4, 3, None, None)
HINT = StockHint("us-east-1", None, "p5.48xlarge", Market.SPOT, None, 2, "made up")


def reading(*quotas: Quota, held: tuple[CapacityReservation, ...] = ()) -> AllowanceReading:
    return AllowanceReading({"aws": CloudAllowances(NOW, quotas, held)})


def limits(**fields: object) -> Limits:
    return Limits.model_validate(fields)


def test_the_order_of_families_does_not_make_another_limit() -> None:
    own = {"name": "mine", "region": "aws/us-east-1", "family": ["p5e", "p5"], "market": "spot", "unit": "vcpus"}
    for amount, binding in ((192, 192), (960, 576)):
        found = merge_read_limits(limits(limits=[{**own, "amount": amount}]), reading(P5), embedded_book(), NOW)
        assert [(one.name, one.amount) for one in found.limits.limits] == [("mine", binding)]
        (source,) = found.sources
        assert (source.read, source.in_file, source.binds_by_file) == (576, amount, amount == 192)


@pytest.mark.parametrize("change", [{"unit": "machines"}, {"market": "on_demand"}, {"family": ["p5en"]}])
def test_a_limit_on_other_machines_stays_beside_it(change: dict[str, object]) -> None:
    name = "aws us-east-1 P5 spot"
    own = {"name": name, "region": "aws/us-east-1", "family": ["p5", "p5e"], "market": "spot", "unit": "vcpus"}
    found = merge_read_limits(limits(limits=[{**own, "amount": 1, **change}]), reading(P5), embedded_book(), NOW)
    assert [(one.name, one.amount) for one in found.limits.limits] == [(name, 1), (f"{name} (2)", 576)]


def test_a_reservation_of_the_file_is_not_counted_twice() -> None:
    own = {"name": "block", "region": "aws/us-east-1", "instance_type": "p5.48xlarge", "machines": 6, "sunk": True}
    found = merge_read_limits(limits(reservations=[own]), reading(held=(HELD,)), embedded_book(), NOW)
    (kept,) = found.limits.reservations
    assert (kept.name, kept.machines, kept.cost) == ("block", 4, "sunk")
    alone = merge_read_limits(limits(), reading(held=(HELD,)), embedded_book(), NOW)
    assert [(one.name, one.machines) for one in alone.limits.reservations] == [("cr-1", 3)]


def test_a_reservation_of_machines_that_the_book_does_not_know_is_left_out() -> None:
    unknown = replace(HELD, instance_type="p99.metal")
    found = merge_read_limits(limits(), reading(held=(unknown,)), embedded_book(), NOW)
    assert found.limits.reservations == ()
    assert "p99.metal" in found.warnings[0]


def test_machines_of_running_jobs_are_added_to_counts_of_free_ones(tmp_path: Path) -> None:
    store = AllowanceStore(tmp_path)
    store.add(
        NOW, {}, [("aws", HINT), ("aws", replace(HINT, market=Market.RESERVED)), ("gcp", replace(HINT, machines=None))]
    )
    latest = store.latest()
    assert latest is not None
    here = Placement(
        cloud="aws",
        region="us-east-1",
        zone="use1-az1",
        instance_type="p5.48xlarge",
        market=Market.SPOT,
        accelerators=16,
    )
    found = merge_read_limits(limits(), latest, embedded_book(), NOW, [(here, 2)])
    assert [(one.kind, one.amount, one.unit) for one in found.limits.limits] == [("stock", 4, "machines")]


def test_a_reading_of_one_cloud_keeps_the_others(tmp_path: Path) -> None:
    store = AllowanceStore(tmp_path)
    assert store.latest() is None
    store.add(NOW, {"aws": AccountAllowances((P5,), (HELD,))})
    later = NOW + timedelta(hours=5)
    path = store.add(later, {"gcp": AccountAllowances((replace(P5, cloud="gcp"),))})
    latest = store.latest()
    assert latest is not None
    assert {name: one.read_at for name, one in latest.clouds.items()} == {"aws": NOW, "gcp": later}
    assert latest.clouds["aws"].held == (HELD,)
    assert read_allowances(path) == latest
    assert path.read_text() == allowances_to_json(latest)


def test_a_damaged_reading_is_refused_and_the_next_is_built_upon_the_sound_one(tmp_path: Path) -> None:
    store = AllowanceStore(tmp_path)
    store.add(NOW, {"aws": AccountAllowances((P5,))})
    damaged = tmp_path / "20261122T000000Z-damaged.json"
    damaged.write_text("{", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="damaged"):
        store.latest()
    store.add(NOW + timedelta(days=2), {"gcp": AccountAllowances()})
    latest = store.latest()
    assert latest is not None
    assert set(latest.clouds) == {"aws", "gcp"}


def test_limits_are_stored_without_empty_sections() -> None:
    assert Limits.none().to_json() == "{}"
    assert limits(quotas="latest").to_json() == '{"quotas":"latest"}'
    assert Limits.model_validate_json(limits(quotas="latest").to_json()) == limits(quotas="latest")
