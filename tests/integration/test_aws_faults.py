"""What goes wrong at AWS: nothing is lost, nothing is invented, and each thing is named."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import requests

from pricing.places import Market
from providers.aws.parse.prices import NOT_ABOVE_ZERO, NOT_USD, TWO_PRICES
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
from tests.support.aws_service import make_app
from tests.support.aws_service_session import CANARY, NOW, NOW_TEXT, provider, somebody
from tests.support.service import closed_port, in_thread

REGION = "eu-lab-1"
SCOPE = Scope("aws", REGION)
SINCE = NOW - timedelta(days=40)
BOTH = {(REGION, Market.SPOT), (REGION, Market.ON_DEMAND)}


@pytest.fixture(autouse=True)
def _account(monkeypatch: pytest.MonkeyPatch) -> None:
    somebody(monkeypatch)


@contextmanager
def _service(*faults: dict[str, Any], rows: int = 2_500) -> Iterator[str]:
    with in_thread(make_app(regions=[REGION], now=NOW_TEXT, history_rows=rows, faults=faults)) as url:
        yield url


def _fetch(*faults: dict[str, Any], attempts: int = 3) -> FetchResult:
    with _service(*faults) as url:
        return provider(url, attempts=attempts).fetch(SCOPE, SINCE)


@pytest.fixture(scope="module")
def whole() -> FetchResult:
    with pytest.MonkeyPatch.context() as patch:
        somebody(patch)
        return _fetch()


def _told(harvest: FetchResult) -> dict[str, type[ProviderError]]:
    return {gap.subject: type(gap.error) for gap in harvest.gaps}


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "throttle", "retry_after": 0.2},
        {"kind": "throttle"},
        {"kind": "error500"},
        {"kind": "half_page"},
        {"kind": "bad_json"},
        {"kind": "drop_connection"},
    ],
    ids=lambda fault: "-".join(map(str, fault.values())),
)
@pytest.mark.parametrize("action", ["DescribeSpotPriceHistory", "GetProducts"])
def test_what_passes_is_tried_again_and_nothing_is_missing(
    fault: dict[str, Any], action: str, whole: FetchResult
) -> None:
    assert _fetch({"match": action, "after": 0, "times": 1, **fault}) == whole


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttle", ThrottledError),
        ("error500", TransientError),
        ("half_page", UnreadableError),
        ("bad_json", UnreadableError),
        ("drop_connection", UnreadableError),
        ("forbidden", PermissionDeniedError),
        ("expired_token", CredentialsError),
    ],
)
def test_a_call_that_fails_for_good_costs_what_it_would_have_brought(
    kind: str, error: type[ProviderError], whole: FetchResult
) -> None:
    harvest = _fetch({"match": "GetProducts", "kind": kind}, attempts=1)
    assert _told(harvest) == {"on-demand prices": error}
    assert {offer.key for offer in harvest.offers} == {o.key for o in whole.offers if o.market is Market.SPOT}
    assert harvest.covered == {(REGION, Market.SPOT)}
    assert harvest.points == whole.points


def test_a_history_that_breaks_off_loses_history_only(whole: FetchResult) -> None:
    harvest = _fetch({"match": "DescribeSpotPriceHistory", "kind": "half_page", "after": 2}, attempts=2)
    assert _told(harvest) == {"spot price history": UnreadableError}
    assert harvest.offers == whole.offers
    assert harvest.covered == BOTH
    assert 1000 <= len(harvest.points) < len(whole.points)
    assert set(harvest.points) <= set(whole.points)


def test_a_whole_history_stands_in_for_current_prices(whole: FetchResult) -> None:
    harvest = _fetch({"match": "DescribeSpotPriceHistory", "kind": "error500", "times": 1}, attempts=1)
    assert _told(harvest) == {"spot prices": TransientError}
    assert harvest.offers == whole.offers
    assert harvest.covered == {(REGION, Market.ON_DEMAND)}


def test_a_token_that_expires_midway_leaves_what_was_there(whole: FetchResult) -> None:
    harvest = _fetch({"match": "DescribeSpotPriceHistory", "kind": "expired_token", "after": 1})
    assert _told(harvest) == dict.fromkeys(("spot price history", "on-demand prices"), CredentialsError)
    assert harvest.offers == tuple(offer for offer in whole.offers if offer.market is Market.SPOT)
    assert harvest.covered == {(REGION, Market.SPOT)}
    assert all("renew the credentials" in gap.error.remedy for gap in harvest.gaps)


def test_a_band_is_of_the_day_its_file_was_written(whole: FetchResult) -> None:
    banded = [offer for offer in whole.offers if offer.interruption_band]
    assert banded
    assert {offer.market for offer in banded} == {Market.SPOT}
    assert {offer.band_as_of for offer in banded} == {NOW.date() - timedelta(days=2)}
    assert {offer.band_as_of for offer in whole.offers if not offer.interruption_band} == {None}


def test_a_band_without_a_date_is_of_the_day_of_fetching(whole: FetchResult) -> None:
    harvest = _fetch({"match": "spot-advisor", "kind": "undated"})
    assert {offer.band_as_of for offer in harvest.offers if offer.interruption_band} == {NOW.date()}
    assert [(o.key, o.interruption_band) for o in harvest.offers] == [
        (o.key, o.interruption_band) for o in whole.offers
    ]


@pytest.mark.parametrize(("kind", "error"), [("error500", TransientError), ("bad_json", UnreadableError)])
def test_without_the_advisor_offers_have_no_band(kind: str, error: type[ProviderError], whole: FetchResult) -> None:
    harvest = _fetch({"match": "spot-advisor", "kind": kind}, attempts=1)
    assert _told(harvest) == {"interruption bands": error}
    assert harvest.covered == BOTH
    assert {offer.key for offer in harvest.offers} == {offer.key for offer in whole.offers}
    assert {(offer.interruption_band, offer.band_as_of) for offer in harvest.offers} == {(None, None)}


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("expired_token", CredentialsError),
        ("forbidden", PermissionDeniedError),
        ("region_off", RegionOffError),
        ("throttle", ThrottledError),
    ],
)
def test_where_nothing_can_be_had_the_error_is_raised(kind: str, error: type[ProviderError]) -> None:
    faults = [{"match": word, "kind": kind} for word in (f" {REGION}", "GetProducts")]
    with _service(*faults) as url, pytest.raises(error):
        provider(url, attempts=1).fetch(SCOPE, SINCE)


def test_without_the_permission_for_spot_prices_they_are_estimated(whole: FetchResult) -> None:
    harvest = _fetch({"match": "DescribeSpotPriceHistory", "kind": "forbidden"})
    (gap,) = (gap for gap in harvest.gaps if gap.subject == "spot prices")
    assert isinstance(gap.error, PermissionDeniedError)
    assert gap.error.permission == "ec2:DescribeSpotPriceHistory"
    spot = [offer for offer in harvest.offers if offer.market is Market.SPOT]
    assert spot
    assert all(offer.weak and offer.zone is None for offer in spot)
    assert harvest.covered == {(REGION, Market.ON_DEMAND)}


def test_without_offerings_prices_are_by_region(whole: FetchResult) -> None:
    harvest = _fetch({"match": "DescribeInstanceTypeOfferings", "kind": "forbidden"})
    assert {offer.zone for offer in harvest.offers if offer.market is Market.ON_DEMAND} == {None}
    assert {o for o in harvest.offers if o.market is Market.SPOT} <= set(whole.offers)
    assert not harvest.covered


@pytest.mark.parametrize(
    ("kind", "action", "why", "market"),
    [
        ("price_zero", "DescribeSpotPriceHistory", NOT_ABOVE_ZERO, Market.SPOT),
        ("duplicate", "DescribeSpotPriceHistory", TWO_PRICES, Market.SPOT),
        ("price_zero", "GetProducts", NOT_ABOVE_ZERO, Market.ON_DEMAND),
        ("duplicate", "GetProducts", TWO_PRICES, Market.ON_DEMAND),
        ("currency", "GetProducts", NOT_USD, Market.ON_DEMAND),
    ],
)
def test_a_price_that_cannot_be_true_is_named_and_the_rest_stays(
    kind: str, action: str, why: str, market: Market, whole: FetchResult
) -> None:
    harvest = _fetch({"match": action, "kind": kind})
    assert [drop.why for drop in harvest.dropped if drop not in whole.dropped] == [why]
    missing = {offer.key for offer in whole.offers} - {offer.key for offer in harvest.offers}
    assert {key[4] for key in missing} == {market.value}
    assert len({key[3] for key in missing}) == 1
    assert set(harvest.offers) <= set(whole.offers)
    # What is missing is not known to be gone: the book keeps its older row.
    assert harvest.covered == BOTH - {(REGION, market)}


def test_a_wait_that_is_asked_for_is_kept() -> None:
    with _service({"match": "DescribeRegions", "kind": "throttle", "times": 1, "retry_after": 1}) as url:
        began = time.monotonic()
        scopes = provider(url).scopes()
        assert time.monotonic() - began >= 1
        calls = requests.get(f"{url}/_calls", timeout=5).json()
    assert list(scopes) == [SCOPE]
    assert calls["DescribeRegions"] == 2


def test_no_error_repeats_what_the_cloud_repeats_of_a_secret() -> None:
    for kind in ("forbidden", "expired_token", "throttle", "error500", "region_off"):
        with _service({"match": "", "kind": kind}) as url:
            echoed = requests.get(url, headers={"X-Amz-Security-Token": CANARY}, timeout=5)
            assert CANARY in echoed.text
            with pytest.raises(ProviderError) as caught:
                provider(url, attempts=1, limit_s=1.0).scopes()
            told = f"{caught.value} {caught.value!r} {vars(caught.value)}"
            assert CANARY not in told
            assert caught.value.__cause__ is None


def test_past_the_time_limit_nothing_more_is_asked() -> None:
    with _service() as url:
        with pytest.raises(TransientError, match="time limit"):
            provider(url, limit_s=0.0).scopes()
        assert requests.get(f"{url}/_calls", timeout=5).json() == {}


def test_where_nothing_listens_it_is_said_at_once() -> None:
    with pytest.raises(NotReachedError):
        provider(f"http://127.0.0.1:{closed_port()}").scopes()
