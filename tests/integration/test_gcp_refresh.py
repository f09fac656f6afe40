"""Everything Google Cloud sells, at realistic size, through the real SDKs: counts and spot checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from pricing.money import UsdPerHour
from pricing.places import Market
from providers.errors import NotReachedError, RegionOffError
from providers.protocol import FetchResult, GangQuery, Scope
from tests.support.gcp_service import NOW, GcpService, make_app, provider_at, serving
from tests.support.gcp_service_data import GPU_TYPES, offered, preempted_share
from tests.support.service import closed_port, in_thread

SINCE = datetime(2026, 9, 15, tzinfo=UTC)


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, GcpService]]:
    app = make_app(regions=40, zones=3, cpu_types=400, skus=30_000)
    assert isinstance(app, GcpService)
    with in_thread(app) as url:
        yield url, app


@pytest.fixture(scope="module")
def harvests(service: tuple[str, GcpService]) -> dict[str, FetchResult]:
    provider = provider_at(service[0])
    with ThreadPoolExecutor(8) as threads:
        scopes = provider.scopes()
        return {
            s.region: h for s, h in zip(scopes, threads.map(lambda s: provider.fetch(s, None), scopes), strict=True)
        }


@pytest.mark.slow
def test_every_region_is_seen_whole(harvests: dict[str, FetchResult]) -> None:
    assert len(harvests) == 40
    for region, harvest in harvests.items():
        assert harvest.covered == {(region, Market.ON_DEMAND), (region, Market.SPOT)}
        assert harvest.gaps == ()
        assert harvest.regions == ()


@pytest.mark.slow
def test_the_catalogue_is_read_once_for_all(service: tuple[str, GcpService], harvests: dict[str, FetchResult]) -> None:
    calls = service[1].calls
    assert len(harvests) == 40
    assert calls["services.skus.list"] == 6
    assert calls["regions.list"] == 1
    assert calls["machineTypes.list"] == 120


def test_golden_counts(harvests: dict[str, FetchResult]) -> None:
    """Of what the service lists: every priced type in every zone that has it, in the markets it is sold in."""
    offers = Counter(o.market for h in harvests.values() for o in h.offers)
    unpriced = {"a3-edgegpu-8g", "a4x-maxgpu-4g-metal", "g4-standard-6"}
    spot_only = {"a3-ultragpu-8g", "a4-highgpu-8g", "a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"}
    listed = [name for region in harvests for n in range(3) for name in GPU_TYPES if offered(name, region, n)]
    assert offers[Market.SPOT] == sum(name not in unpriced for name in listed) == 1786
    assert offers[Market.ON_DEMAND] == sum(name not in unpriced | spot_only for name in listed) == 1577
    # The embedded book has no B200 machine of Google yet.
    assert {m.instance_type for h in harvests.values() for m in h.machines} == {"a4-highgpu-8g"}


def test_spot_checks(harvests: dict[str, FetchResult]) -> None:
    offers = {o.key: o for h in harvests.values() for o in h.offers}
    eight = offers["gcp", "us-central1", "us-central1-c", "a3-highgpu-8g", "on_demand"]
    assert abs(eight.usd_per_hour.nanos - UsdPerHour.parse("88.49").nanos) < 10_000
    assert eight.as_of == NOW.date()
    assert eight.source == "Google Cloud Billing catalogue, summed by component"
    one = offers["gcp", "us-central1", "us-central1-a", "g2-standard-4", "spot"]
    assert one.usd_per_hour == UsdPerHour(4 * 14_050_000 + 16 * 1_646_000 + 314_800_000)
    assert ("gcp", "us-central1", "us-central1-c", "a2-highgpu-1g", "spot") not in offers


def test_the_rest_is_named(harvests: dict[str, FetchResult]) -> None:
    why = Counter(d.why for d in harvests["us-central1"].dropped)
    assert why == {
        "an accelerator that the price book does not know": 2,
        "holds part of an accelerator": 2,
        "a series whose billing is not known": 3,
        "cannot be started on demand: Spot, Flex-start or a reservation only": 5,
        "an accelerator that is attached to N1 machines, which are not priced here": 1,
    }


def test_filters_and_field_masks_only_save_work(service: tuple[str, GcpService]) -> None:
    """A service that ignores both gives the same offers."""
    found = []
    for filters in (True, False):
        with serving(filters=filters, cpu_types=60, page_size=11, sku_page_size=50) as (provider, _):
            found.append(provider.fetch(Scope("gcp", "us-central1"), None))
    assert found[0].offers == found[1].offers
    assert found[0].rows_read < found[1].rows_read


def test_history_is_that_of_the_types_sold_there(service: tuple[str, GcpService]) -> None:
    provider = provider_at(service[0])
    harvest = provider.fetch(Scope("gcp", "us-central1"), SINCE)
    types = {o.instance_type for o in harvest.offers if o.market is Market.SPOT}
    assert {p.instance_type for p in harvest.points} == types
    assert {p.at for p in harvest.points} == {datetime(2026, m, 1, 8, tzinfo=UTC) for m in (9, 10, 11)}
    body = next(body for body in reversed(service[1].bodies) if body.get("types") == ["PRICE"])
    assert body["instanceProperties"]["scheduling"] == {"provisioningModel": "SPOT"}


def test_spot_offers_have_the_share_of_preempted_machines_of_their_zone(harvests: dict[str, FetchResult]) -> None:
    offers = [offer for harvest in harvests.values() for offer in harvest.offers]
    assert {o.preempted_share for o in offers if o.market is not Market.SPOT} == {None}
    spot = [o for o in offers if o.market is Market.SPOT]
    unpublished = {o.instance_type for o in spot if o.preempted_share is None}
    assert unpublished == {"a2-megagpu-16g"}
    for offer in spot:
        if offer.instance_type not in unpublished:
            assert offer.preempted_share == pytest.approx(preempted_share(offer.zone or "", offer.instance_type))


def test_shares_are_asked_by_zone_of_machine_types_that_are_sold() -> None:
    with serving() as (provider, app):
        harvest = provider.fetch(Scope("gcp", "us-central1"), None)
        asked = [
            (body["locationPolicy"]["location"], body["instanceProperties"]["machineType"])
            for body in app.bodies
            if body["types"] == ["PREEMPTION"]
        ]
    sold = {(f"zones/{o.zone}", o.instance_type) for o in harvest.offers if o.market is Market.SPOT}
    assert len(asked) == len(set(asked))
    assert set(asked) == sold
    assert not [name for _, name in asked if name.startswith(("n1-", "ct"))]


def test_an_unknown_region_is_entered_as_such() -> None:
    with serving(regions=["atlantis1"]) as (provider, _):
        harvest = provider.fetch(Scope("gcp", "atlantis1"), None)
        assert harvest.offers
        (region,) = harvest.regions
        assert (region.id.region, region.country) == ("atlantis1", None)


def test_settings_may_name_the_regions() -> None:
    with serving(regions=["us-central1", "us-east1"]) as (provider, _):
        chosen = provider_at(provider._session.settings.endpoints["compute"], regions=("us-east1", "mars1"))
        assert [s.region for s in chosen.scopes()] == ["mars1", "us-east1"]
        assert chosen.fetch(Scope("gcp", "us-east1"), None).offers
        with pytest.raises(RegionOffError, match="mars1"):
            chosen.fetch(Scope("gcp", "mars1"), None)


def test_stock_is_asked_for_spot_gangs_in_one_zone() -> None:
    with serving() as (provider, app):
        gang = GangQuery("a3-highgpu-8g", 8, Market.SPOT, ("us-central1",))
        hints = provider.stock([gang, GangQuery("a3-highgpu-8g", 8, Market.ON_DEMAND)])
        assert [(h.zone, h.score) for h in hints] == [("us-central1-b", 0.5)]
        assert app.bodies == [
            {
                "distributionPolicy": {"targetShape": "ANY_SINGLE_ZONE"},
                "instanceFlexibilityPolicy": {"instanceSelections": {"wanted": {"machineTypes": ["a3-highgpu-8g"]}}},
                "instanceProperties": {"scheduling": {"provisioningModel": "SPOT"}},
                "size": 8,
            }
        ]


def test_stock_skips_places_that_do_not_sell_it() -> None:
    fault = {"match": "us-central1/advice", "kind": "not_found"}
    with serving(fault, regions=["us-central1", "us-east1"]) as (provider, _):
        hints = provider.stock([GangQuery("a3-highgpu-8g", 1, Market.SPOT)])
        assert [h.region for h in hints] == ["us-east1"]


def test_allowances() -> None:
    with serving(regions=["us-central1", "us-east1"]) as (provider, _):
        found = provider.allowances(("us-central1",))
        by_name = {q.name: q for q in found.quotas}
        assert by_name["NVIDIA_A100_80GB_GPUS"].amount == 8
        assert by_name["GPUS_ALL_REGIONS"].region is None
        assert {q.region for q in found.quotas} == {"us-central1", None}
        assert [(h.zone, h.machines, h.free) for h in found.held] == [("us-central1-a", 4, 3)]
        assert [gap.subject for gap in found.gaps] == ["quotas"]
        assert "B200" in str(found.gaps[0].error)
        assert {h.region for h in provider.allowances(()).held} == {"us-central1", "us-east1"}


def test_nothing_there_is_said_at_once() -> None:
    provider = provider_at(f"http://127.0.0.1:{closed_port()}")
    with pytest.raises(NotReachedError, match=r"regions\.list"):
        provider.scopes()
