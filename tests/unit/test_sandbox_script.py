"""The sandbox plays its script as of a moment, fails as told, and remembers its calls."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.book_file import embedded_book
from pricing.places import Market
from pricing.problems import InvalidInputError
from providers.caller import Caller
from providers.errors import ProviderError, TransientError
from providers.protocol import GangQuery, QuotaUnit
from providers.sandbox.default_script import make_default_script
from providers.sandbox.provider import SandboxProvider, make
from providers.sandbox.script import KINDS, Call, Script
from providers.session import Session, Settings
from providers.user_files import parse_duration, parse_moment
from router.config.document_file import read_single_document
from tests.support.repository import ROOT

START = datetime(2026, 11, 21, tzinfo=UTC)
EXAMPLE = ROOT / "examples" / "pool" / "sandbox.yaml"
SCRIPT: dict[str, Any] = {
    "start": START,
    "regions": [
        {"name": "r", "country": "US", "continent": "NA", "geo": "NA", "residency_group": "US", "zones": ["a", "b"]},
        {"name": "q", "country": "SE", "continent": "EU", "geo": "EU", "residency_group": "EU"},
    ],
    "machines": [{"type": "box", "accelerator": "H100", "accelerators": 8}],
    "prices": [
        {
            "machine": "box",
            "region": "r",
            "zone": "a",
            "market": "spot",
            "steps": [{"at": "1h", "usd": 10}, {"at": "3h", "usd": 12.5}, {"at": "5h"}, {"at": "7h", "usd": 11}],
        },
        {"machine": "box", "region": "q", "steps": [{"at": "2026-11-20T00:00:00Z", "usd": 40}]},
    ],
    "stock": [
        {
            "machine": "box",
            "region": "r",
            "zone": "a",
            "market": "spot",
            "steps": [{"at": "2h", "machines": 4}, {"at": "4h", "machines": 0}],
        }
    ],
}


def sandbox(hours: float, *, attempts: int = 1, document: object = None, **changed: Any) -> SandboxProvider:
    script = document or Script.model_validate({**SCRIPT, **changed})
    now = START + timedelta(hours=hours)
    caller = Caller("sandbox", 30.0, attempts=attempts)
    return make("sandbox", Session(Settings(document=script), embedded_book(), now, caller))


def scope(one: SandboxProvider, region: str = "r") -> Any:
    return next(scope for scope in one.scopes() if scope.region == region)


@pytest.mark.parametrize(
    ("hours", "offer"),
    [
        (0.5, None),
        (1, ("10.00", None)),
        (2.5, ("10.00", 4)),
        (3, ("12.50", 4)),
        (4.9, ("12.50", 0)),
        (5, None),
        (6, None),
        (700, ("11.00", 0)),
    ],
)
def test_prices_and_stock_are_those_in_force(hours: float, offer: tuple[str, int | None] | None) -> None:
    one = sandbox(hours)
    found = one.fetch(scope(one), None)
    assert [(str(o.usd_per_hour), o.machines_cap) for o in found.offers] == ([] if offer is None else [offer])
    assert found.covered == {("r", market) for market in Market}
    assert found.points == ()


def test_the_region_is_described_as_written() -> None:
    one = sandbox(8)
    found = one.fetch(scope(one, "q"), None)
    assert [(o.key, str(o.usd_per_hour)) for o in found.offers] == [(("sandbox", "q", "", "box", "on_demand"), "40.00")]
    assert [(region.country, region.residency_group) for region in found.regions] == [("SE", "EU")]
    assert [machine.instance_type for machine in found.machines] == ["box"]


def test_history_is_the_steps_of_the_window() -> None:
    one = sandbox(6)
    points = one.fetch(scope(one), START + timedelta(hours=2)).points
    assert [((p.at - START) // timedelta(hours=1), str(p.usd_per_hour), p.available) for p in points] == [
        (2, "None", 1.0),
        (3, "12.50", None),
        (4, "None", 0.0),
    ]


@pytest.mark.parametrize(("machines", "score"), [(1, 1.0), (4, 1.0), (5, 0.0)])
def test_stock_is_judged_for_the_whole_gang(machines: int, score: float) -> None:
    (hint,) = sandbox(3).stock([GangQuery("box", machines, Market.SPOT), GangQuery("box", 1, Market.ON_DEMAND)])
    assert (hint.region, hint.zone, hint.machines, hint.score) == ("r", "a", 4, score)
    assert sandbox(1).stock([GangQuery("box", 1, Market.SPOT)]) == ()
    assert sandbox(3).stock([GangQuery("box", 1, Market.SPOT, ("q",))]) == ()


def test_quotas_are_those_of_the_regions() -> None:
    quotas = [{"name": "here", "region": "r", "amount": 8}, {"name": "all", "amount": 2, "unit": "machines"}]
    one = sandbox(1, quotas=quotas)
    assert [q.name for q in one.allowances(("q",)).quotas] == ["all"]
    here, everywhere = one.allowances(()).quotas
    assert (here.amount, here.unit, everywhere.unit) == (8, QuotaUnit.ACCELERATORS, QuotaUnit.MACHINES)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_scripted_failure_is_the_error_it_names(kind: str) -> None:
    times = 3 if kind == "throttled" else 1  # patience of the caller
    one = sandbox(1, failures=[{"call": "stock", "kind": kind, "times": times, "retry_after_s": 0}])
    with pytest.raises(ProviderError) as met:
        one.stock(())
    assert type(met.value) is KINDS[kind]
    assert met.value.code == kind
    if kind != "not_reached":  # which the caller remembers
        assert one.stock(()) == ()


def test_a_passing_failure_is_called_again() -> None:
    failures = [{"call": "fetch", "kind": "throttled", "times": 2, "region": "r", "retry_after_s": 0}]
    one = sandbox(1, attempts=3, failures=failures)
    assert one.fetch(scope(one, "q"), None).offers
    assert one.fetch(scope(one), None).offers
    alone = sandbox(1, failures=[{**failures[0], "kind": "transient"}])
    for _ in range(2):
        with pytest.raises(TransientError):
            alone.fetch(scope(alone), None)
    assert alone.fetch(scope(alone), None).offers


def test_every_call_can_be_failed() -> None:
    one = sandbox(1, failures=[{"call": call, "kind": "transient"} for call in get_args(Call)])
    asks: dict[str, Callable[[], object]] = {
        "scopes": one.scopes,
        "stock": lambda: one.stock(()),
        "allowances": lambda: one.allowances(()),
    }
    for ask in asks.values():
        with pytest.raises(ProviderError):
            ask()
    with pytest.raises(ProviderError):
        one.fetch(one.scopes()[0], None)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"start": None}, "counts from a start, and there is none"),
        ({"regions": [SCRIPT["regions"][0]] * 2}, "the region r is there twice"),
        ({"prices": [SCRIPT["prices"][0]] * 2}, "prices of box in a, spot, are there twice"),
        ({"prices": [{**SCRIPT["prices"][0], "region": "moon"}]}, "there is no region 'moon'"),
        ({"prices": [{**SCRIPT["prices"][0], "zone": "z"}]}, "there is no zone 'z'; there are a, b"),
        ({"prices": [{**SCRIPT["prices"][0], "machine": "bax"}]}, "there is no machine 'bax'"),
        ({"prices": [{**SCRIPT["prices"][0], "steps": [{"at": "1h", "usd": 0}]}]}, "is 0; leave it out"),
        (
            {"prices": [{**SCRIPT["prices"][0], "steps": [{"at": "2h"}, {"at": "1h"}]}]},
            "is not after the step before it",
        ),
        ({"prices": [{**SCRIPT["prices"][0], "steps": [{"at": "soon"}]}]}, "is no moment with its zone"),
        ({"prices": [{**SCRIPT["prices"][0], "steps": [{"at": "2026-11-21T18:00"}]}]}, "is no moment with its zone"),
        ({"quotas": [{"name": "x", "amount": 1, "region": "moon"}]}, "there is no region 'moon'"),
        ({"notices": [{"at": "1h", "machine_id": "m", "region": "q", "zone": "a"}]}, "there is no zone 'a'"),
    ],
)
def test_a_script_that_does_not_hang_together_is_refused(changed: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Script.model_validate({**SCRIPT, **changed})


def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.yaml"
    text = EXAMPLE.read_text(encoding="utf-8")
    path.write_text(text.replace("usd: 19.15", "usd: cheap").replace("amount: 64", "amont: 64"), encoding="utf-8")
    with pytest.raises(InvalidInputError) as met:
        read_single_document(path, Script)
    lines = text.splitlines()
    places = {f"{path}:{number}" for number, line in enumerate(lines, 1) if "19.15" in line or "amount: 64" in line}
    assert {problem.where.rpartition(":")[0] for problem in met.value.problems} == places
    assert any("did you mean amount?" in str(problem) for problem in met.value.problems)


def test_the_example_plays() -> None:
    one = sandbox(18, attempts=3, document=read_single_document(EXAMPLE, Script))
    found = one.fetch(one.scopes()[0], START)
    assert [(o.zone, str(o.usd_per_hour), o.machines_cap) for o in found.offers] == [
        (None, "44.00", None),
        ("sandbox-east-a", "27.80", 2),
        ("sandbox-east-b", "20.10", 4),
    ]


@settings(max_examples=20)
@given(st.integers(0, 24 * 400), st.integers(0, 48))
def test_the_default_script_says_the_same_of_a_moment_whenever_it_is_asked(hours: int, later: int) -> None:
    then, now = START + timedelta(hours=hours), START + timedelta(hours=hours + later)
    first, second = make_default_script(then), make_default_script(now)
    for one, other in zip(first.prices, second.prices, strict=True):
        assert one.key == other.key
        early, late = first.in_force(one.steps, then), second.in_force(other.steps, then)
        assert early is not None
        assert late is not None
        assert early.price == late.price


def test_the_default_sandbox_moves() -> None:
    now = START + timedelta(hours=5)
    one = make("sandbox", Session(Settings(), embedded_book(), now, Caller("sandbox", 30.0)))
    assert len(one.scopes()) == 2
    for region in one.scopes():
        found = one.fetch(region, now - timedelta(days=7))
        assert len(found.offers) == 6
        prices = {point.usd_per_hour for point in found.points if point.market is Market.SPOT}
        assert len(prices) > 100
        listed = {o.instance_type: o.usd_per_hour for o in found.offers if o.market is Market.ON_DEMAND}
        assert all(o.usd_per_hour < listed[o.instance_type] for o in found.offers if o.market is Market.SPOT)


@pytest.mark.parametrize(
    ("text", "hours"), [("90m", 1.5), ("1h30m", 1.5), ("1d 12h", 36), ("2w", 336), ("30s", 1 / 120), ("1.5h", 1.5)]
)
def test_durations_are_read(text: str, hours: float) -> None:
    assert parse_duration(text) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "90", "h", "5 parsecs", "1h and more", 90, None, "-1h"])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["2026-11-21T18:00:00Z", "2026-11-21T20:00+02:00", datetime(2026, 11, 21, 18, tzinfo=UTC)]
)
def test_moments_are_in_utc(text: object) -> None:
    assert parse_moment(text) == datetime(2026, 11, 21, 18, tzinfo=UTC)


def test_what_is_no_script_is_refused() -> None:
    with pytest.raises(ProviderError, match="no sandbox script"):
        sandbox(1, document={"regions": []})
