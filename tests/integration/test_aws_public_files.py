"""AWS without an account: the public price list and the Spot Advisor over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest
import requests

from pricing.book_file import embedded_book
from pricing.money import UsdPerHour
from pricing.places import Market
from providers.errors import (
    CredentialsError,
    NotForSaleError,
    NotReachedError,
    ProviderError,
    ThrottledError,
    TransientError,
    UnreadableError,
)
from providers.protocol import FetchResult, GangQuery, Scope
from tests.support.aws_service import make_app
from tests.support.aws_service_pages import BANDS
from tests.support.aws_service_session import NOW, NOW_TEXT, nobody, provider, settings
from tests.support.aws_service_world import World, advice, decimal
from tests.support.service import closed_port, in_thread

REGION = "eu-west-1"
SCOPE = Scope("aws", REGION)
WORLD = World((REGION,), (), NOW, 0, 30.0)


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody(monkeypatch)


def _app(**options: Any) -> WSGIApplication:
    return make_app(**{"regions": [REGION], "now": NOW_TEXT, "history_rows": 0, **options})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with in_thread(_app()) as address:
        yield address


@pytest.fixture
def whole(url: str) -> FetchResult:
    return provider(url).fetch(SCOPE, None)


def test_scopes_are_the_regions_of_the_price_list(url: str) -> None:
    assert provider(url).scopes() == [SCOPE]


def test_list_prices_are_exact_and_dated_by_the_list(whole: FetchResult) -> None:
    listed = {offer.instance_type: offer for offer in whole.offers if offer.market is Market.ON_DEMAND}
    book = embedded_book()
    known = {name for name, _ in WORLD.sold_with_gpus(REGION) if book.machine("aws", name) is not None}
    assert listed.keys() == known
    assert len(known) > 10
    for name, offer in listed.items():
        assert offer.usd_per_hour == UsdPerHour.parse(decimal(WORLD.list_price(REGION, name), 100_000, 10))
        assert (offer.zone, offer.as_of, offer.weak) == (None, NOW.date() - timedelta(days=1), "")


def test_spot_is_the_list_price_less_the_advised_saving_and_weak(whole: FetchResult) -> None:
    listed = {o.instance_type: o.usd_per_hour for o in whole.offers if o.market is Market.ON_DEMAND}
    spot = {o.instance_type: o for o in whole.offers if o.market is Market.SPOT}
    assert spot.keys() == listed.keys()
    for name, offer in spot.items():
        advised = advice(REGION, name)
        assert offer.usd_per_hour.nanos * 100 == pytest.approx(listed[name].nanos * (100 - advised["s"]), abs=50)
        assert offer.interruption_band == BANDS[advised["r"]]
        assert offer.as_of == NOW.date() - timedelta(days=2)
        assert offer.band_as_of == NOW.date() - timedelta(days=2)
        assert "savings" in offer.weak


def test_what_credentials_would_add_is_said(whole: FetchResult) -> None:
    (gap,) = whole.gaps
    assert isinstance(gap.error, CredentialsError)
    assert "history" in gap.would_add
    assert whole.covered == {(REGION, Market.ON_DEMAND), (REGION, Market.SPOT)}
    assert not whole.points


def test_what_needs_an_account_is_empty_or_a_gap(url: str) -> None:
    asked = provider(url)
    assert asked.stock([GangQuery("p5.48xlarge", 2, Market.SPOT)]) == ()
    allowances = asked.allowances(())
    assert (allowances.quotas, allowances.held, len(allowances.gaps)) == ((), (), 1)


def test_an_account_that_the_settings_leave_alone_is_not_used(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    before = requests.get(f"{url}/_calls", timeout=5).json()
    harvest = provider(url, credentials=False).fetch(SCOPE, None)
    after = requests.get(f"{url}/_calls", timeout=5).json()
    assert {name for name in after if after[name] != before.get(name, 0)} == {"index.csv", "spot-advisor-data.json"}
    assert "account not used" in str(harvest.gaps[0].error)


@pytest.mark.parametrize("kind", ["throttle", "error500", "half_page", "drop_connection"])
def test_a_list_that_fails_once_is_read_again_from_the_start(kind: str, whole: FetchResult) -> None:
    faults = [{"match": "index.csv", "kind": kind, "times": 1}]
    with in_thread(_app(faults=faults)) as address:
        assert provider(address).fetch(SCOPE, None).offers == whole.offers


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttle", ThrottledError),
        ("error500", TransientError),
        ("half_page", UnreadableError),
        ("drop_connection", UnreadableError),
        ("bad_json", UnreadableError),
    ],
)
def test_a_list_that_fails_for_good_is_an_error(kind: str, error: type[ProviderError]) -> None:
    with in_thread(_app(faults=[{"match": "index.csv", "kind": kind}])) as address, pytest.raises(error):
        provider(address, attempts=1, limit_s=2.0).fetch(SCOPE, None)


def test_without_the_advisor_there_are_list_prices(whole: FetchResult) -> None:
    with in_thread(_app(faults=[{"match": "spot-advisor", "kind": "error500"}])) as address:
        harvest = provider(address, attempts=1).fetch(SCOPE, None)
    assert {offer.market for offer in harvest.offers} == {Market.ON_DEMAND}
    assert harvest.covered == {(REGION, Market.ON_DEMAND)}
    assert [gap.subject for gap in harvest.gaps] == ["live prices", "estimated spot prices"]


@pytest.mark.parametrize("kind", ["price_zero", "currency", "duplicate"])
def test_a_line_that_cannot_be_true_is_named_and_the_rest_stays(kind: str, whole: FetchResult) -> None:
    with in_thread(_app(faults=[{"match": "index.csv", "kind": kind}])) as address:
        harvest = provider(address).fetch(SCOPE, None)
    assert len(set(harvest.dropped) - set(whole.dropped)) == 1
    assert set(harvest.offers) < set(whole.offers)
    assert not harvest.covered


def test_a_region_without_a_list_is_not_for_sale(url: str) -> None:
    with pytest.raises(NotForSaleError):
        provider(url).fetch(Scope("aws", "mars-north-1"), None)


def test_with_no_network_it_is_said_at_once() -> None:
    with pytest.raises(NotReachedError):
        provider(f"http://127.0.0.1:{closed_port()}").scopes()


def test_a_compressed_list_is_read_as_well(url: str, whole: FetchResult) -> None:
    content = requests.get(f"{url}/offers/v1.0/aws/AmazonEC2/current/{REGION}/index.csv", timeout=5).content

    def compressed(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        assert "gzip" in environ["HTTP_ACCEPT_ENCODING"]
        body = gzip.compress(content)
        start_response("200 -", [("Content-Encoding", "gzip"), ("Content-Length", str(len(body)))])
        return [body]

    with in_thread(compressed) as address:
        endpoints = {**settings(url).endpoints, "price_list": address}
        assert provider(url, endpoints=endpoints).fetch(SCOPE, None).offers == whole.offers
