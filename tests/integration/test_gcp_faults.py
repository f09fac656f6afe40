"""What goes wrong at Google Cloud, through the real SDKs: nothing lost, nothing invented, each named."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

import pytest

from pricing.places import Market
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
from providers.gcp.signals import NO_SHARE
from providers.protocol import FetchResult, GangQuery, Scope
from tests.support.gcp_service import provider_at, serving
from tests.support.gcp_service_data import preempted_share

US = Scope("gcp", "us-central1")
SHARES = "shares of preempted Spot machines"
PAGED: dict[str, Any] = {"page_size": 10, "sku_page_size": 100}


@cache
def healthy() -> FetchResult:
    """The answer of a service without faults; the same for each test."""
    with serving(**PAGED) as (provider, _):
        return provider.fetch(US, None)


@pytest.mark.parametrize("action", ["regions.list", "machineTypes.list", "services.skus.list"])
@pytest.mark.parametrize("kind", ["throttle", "error500", "half_page", "bad_json", "drop_connection"])
def test_what_passes_is_tried_again_and_gives_the_same(action: str, kind: str) -> None:
    fault = {"match": action, "kind": kind, "times": 1}
    with serving(fault, **PAGED) as (provider, _):
        harvest = provider.fetch(US, None)
        assert sum(provider._session.caller.retries.values()) == 1
    assert harvest == healthy()


def test_one_lost_page_is_asked_for_again_alone() -> None:
    fault = {"match": "services.skus.list", "kind": "half_page", "after": 2, "times": 1}
    with serving(fault, **PAGED) as (provider, app):
        provider.fetch(US, None)
        assert app.calls["services.skus.list"] == 4


def test_retry_after_is_waited_for() -> None:
    with serving({"match": "regions.list", "kind": "throttle", "times": 1, "retry_after": 0.0}) as (provider, _):
        began = time.monotonic()
        provider.scopes()
        quick = time.monotonic() - began
    with serving({"match": "regions.list", "kind": "throttle", "times": 1, "retry_after": 2.0}) as (provider, _):
        began = time.monotonic()
        provider.scopes()
        assert time.monotonic() - began >= 2.0 > quick


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttle", ThrottledError),
        ("error500", TransientError),
        ("half_page", UnreadableError),
        ("bad_json", UnreadableError),
        ("expired_token", CredentialsError),
        ("forbidden", PermissionDeniedError),
        ("api_off", PermissionDeniedError),
    ],
)
@pytest.mark.parametrize("action", ["regions.list", "machineTypes.list", "services.skus.list"])
def test_what_stays_is_raised_and_named(action: str, kind: str, error: type[ProviderError]) -> None:
    with serving({"match": action, "kind": kind}, attempts=1, **PAGED) as (provider, _):
        with pytest.raises(ProviderError) as raised:
            provider.fetch(US, None)
        assert type(raised.value) is error
        assert action in str(raised.value)
        assert raised.value.__cause__ is None


def test_a_catalogue_cut_off_for_good_gives_no_prices_at_all() -> None:
    """Half a catalogue would look like machines that are not for sale."""
    fault = {"match": "services.skus.list", "kind": "half_page", "after": 1}
    with serving(fault, attempts=2, **PAGED) as (provider, _), pytest.raises(UnreadableError):
        provider.fetch(US, None)


def test_a_catalogue_that_cannot_be_had_is_not_asked_for_by_every_region() -> None:
    fault = {"match": "services.skus.list", "kind": "forbidden"}
    with serving(fault, regions=["us-central1", "us-east1", "us-west1"]) as (provider, app):
        for scope in provider.scopes():
            with pytest.raises(PermissionDeniedError):
                provider.fetch(scope, None)
        assert app.calls["services.skus.list"] == 1


def test_a_token_that_expires_midway_costs_what_came_after() -> None:
    fault = {"match": "machineTypes.list", "kind": "expired_token", "after": 4}
    with serving(fault, regions=["us-central1", "us-east1", "us-west1"]) as (provider, _):
        assert provider.fetch(US, None).covered
        partly = provider.fetch(Scope("gcp", "us-east1"), None)
        assert {o.zone for o in partly.offers} == {"us-east1-a"}
        assert partly.covered == frozenset()
        assert [(g.subject, type(g.error)) for g in partly.gaps] == [
            ("machine types of us-east1-b", CredentialsError),
            ("machine types of us-east1-c", CredentialsError),
        ]
        with pytest.raises(CredentialsError):
            provider.fetch(Scope("gcp", "us-west1"), None)


def test_a_region_that_is_off_costs_itself_only() -> None:
    fault = {"match": "zones/us-east1", "kind": "region_off"}
    with serving(fault, regions=["us-central1", "us-east1"]) as (provider, _):
        assert provider.fetch(US, None).offers
        with pytest.raises(RegionOffError):
            provider.fetch(Scope("gcp", "us-east1"), None)


def test_a_service_gone_halfway_is_not_waited_for() -> None:
    with serving() as (provider, _):
        provider.scopes()
    with pytest.raises((NotReachedError, TransientError)):
        provider.fetch(US, None)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("price_zero", "the price of its GPU is not above 0"),
        ("currency", "the price of its GPU is not in USD"),
        ("duplicate", "two prices for its GPU in the region"),
    ],
)
def test_an_unusable_price_costs_its_machine_and_no_other(kind: str, why: str) -> None:
    with serving({"match": "Nvidia H100 80GB GPU running", "kind": kind}) as (provider, _):
        harvest = provider.fetch(US, None)
    lost = {"a3-highgpu-8g"}  # smaller ones are not sold on demand
    before = {o.key: o for o in healthy().offers}
    after = {o.key: o for o in harvest.offers}
    assert {key[3] for key in before.keys() - after.keys()} == lost
    assert {key[4] for key in before.keys() - after.keys()} == {"on_demand"}
    assert all(before[key] == offer for key, offer in after.items())
    assert ("us-central1/a3-highgpu-8g/on_demand", why) in {(d.row, d.why) for d in harvest.dropped}
    assert any(d.row.startswith("SKU ") and "H100" in d.row for d in harvest.dropped)
    # Older rows of that market are kept: it was not seen whole.
    assert harvest.covered == {("us-central1", Market.SPOT)}


def test_a_duplicate_that_agrees_changes_nothing() -> None:
    with serving({"match": "Nvidia H100 80GB GPU running", "kind": "duplicate", "more": 0}) as (provider, _):
        assert provider.fetch(US, None).offers == healthy().offers


def test_new_types() -> None:
    with serving({"match": "us-central1-a", "kind": "new_type"}) as (provider, _):
        harvest = provider.fetch(US, None)
    assert {o.zone for o in harvest.offers if o.instance_type == "a3-highgpu-16g"} == {"us-central1-a"}
    assert "a3-highgpu-16g" in {m.instance_type for m in harvest.machines}
    assert "us-central1-a/a9-highgpu-8g" in {d.row for d in harvest.dropped}


def test_history_that_may_not_be_read_is_a_gap_and_is_asked_for_once() -> None:
    fault = {"match": "advice.capacityHistory", "kind": "forbidden"}
    with serving(fault, regions=["us-central1", "us-east1"]) as (provider, app):
        for scope in provider.scopes():
            harvest = provider.fetch(scope, datetime.fromisoformat("2026-09-01T00:00:00+00:00"))
            assert harvest.offers
            assert harvest.covered
            assert [g.subject for g in harvest.gaps] == ["spot price history", SHARES]
        assert app.calls["advice.capacityHistory"] == 1


def test_history_of_one_type_that_is_refused_leaves_the_others() -> None:
    fault = {"match": "advice.capacityHistory", "kind": "invalid", "times": 1}
    since = datetime.fromisoformat("2026-09-01T00:00:00+00:00")
    with serving(fault) as (provider, _):
        harvest = provider.fetch(US, since)
        sold = {o.instance_type for o in harvest.offers if o.market is Market.SPOT}
        assert len({p.instance_type for p in harvest.points}) == len(sold) - 1
        assert [g.subject for g in harvest.gaps] == ["spot price history"]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("forbidden", PermissionDeniedError),
        ("api_off", PermissionDeniedError),
        ("expired_token", CredentialsError),
        ("error500", TransientError),
        ("throttle", ThrottledError),
        ("bad_json", UnreadableError),
    ],
)
def test_without_shares_offers_come_without_them(kind: str, error: type[ProviderError]) -> None:
    with serving({"match": "PREEMPTION", "kind": kind}, attempts=1) as (provider, app):
        harvest = provider.fetch(US, None)
        calls = app.calls["advice.capacityHistory"]
    (gap,) = harvest.gaps
    assert gap.subject == SHARES
    assert type(gap.error) is error
    assert harvest.offers == tuple(replace(offer, preempted_share=None) for offer in healthy().offers)
    assert harvest.covered == {("us-central1", Market.ON_DEMAND), ("us-central1", Market.SPOT)}
    if kind != "bad_json":
        assert calls == (3 if kind == "throttle" else 1), "the other places would fail as well"


def test_shares_that_may_not_be_read_are_asked_for_once() -> None:
    with serving({"match": "PREEMPTION", "kind": "forbidden"}, regions=["us-central1", "us-east1"]) as (provider, app):
        gaps = [gap.subject for scope in provider.scopes() for gap in provider.fetch(scope, None).gaps]
        assert gaps == [SHARES, SHARES]
        assert app.calls["advice.capacityHistory"] == 1


@pytest.mark.parametrize("kind", ["not_found", "region_off"])
def test_a_place_of_which_google_publishes_nothing_is_no_gap(kind: str) -> None:
    with serving({"match": "PREEMPTION", "kind": kind, "times": 1}) as (provider, _):
        harvest = provider.fetch(US, None)
    assert harvest.gaps == ()
    lost = [o.key for o, was in zip(harvest.offers, healthy().offers, strict=True) if o != was]
    assert len(lost) == 1


def test_a_share_that_passes_late_is_still_had() -> None:
    with serving({"match": "PREEMPTION", "kind": "error500", "times": 1}) as (provider, _):
        assert provider.fetch(US, None) == healthy()


def test_a_day_that_cannot_be_used_is_named_and_the_others_count() -> None:
    with serving({"match": "us-central1-a a3-highgpu-8g", "kind": "odd_share"}) as (provider, _):
        harvest = provider.fetch(US, None)
    place = ("gcp", "us-central1", "us-central1-a", "a3-highgpu-8g", "spot")
    before = {o.key: o for o in healthy().offers}
    changed = {o.key: o for o in harvest.offers if o != before[o.key]}
    assert changed.keys() == {place}
    # The first of 27 days is a tenth below the mean; without it the other 26 are a little above.
    mean = preempted_share("us-central1-a", "a3-highgpu-8g")
    assert changed[place].preempted_share == pytest.approx(mean + 0.1 / 26)
    assert ("us-central1-a/a3-highgpu-8g/spot", NO_SHARE) in {(d.row, d.why) for d in harvest.dropped}


def test_advice_that_may_not_be_asked_is_raised() -> None:
    gang = GangQuery("a3-highgpu-8g", 1, Market.SPOT)
    with serving({"match": "advice.capacity", "kind": "forbidden"}) as (provider, _):
        with pytest.raises(PermissionDeniedError) as raised:
            provider.stock([gang])
        assert raised.value.permission == "compute.advice.capacity"


def test_no_names_of_accelerators_is_a_gap() -> None:
    with serving({"match": "acceleratorTypes", "kind": "forbidden"}) as (provider, _):
        harvest = provider.fetch(US, None)
        assert harvest.offers == healthy().offers
        assert [g.subject for g in harvest.gaps] == ["accelerator types"]


@pytest.mark.parametrize(
    ("match", "subject"),
    [("reservations", "reservations"), ("projects.get", "the quota over all regions"), ("regions.list", "quotas")],
)
def test_allowances_are_told_as_far_as_they_are_known(match: str, subject: str) -> None:
    with serving({"match": match, "kind": "forbidden"}) as (provider, _):
        found = provider.allowances(("us-central1",))
        assert subject in [g.subject for g in found.gaps if isinstance(g.error, PermissionDeniedError)]
        assert found.quotas or found.held


def test_a_slow_answer_ends_at_the_read_time_limit() -> None:
    with serving(latency_s=1.0) as (provider, _):
        url = provider._session.settings.endpoints["compute"]
        slow = provider_at(url, attempts=1, read_timeout_s=0.2)
        with pytest.raises(TransientError, match=r"regions\.list"):
            slow.scopes()
