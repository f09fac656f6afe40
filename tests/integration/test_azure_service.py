"""The Azure adapter against the local service, through the real SDK and requests: what a healthy refresh gives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests

from pricing.book_file import embedded_book
from pricing.offers import Offer
from pricing.places import Market
from providers.azure.provider import AzureProvider
from providers.caller import Caller
from providers.errors import ProviderError
from providers.protocol import Scope
from providers.session import Session, Settings
from tests.support import azure_service_rows as rows
from tests.support.azure_service import GRAPH, SUBSCRIPTION, make_app
from tests.support.repository import ROOT
from tests.support.service import CALL_LIMIT_S, in_thread

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
REGIONS = ("eastus", "swedencentral", "westeurope")
H100 = "Standard_ND96isr_H100_v5"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    small = {"price_rows": 300, "sku_rows": 60, "price_page": 50, "sku_page": 25}
    with in_thread(make_app(regions=REGIONS, now=NOW.isoformat(), **small)) as address:  # type: ignore[arg-type]
        yield address


def provider(url: str, *, account: bool = True, regions: tuple[str, ...] = REGIONS) -> AzureProvider:
    settings = Settings(
        endpoints={"prices": url, "management": url},
        options={"subscription": SUBSCRIPTION} if account else {},
        regions=regions,
    )
    return AzureProvider("azure", Session(settings, embedded_book(), NOW, Caller("azure", CALL_LIMIT_S)))


def test_an_account_gives_zones_and_new_machines(url: str) -> None:
    found = {region: provider(url).fetch(Scope("azure", region), None) for region in REGIONS}
    # Worked out from the rules of tests/support/azure_service_rows.py, by hand.
    assert {region: len(harvest.offers) for region, harvest in found.items()} == {
        "eastus": 90,
        "swedencentral": 86,
        "westeurope": 30,
    }
    h100 = {
        (region, o.zone, o.market.value): str(o.usd_per_hour)
        for region, harvest in found.items()
        for o in harvest.offers
        if o.instance_type == H100
    }
    assert h100 == {
        ("eastus", "1", "on_demand"): "98.32",
        ("eastus", "1", "spot"): "24.58",
        ("eastus", "2", "on_demand"): "98.32",
        ("eastus", "2", "spot"): "24.58",
        ("eastus", "3", "on_demand"): "98.32",
        ("eastus", "3", "spot"): "24.58",
        ("swedencentral", "1", "on_demand"): "99.3032",
        ("swedencentral", "1", "spot"): "24.8258",
        ("swedencentral", "2", "on_demand"): "99.3032",
        ("swedencentral", "2", "spot"): "24.8258",
        ("swedencentral", "3", "on_demand"): "99.3032",
        ("swedencentral", "3", "spot"): "24.8258",
        ("westeurope", None, "on_demand"): "100.2864",
        ("westeurope", None, "spot"): "25.0716",
    }
    (new,) = found["westeurope"].machines
    assert (new.instance_type, new.accelerator, new.accelerator_count) == ("Standard_NCC40ads_H100_v5", "H100-NVL", 1)
    assert all(harvest.gaps == () for harvest in found.values())
    both = {Market.ON_DEMAND, Market.SPOT}
    assert all(harvest.covered == {(region, m) for m in both} for region, harvest in found.items())


def test_what_was_left_out_is_counted_by_reason(url: str) -> None:
    harvest = provider(url).fetch(Scope("azure", "eastus"), None)
    assert Counter(d.why for d in harvest.dropped) == {
        "priced there, but not among the subscription's SKUs": 10,
        "not available to this subscription": 4,
        "its accelerator is not in the price book": 4,
        "has only a part of an accelerator": 2,
    }
    assert harvest.rows_read == 228, "145 prices in 3 pages, 60 SKUs in 3 pages, 23 eviction rates"


def test_eviction_rates_are_bands_of_spot_offers_as_of_today(url: str) -> None:
    found = {region: provider(url).fetch(Scope("azure", region), None) for region in REGIONS}
    size = next(number for number, row in enumerate(rows.SIZES) if row[0] == H100)
    for number, (region, harvest) in enumerate(found.items()):
        told = {(o.interruption_band, o.band_as_of) for o in harvest.offers if o.instance_type == H100 and is_spot(o)}
        assert told == {(f"{rows.eviction_rate(size, number)}%/h", NOW.date())}, region
    assert len({o.interruption_band for h in found.values() for o in h.offers if is_spot(o)} - {None}) == 5
    without = {row[0] for number, row in enumerate(rows.SIZES) if number % 6 == 5}
    unrated = {o.instance_type for h in found.values() for o in h.offers if is_spot(o) and not o.interruption_band}
    assert unrated <= without
    assert all(o.interruption_band is None for h in found.values() for o in h.offers if not is_spot(o))


def test_one_query_of_many_pages_serves_all_regions() -> None:
    """The pages are of seven rows, so that a row that is lost or repeated between two would be seen."""
    small: dict[str, Any] = {"price_rows": 300, "sku_rows": 60}
    with (
        in_thread(make_app(regions=REGIONS, graph_page=7, **small)) as paged,
        in_thread(make_app(regions=REGIONS, **small)) as whole,
    ):
        by_page, at_once = provider(paged), provider(whole)
        for region in REGIONS:
            assert by_page.fetch(Scope("azure", region), None) == at_once.fetch(Scope("azure", region), None)
        calls = [requests.get(f"{url}/_calls", timeout=5).json()[GRAPH] for url in (paged, whole)]
    assert calls == [10, 1], "69 rates of three regions"


def is_spot(offer: Offer) -> bool:
    return offer.market is Market.SPOT


def test_without_an_account_known_machines_by_region_and_a_gap(url: str) -> None:
    harvest = provider(url, account=False).fetch(Scope("azure", "eastus"), NOW - timedelta(days=30))
    assert len(harvest.offers) == 44, "22 machines of the price book in 2 markets"
    assert {o.zone for o in harvest.offers} == {None}
    assert harvest.covered == {("eastus", Market.ON_DEMAND), ("eastus", Market.SPOT)}
    (gap,) = harvest.gaps
    assert gap.subject == "zones, restrictions and new machine types"
    assert "subscription" in gap.error.remedy
    assert "eviction rates" in gap.would_add
    assert {o.interruption_band for o in harvest.offers} == {None}
    assert "zones" in gap.would_add
    assert {(p.market, p.at.date().isoformat()) for p in harvest.points} == {(Market.SPOT, "2026-11-01")}
    assert len(harvest.points) == 23, "of the new machine too: its accelerator is known"


def test_the_regions_of_the_subscription_come_on_top(url: str) -> None:
    known = {r.id.region for r in embedded_book().regions if r.id.cloud == "azure"}
    assert {s.region for s in provider(url, account=False, regions=()).scopes()} == known
    with in_thread(make_app(regions=["eastus", "moonbase"], price_rows=10, sku_rows=30)) as more:
        found = provider(more, regions=())
        assert {s.region for s in found.scopes()} == known | {"moonbase"}
        harvest = found.fetch(Scope("azure", "moonbase"), None)
        assert [r.id.region for r in harvest.regions] == ["moonbase"]
        assert harvest.offers


def test_quotas_and_reservations(url: str) -> None:
    found = provider(url).allowances(("eastus", "swedencentral"))
    assert found.gaps == ()
    by_name = {(q.region, q.name): q for q in found.quotas}
    assert by_name["eastus", "standardNDSH100v5Family"].families == (H100,)
    assert (by_name["eastus", "cores"].amount, by_name["swedencentral", "cores"].amount) == (96, 192)
    assert by_name["eastus", "lowPriorityCores"].market is Market.SPOT
    assert not any("DSv5" in name for _, name in by_name)
    assert [(h.name, h.region, h.zone, h.machines, h.free) for h in found.held] == [
        ("trainers/h100", "eastus", "1", 8, 5),
        ("block/fortnight", "swedencentral", "2", 4, 4),
    ]
    assert provider(url).allowances(("westeurope",)).held == ()
    assert provider(url, account=False).allowances(()).gaps[0].subject == "quotas and capacity reservations"


def test_a_diagnosis(url: str) -> None:
    found = provider(url).diagnose()
    assert found.identity == f"subscription {SUBSCRIPTION}"
    assert [check.error for check in found.checks] == [None] * 7
    assert found.clock_ahead is not None
    assert abs(found.clock_ahead) < timedelta(seconds=30)
    assert found.latency is not None
    assert timedelta(0) < found.latency < timedelta(seconds=5)
    public = provider(url, account=False).diagnose()
    assert (public.identity, len(public.checks)) == (None, 1)
    assert "no subscription" in str(public.identity_error)
    assert public.sources != found.sources


def test_the_role_allows_exactly_the_calls_that_are_made() -> None:
    """Which action a path asks for: tests/support/azure_service.py, from Azure's public permission lists."""
    small = {"price_rows": 10, "sku_rows": 30}
    with in_thread(make_app(regions=REGIONS, **small)) as url:  # type: ignore[arg-type]
        everything = provider(url, regions=())
        everything.scopes()
        everything.fetch(Scope("azure", "eastus"), NOW - timedelta(days=30))
        everything.allowances(REGIONS)
        everything.diagnose()
        everything.stock(())
        called = requests.get(f"{url}/_calls", timeout=5).json()
    role = json.loads((ROOT / "providers/azure/role.json").read_text())
    assert sorted(set(called) - {"RetailPrices"}) == sorted(role["Actions"])
    assert all(action.endswith("/read") for action in role["Actions"])
    assert (role["NotActions"], role["DataActions"]) == ([], [])


@pytest.mark.parametrize(
    "endpoints", [{"management": "http://management.example"}, {"prices": "ftp://x"}, {"blob": "https://x"}], ids=str
)
def test_an_endpoint_that_would_tell_the_token_to_others_is_refused(endpoints: dict[str, str]) -> None:
    session = Session(Settings(endpoints=endpoints), embedded_book(), NOW, Caller("azure", 5))
    with pytest.raises(ProviderError, match="endpoint"):
        AzureProvider("azure", session)
