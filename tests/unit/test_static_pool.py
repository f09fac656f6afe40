"""The static pool: what an hour amounts to, what the file may say, what is offered."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # publishes no types
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pricing.book_file import embedded_book
from pricing.money import UsdPerHour
from pricing.places import Market
from pricing.problems import InvalidInputError
from providers.caller import Caller
from providers.errors import ProviderError
from providers.protocol import GangQuery
from providers.sandbox.script import Script
from providers.session import Session, Settings
from providers.static.pool import Amortised, Pool
from providers.static.provider import StaticProvider
from router.config.document_file import read_single_document
from router.config.yamlfile import read_documents
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
EXAMPLE = ROOT / "examples" / "pool" / "pool.yaml"
POOL: dict[str, Any] = {
    "sites": [{"name": "hall", "country": "DE", "continent": "EU", "geo": "EU", "residency_group": "EU"}],
    "machines": [{"type": "box", "accelerator": "H100", "accelerators": 8}],
    "hosts": [{"name": "all", "site": "hall", "machine": "box", "count": 3, "usd_per_hour": 12.5}],
}


def provider(document: object, now: datetime = NOW, **settings: Any) -> StaticProvider:
    session = Session(Settings(document=document, **settings), embedded_book(), now, Caller("static", 10.0))
    return StaticProvider("static", session)


def pool(**changed: Any) -> Pool:
    return Pool.model_validate({**POOL, **changed})


def hosts(**changed: Any) -> dict[str, Any]:
    return {**POOL["hosts"][0], **changed}


MONEY = st.decimals(0, 10**6, places=2)
EXACT = st.decimals("0.01", 100, places=2)


@given(MONEY, EXACT, st.integers(0, 100), EXACT, EXACT, MONEY, MONEY)
def test_an_hour_amounts_to_what_the_formula_says(
    purchase: Decimal, years: Decimal, percent: int, kw: Decimal, pue: Decimal, kwh: Decimal, hosting: Decimal
) -> None:
    """Worked out a second time, with decimals of 60 digits instead of fractions."""
    residual = (purchase * percent / 100).quantize(Decimal("0.01"), "ROUND_DOWN")
    cost = Amortised(
        purchase_usd=purchase,
        years=float(years),  # type: ignore[arg-type]
        residual_usd=residual,
        power_kw=float(kw),  # type: ignore[arg-type]
        pue=float(pue),  # type: ignore[arg-type]
        usd_per_kwh=kwh,
        hosting_usd_per_month=hosting,
    )
    with localcontext() as context:
        context.prec = 60
        hour = (purchase - residual) / (years * 8766) + kw * pue * kwh + hosting / (Decimal(8766) / 12)
        nanos = (hour * 10**9).quantize(Decimal(1), "ROUND_HALF_EVEN")
    assert cost.per_hour() == UsdPerHour(int(nanos))


def test_the_example_is_as_its_comments_say() -> None:
    prices = {group.name: str(group.price()) for group in read_single_document(EXAMPLE, Pool).hosts}
    assert prices == {"dgx": "11.604230983", "lab": "3.60"}
    assert prices["dgx"] in EXAMPLE.read_text(encoding="utf-8")


def test_hosts_are_offers_without_their_addresses() -> None:
    one = provider(pool(hosts=[hosts(addresses=["10.0.0.1", "10.0.0.2", "10.0.0.3"])], as_of="2026-11-01"))
    (scope,) = one.scopes()
    found = one.fetch(scope, NOW - timedelta(days=30))
    (offer,) = found.offers
    assert (offer.key, str(offer.usd_per_hour), offer.machines_cap, offer.as_of) == (
        ("static", "hall", "", "box", "on_demand"),
        "12.50",
        3,
        date(2026, 11, 1),
    )
    assert offer.provisionable
    assert found.covered == {("hall", Market.ON_DEMAND), ("hall", Market.SPOT)}
    assert [region.residency_group for region in found.regions] == ["EU"]
    assert [(m.instance_type, m.accelerator_memory_gib, m.inter_node_gbps) for m in found.machines] == [
        ("box", 80, None)
    ]
    assert [point.at.date() for point in found.points] == [date(2026, 11, 1)]
    assert "10.0.0" not in repr(found)


def test_what_the_book_has_word_for_word_is_not_given_again() -> None:
    found = provider(pool()).fetch(provider(pool()).scopes()[0], None)
    book = embedded_book()
    knowing = type(book)(
        book.as_of, (), (*book.machines, *found.machines), book.accelerators, (*book.regions, *found.regions), (), ()
    )
    session = Session(Settings(document=pool()), knowing, NOW, Caller("static", 10.0))
    again = StaticProvider("static", session).fetch(provider(pool()).scopes()[0], None)
    assert (again.machines, again.regions) == ((), ())
    assert again.offers == found.offers
    faster = pool(machines=[{**POOL["machines"][0], "inter_node_gbps": 800}])
    corrected = StaticProvider("static", Session(Settings(document=faster), knowing, NOW, Caller("static", 10.0)))
    assert [m.inter_node_gbps for m in corrected.fetch(corrected.scopes()[0], None).machines] == [800]


def test_an_accelerator_that_no_book_knows_is_named() -> None:
    one = provider(pool(machines=[{**POOL["machines"][0], "accelerator": "H900"}]))
    found = one.fetch(one.scopes()[0], None)
    assert found.offers == ()
    assert [(d.row, d.why) for d in found.dropped] == [("all (H900)", "the accelerator is not in the book")]


def test_stock_is_the_number_of_hosts() -> None:
    wanted = [
        GangQuery("box", 2, Market.ON_DEMAND),
        GangQuery("box", 2, Market.SPOT),
        GangQuery("other", 1, Market.ON_DEMAND),
    ]
    (hint,) = provider(pool()).stock(wanted)
    assert (hint.region, hint.machines, hint.market) == ("hall", 3, Market.ON_DEMAND)
    assert provider(pool()).stock([GangQuery("box", 1, Market.ON_DEMAND, ("elsewhere",))]) == ()


def test_without_a_file_and_with_one_of_tomorrow_it_says_so() -> None:
    for document, what in ((None, "there is no pool file"), (pool(as_of="2026-11-22"), "dated 2026-11-22")):
        one = provider(document)
        with pytest.raises(ProviderError, match=what):
            one.fetch(one.scopes()[0], None)
        assert isinstance(one.diagnose().checks[0].error, ProviderError)
    with pytest.raises(ProviderError, match="no site called moon"):
        provider(pool(), regions=("moon",)).scopes()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"count": 0}, "hosts[0].count: must be at least 1, not 0"),
        ({"count": "four"}, "hosts[0].count: is not a number"),
        ({"site": "moon"}, "hosts[0].site: there is no site 'moon'; there are hall"),
        ({"machine": "bax"}, "hosts[0].machine: there is no machine 'bax'; there are box"),
        ({"usd_per_hour": 0}, "hosts[0]: the price comes to 0"),
        ({"usd_per_hour": -1}, "hosts[0].usd_per_hour: is no amount of US dollars"),
        ({"usd_per_hour": "EUR 3"}, "hosts[0].usd_per_hour: is no amount of US dollars"),
        ({"usd_per_hour": "1.0000000001"}, "hosts[0]: 1.0000000001 has more than nine decimals"),
        ({"usd_per_hour": None}, "hosts[0]: needs either usd_per_hour or amortised"),
        ({"addresses": ["10.0.0.1"]}, "hosts[0]: there are 3 hosts and 1 addresses"),
        ({"addresses": ["a", "b", "a"]}, "hosts[0].addresses[2]: the address a is there twice"),
        ({"usd_per_hours": 3}, "hosts[0].usd_per_hours: hosts[0] has no such field (did you mean usd_per_hour?)"),
        (
            {"amortised": {"purchase_usd": 1, "years": 1, "power_kw": 1, "usd_per_kwh": 1}},
            "hosts[0]: needs either usd_per_hour or amortised",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(yaml.safe_dump({**POOL, "hosts": [hosts(**changed)]}), encoding="utf-8")
    with pytest.raises(InvalidInputError) as met:
        read_single_document(path, Pool)
    (found,) = met.value.problems
    assert found.where.startswith(f"{path}:")
    text = str(found).removeprefix(f"{found.where}: ")
    assert text.startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a pool file is empty"),
        ("- a\n", "a pool file is a mapping of fields"),
        ("sites: []\n---\nsites: []\n", "a pool file is one document; here a second one begins"),
        ("sites: []\nmachines: []\nhosts: []\n", "sites: is empty"),
        ("colour: red\n", "colour: is no field of a pool file"),
    ],
)
def test_what_is_no_pool_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError) as met:
        read_single_document(path, Pool)
    assert any(problem in str(found) for found in met.value.problems)


def test_two_groups_of_one_kind_at_one_site_need_two_names() -> None:
    with pytest.raises(ValueError, match="more and all are both box at hall"):
        pool(hosts=[hosts(), hosts(name="more", usd_per_hour=9)])


def test_a_host_that_sells_dearer_than_it_was_bought_is_a_slip() -> None:
    with pytest.raises(ValueError, match="residual is above"):
        Amortised(purchase_usd=1, years=1, residual_usd=2, power_kw=1, usd_per_kwh=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "name"), [(Pool, "pool.yaml"), (Script, "sandbox.yaml")])
def test_an_editors_schema_accepts_what_the_model_does(model: type[Pool] | type[Script], name: str) -> None:
    check = jsonschema.Draft202012Validator(model.model_json_schema())
    (document,) = read_documents(EXAMPLE.with_name(name))
    fields = document.plain()
    assert list(check.iter_errors(fields)) == []
    assert list(check.iter_errors({**fields, "machines": []}))
    assert list(check.iter_errors({**fields, "colour": "red"}))
