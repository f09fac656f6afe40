"""The Azure adapter when things go wrong: nothing lost, nothing invented, each named."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests

from pricing.book_file import embedded_book
from pricing.places import Market
from providers.azure.provider import AzureProvider
from providers.caller import Caller
from providers.errors import (
    CredentialsError,
    NotReachedError,
    PermissionDeniedError,
    ProviderError,
    RegionOffError,
    ThrottledError,
    TransientError,
    UnreadableError,
)
from providers.protocol import FetchResult, Scope
from providers.session import Session, Settings
from tests.support.azure_service import GRAPH, SUBSCRIPTION, make_app
from tests.support.busy import in_time
from tests.support.service import CALL_LIMIT_S, closed_port, in_thread

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
EASTUS = Scope("azure", "eastus")
H100 = "Standard_ND96isr_H100_v5"
SKUS, PRICES = "skus/read", "RetailPrices"
ZONES = "zones, restrictions and new machine types"


@dataclass(frozen=True)
class Opened:
    """A provider on a service with faults."""

    provider: AzureProvider
    caller: Caller
    url: str

    def fetch(self, region: str = "eastus") -> FetchResult:
        return self.provider.fetch(Scope("azure", region), None)

    def calls(self) -> Mapping[str, int]:
        return dict(requests.get(f"{self.url}/_calls", timeout=5).json())


@contextmanager
def opened(*faults: Mapping[str, Any], attempts: int = 2, **settings: Any) -> Iterator[Opened]:
    small: dict[str, Any] = {"price_rows": 300, "sku_rows": 60, "price_page": 50, "sku_page": 25}
    app = make_app(regions=["eastus", "swedencentral"], now=NOW.isoformat(), faults=faults, **small)
    with in_thread(app) as url:
        chosen = {
            "endpoints": {"prices": url, "management": url},
            "options": {"subscription": SUBSCRIPTION},
            **settings,
        }
        caller = Caller("azure", CALL_LIMIT_S, attempts=attempts)
        yield Opened(AzureProvider("azure", Session(Settings(**chosen), embedded_book(), NOW, caller)), caller, url)


@pytest.fixture(scope="module")
def healthy() -> FetchResult:
    with opened() as azure:
        return azure.fetch()


def fault(match: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"match": match, "kind": kind, **more}


@pytest.mark.parametrize("match", [PRICES, SKUS])
@pytest.mark.parametrize("kind", ["error500", "half_page", "bad_json", "not_a_page", "drop_connection"])
def test_a_passing_fault_changes_nothing(match: str, kind: str, healthy: FetchResult) -> None:
    """On the second page, so that the pages before and after must still fit together."""
    with opened(fault(match, kind, after=1, times=1)) as azure:
        assert azure.fetch() == healthy
        assert sum(azure.caller.retries.values()) == 1


@pytest.mark.parametrize("kind", ["throttle", "error503"])
def test_it_waits_as_long_as_it_is_told(kind: str, healthy: FetchResult) -> None:
    with opened(fault(PRICES, kind, times=1, retry_after=1)) as azure:
        begin = time.monotonic()
        assert azure.fetch() == healthy
        assert time.monotonic() - begin >= 1


@pytest.mark.parametrize("kind", ["bad_json", "half_page"])
def test_a_first_page_of_an_sdk_listing_that_cannot_be_read_is_not_the_end(kind: str) -> None:
    with opened() as azure:
        expected = azure.provider.allowances(("eastus",))
    with opened(fault("usages/read", kind, times=1), fault("capacityReservationGroups/read", kind, times=1)) as azure:
        found = azure.provider.allowances(("eastus",))
    assert found == expected
    assert found.quotas
    assert found.held


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttle", ThrottledError),
        ("error500", TransientError),
        ("half_page", TransientError),
        ("bad_json", UnreadableError),
        ("not_a_page", UnreadableError),
        ("astray", UnreadableError),
        ("circle", UnreadableError),
        ("drop_connection", TransientError),
    ],
)
def test_without_prices_the_region_fails_as_a_whole(kind: str, error: type[ProviderError]) -> None:
    with opened(fault(PRICES, kind), attempts=1) as azure, pytest.raises(error) as raised:
        azure.fetch()
    assert "eastus" in str(raised.value) or "next page" in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "error", "word"),
    [
        ("throttle", ThrottledError, "TooManyRequests"),
        ("error500", TransientError, "InternalServerError"),
        ("bad_json", UnreadableError, "SKUs of eastus"),
        ("half_page", TransientError, "SKUs of eastus"),
        ("astray", UnreadableError, "next page"),
        ("expired_token", CredentialsError, "ExpiredAuthenticationToken"),
        ("not_found", CredentialsError, "SubscriptionNotFound"),
        ("forbidden", PermissionDeniedError, "AuthorizationFailed"),
        ("unregistered", PermissionDeniedError, "MissingSubscriptionRegistration"),
    ],
)
def test_without_skus_prices_stay_and_older_rows_by_zone_are_not_replaced(
    kind: str, error: type[ProviderError], word: str
) -> None:
    with opened(fault(SKUS, kind), attempts=1) as azure:
        harvest = azure.fetch()
        assert set(azure.calls()) == {"RetailPrices", "Microsoft.Compute/skus/read", GRAPH}, "nothing is registered"
    (gap,) = harvest.gaps
    assert gap.subject == ZONES
    assert isinstance(gap.error, error)
    assert word in str(gap.error)
    assert {o.zone for o in harvest.offers} == {None}
    assert len(harvest.offers) == 44
    assert harvest.covered == frozenset()


@pytest.mark.parametrize(
    ("kind", "error", "word"),
    [
        ("throttle", ThrottledError, "TooManyRequests"),
        ("error500", TransientError, "InternalServerError"),
        ("bad_json", UnreadableError, "eviction rates"),
        ("half_page", TransientError, "eviction rates"),
        ("not_a_page", UnreadableError, "eviction rates"),
        ("circle", UnreadableError, "next page"),
        ("forbidden", PermissionDeniedError, "Microsoft.ResourceGraph/resources/read"),
        ("unregistered", PermissionDeniedError, "MissingSubscriptionRegistration"),
        ("empty", ProviderError, "SpotResources"),
    ],
)
def test_without_eviction_rates_offers_have_no_band(
    kind: str, error: type[ProviderError], word: str, healthy: FetchResult
) -> None:
    with opened(fault(GRAPH, kind), attempts=1) as azure:
        harvest, other = azure.fetch(), azure.fetch("swedencentral")
        assert azure.calls()[GRAPH] == {"circle": 2, "throttle": 3}.get(kind, 1), (
            "a query that failed is not asked again"
        )
    (gap,) = harvest.gaps
    assert gap.subject == "eviction rates of spot machines"
    assert isinstance(gap.error, error)
    assert word in f"{gap.error} {gap.error.remedy}"
    assert [gap.subject for gap in other.gaps] == ["eviction rates of spot machines"]
    assert harvest.offers == tuple(replace(o, interruption_band=None, band_as_of=None) for o in healthy.offers)
    assert harvest.covered == healthy.covered


def test_an_eviction_rate_that_passes_late_is_still_had(healthy: FetchResult) -> None:
    with opened(fault(GRAPH, "error503", times=1)) as azure:
        assert azure.fetch() == healthy


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("odd_rate", [("eastus standard_nc12s_v3 spot", "an eviction rate that is not known")]),
        ("two_rates", [("eastus standard_nc12s_v3 spot", "two eviction rates for the same machine")]),
        (
            "odd_row",
            [
                ("eastus", "an eviction rate without a machine type or a region"),
                ("eastus", "not a row of an eviction rate"),
            ],
        ),
    ],
)
def test_a_rate_that_cannot_be_used_is_named_and_the_rest_stays(
    kind: str, rows: list[tuple[str, str]], healthy: FetchResult
) -> None:
    with opened(fault(GRAPH, kind), regions=("eastus",)) as azure:
        harvest = azure.fetch()
    assert sorted((d.row, d.why) for d in harvest.dropped if d not in healthy.dropped) == rows
    changed = {new.instance_type for old, new in zip(healthy.offers, harvest.offers, strict=True) if old != new}
    assert changed == (set() if kind == "odd_row" else {"Standard_NC12s_v3"})
    assert {o.interruption_band for o in harvest.offers if o.instance_type in changed} <= {None}


def test_a_token_that_expires_midway_costs_the_regions_after_it(healthy: FetchResult) -> None:
    with opened(fault(SKUS, "expired_token", after=3)) as azure:
        assert azure.fetch() == healthy
        later = azure.fetch("swedencentral")
    assert {o.zone for o in later.offers} == {None}
    assert [gap.error.code for gap in later.gaps] == ["ExpiredAuthenticationToken"]
    assert "az login" in later.gaps[0].error.remedy


def test_a_missing_permission_is_named() -> None:
    with opened(fault(SKUS, "forbidden"), fault("usages/read", "forbidden")) as azure:
        (gap,) = azure.fetch().gaps
        checks = {check.permission: check.error for check in azure.provider.diagnose().checks}
        allowed = azure.provider.allowances(("eastus",))
    assert isinstance(gap.error, PermissionDeniedError)
    assert gap.error.permission == "Microsoft.Compute/skus/read"
    assert {permission for permission, error in checks.items() if error} == {
        "Microsoft.Compute/skus/read",
        "Microsoft.Compute/locations/usages/read",
    }
    assert {g.subject for g in allowed.gaps} == {ZONES, "quotas of eastus"}
    assert allowed.held, "what is permitted is still there"


def test_a_region_that_is_off_is_not_offered() -> None:
    with opened(fault("eastus", "region_off")) as azure:
        with pytest.raises(RegionOffError, match="LocationNotAvailableForResourceType"):
            azure.provider.fetch(EASTUS, None)
        assert azure.fetch("swedencentral").offers


@pytest.mark.parametrize(
    ("kind", "why", "seen_whole"),
    [
        ("price_zero", "its price is not above 0", False),
        ("currency", "not in US dollars", False),
        ("duplicate", "two prices for the same machine", False),
        ("future", "not yet in force", True),
    ],
)
def test_a_bad_price_is_left_out_and_named(kind: str, why: str, healthy: FetchResult, *, seen_whole: bool) -> None:
    with opened(fault("eastus", kind)) as azure:
        harvest = azure.fetch()
    bad = {o.key for o in healthy.offers if o.instance_type == H100 and o.market is Market.ON_DEMAND}
    assert {o.key for o in healthy.offers} - {o.key for o in harvest.offers} == bad
    assert set(harvest.offers) < set(healthy.offers)
    assert [d.row for d in harvest.dropped if d.why == why] == [f"eastus {H100} on_demand"]
    assert (("eastus", Market.ON_DEMAND) in harvest.covered) == seen_whole
    assert ("eastus", Market.SPOT) in harvest.covered


def test_a_row_that_is_no_row_leaves_the_rest(healthy: FetchResult) -> None:
    with opened(fault(PRICES, "odd_row")) as azure:
        harvest = azure.fetch()
    assert harvest.offers == healthy.offers
    assert [d.why for d in harvest.dropped if d not in healthy.dropped] == ["not a price row"]
    assert harvest.covered == frozenset()


def test_an_unknown_new_machine_is_named(healthy: FetchResult) -> None:
    with opened(fault("eastus", "new_type")) as azure:
        harvest = azure.fetch()
    assert (harvest.offers, harvest.machines, harvest.covered) == (healthy.offers, healthy.machines, healthy.covered)
    new = [d for d in harvest.dropped if d not in healthy.dropped]
    assert [(d.row, d.why) for d in new] == [
        ("eastus Standard_ND72isr_X900_v9 (unknown) on_demand", "its accelerator is not in the price book")
    ]


def test_a_clock_that_is_wrong_is_told(healthy: FetchResult) -> None:
    with opened(fault("", "clock", seconds=600)) as azure:
        harvest = azure.fetch()
        ahead = azure.provider.diagnose().clock_ahead
    assert harvest.offers == healthy.offers
    assert ahead is not None
    assert abs(ahead + timedelta(minutes=10)) < timedelta(seconds=30)


def test_a_listing_of_regions_that_fails_is_a_gap() -> None:
    with opened(fault("subscriptions/locations/read", "forbidden")) as azure:
        assert len(azure.provider.scopes()) > 40
        assert [gap.subject for gap in azure.fetch().gaps] == ["regions newer than the price book"]


def test_no_network_is_told_at_once() -> None:
    nowhere = f"http://127.0.0.1:{closed_port()}"
    begin = time.monotonic()
    with opened(endpoints={"prices": nowhere, "management": nowhere}) as azure:
        for _ in range(50):
            with pytest.raises(NotReachedError):
                azure.fetch()
        diagnosis = azure.provider.diagnose()
        allowed = azure.provider.allowances(("eastus",))
        assert azure.provider.scopes()
    assert in_time(begin, 5)
    assert all(isinstance(check.error, NotReachedError) for check in diagnosis.checks)
    assert (diagnosis.clock_ahead, diagnosis.latency) == (None, None)
    assert "does not answer" in diagnosis.sources[0]
    assert {type(gap.error) for gap in allowed.gaps} == {NotReachedError}
    assert (allowed.quotas, allowed.held) == ((), ())
