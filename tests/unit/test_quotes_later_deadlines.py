"""A later deadline is never quoted dearer than an earlier one: by construction, and on the example night."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd
from router.app.quotes import QuoteOptions, make_quotes, prepare_quotes
from router.jobs.quantities import Moment
from router.prices.books import load_book
from router.quotes.curve import SimulatedDeadline, best_by_deadline, pick_cheapest
from router.quotes.make_quote import make_quote
from router.quotes.quote import Quote
from router.quotes.request import MarketInputs, QuoteRequest
from router.quotes.runner import QuoteClock, ScenarioOutcomes
from router.quotes.statistics import QuoteLevels
from tests.support.asked_quotes import a_trade, asking, by, dollars
from tests.support.repository import ROOT
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job

NIGHTLY = ROOT / "examples" / "nightly"
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
FEW = ("resnet50-weekly", "unet3d-crossvalidation", "bert-reranker-squad")
ASKING = asking(a_job(), 24, [NORTH])
STAGE = ASKING.stage(ASKING.venues, QuoteClock(3600, 4), 1)


def simulated(usd: Sequence[float], finish_s: Sequence[float], window_s: int) -> SimulatedDeadline:
    """As if it had come out so."""
    count, done = len(usd), np.array(finish_s)
    none = np.zeros(count, dtype=np.int64)
    played = ScenarioOutcomes(
        usd=np.array(usd),
        egress_usd=np.zeros(count),
        spot_usd=np.zeros(count),
        finish_s=done,
        late=done > window_s,
        spot_ticks=none,
        on_demand_ticks=none,
        launches=none,
        slow=np.ones(count),
        first=none,
        option_by_tick=np.zeros((count, 1), dtype=np.int16),
    )
    return SimulatedDeadline.of(STAGE, played, window_s, QuoteLevels())


DRAWS = st.lists(st.tuples(st.floats(1, 100), st.floats(1, 50)), min_size=4, max_size=4)


@given(st.dictionaries(st.integers(1, 40), st.lists(DRAWS, min_size=1, max_size=3), min_size=1, max_size=6))
def test_a_later_deadline_never_costs_more_and_is_offered_what_is_done_by_then(
    drawn: dict[int, list[list[tuple[float, float]]]],
) -> None:
    found = {s: [simulated([u for u, _ in d], [f for _, f in d], s) for d in each] for s, each in drawn.items()}
    best = best_by_deadline(found)
    assert best.keys() == found.keys()
    for before, after in pairwise(sorted(best)):
        assert best[after].cost <= best[before].cost
    for seconds, s in best.items():
        assert s.by_s == seconds
        assert s.window_s <= seconds
        assert s.played.late.tolist() == [done > seconds for done in s.played.finish_s]
        assert s.cost <= pick_cheapest(found[seconds]).cost


def quoted(names: Sequence[str], deadline: str | None, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Quote]:
    """Of these example jobs, those that can be quoted."""
    monkeypatch.setenv("STEPFARE_HOME", str(home))
    options = QuoteOptions(by=None if deadline is None else Moment.parse(deadline), processes=1)
    paths = [str(NIGHTLY / f"{name}.yaml") for name in names] or [str(NIGHTLY)]
    found = make_quotes(prepare_quotes(paths, "embedded", None, NOW, options, load_book))
    return [answer for answer in found if isinstance(answer, Quote)]


def holds(q: Quote) -> None:
    """What every quote keeps."""
    costs = [expected(p.mean) for p in q.curve]
    assert costs == sorted(costs, reverse=True), q.job
    assert next(p.mean for p in q.curve if p.deadline == q.deadline) == q.usd.mean, q.job
    barred = {"with spot allowed"}  # not by the job's own rules
    assert all(expected(o.mean) >= expected(q.usd.mean) for o in q.alternatives if o.change not in barred), q.job
    if q.usd.mean is not None:
        parts = [dollars(d.usd) for d in q.drivers if not d.what.startswith("of these")]
        assert sum(parts) == pytest.approx(dollars(q.usd.mean), abs=0.001), q.job


def check_curve(ask: QuoteRequest, inputs: MarketInputs, every: int = 1) -> Quote:
    """Check deadlines of the curve against the quote of that deadline, and return the quote."""
    quote = make_quote(ask, inputs)
    assert isinstance(quote, Quote)
    for point in quote.curve[::every]:
        direct = make_quote(replace(ask, deadline=point.deadline), inputs)
        assert isinstance(direct, Quote)
        # The same scenarios: only what a change of that quote found may be missing here.
        tolerance = max(1.5 * dollars(direct.mean_error_usd), 0.03 * dollars(direct.usd.mean))
        assert dollars(point.mean) == pytest.approx(dollars(direct.usd.mean), abs=tolerance), point.deadline
    return quote


@pytest.mark.slow
def test_the_curve_of_a_short_job_says_what_quotes_of_its_deadlines_say() -> None:
    """Once 8.03 by 18:36 where a quote said 14.99: it was played in the steps of the clock that six hours have."""
    short = a_job(steps=10, startup="1m", checkpoint={"size_gib": 1})
    quote = check_curve(QuoteRequest(short, by(6)), a_trade([NORTH, NORTH_SPOT, SOUTH]))
    assert len(quote.curve) > 2


@pytest.mark.slow
def test_the_curve_says_what_another_gang_size_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once 26,959.94 where a quote of that deadline said 10,508.36 on half the accelerators."""
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path))
    options = QuoteOptions(by=Moment.parse("2026-11-30T12:00Z"), processes=1)
    job, limits = str(NIGHTLY / "mpt-13b-pretrain.yaml"), NIGHTLY / "limits.yaml"
    batch = prepare_quotes([job], "embedded", limits, NOW, options, load_book)
    (ask,) = batch.asks
    assert isinstance(ask, QuoteRequest)
    quote = check_curve(ask, batch.market_inputs, every=3)
    assert expected(quote.curve[-1].mean) < expected(quote.usd.mean) / 2


def expected(amount: Usd | None) -> float:
    """Dollars; None is an amount without end."""
    return float("inf") if amount is None else amount.dollars()


@pytest.mark.slow
def test_a_few_jobs_of_the_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = quoted(FEW, "+24h", tmp_path, monkeypatch)
    assert [q.job for q in found] == sorted(FEW, key=FEW.index)
    for q in found:
        holds(q)
    (weekly,) = (q for q in found if q.job == "resnet50-weekly")
    # Once 25.51 while its own curve said 15.43 by 18 h: what an earlier deadline's run costs is on offer too.
    sooner = [dollars(p.mean) for p in weekly.curve if p.mean is not None and p.deadline <= weekly.deadline]
    assert dollars(weekly.usd.mean) <= min(sooner)


DEADLINES = (None, "+24h", "+48h", "+120h")


@pytest.mark.slow
@pytest.mark.parametrize("deadline", DEADLINES)
def test_every_job_of_the_night(deadline: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job by one of the deadlines, in turn: all by each take two minutes of a processor for every deadline."""
    names = sorted(path.stem for path in NIGHTLY.glob("*.yaml") if path.stem != "limits")
    found = quoted(names[DEADLINES.index(deadline) :: len(DEADLINES)], deadline, tmp_path, monkeypatch)
    assert len(found) >= 4
    for q in found:
        holds(q)
