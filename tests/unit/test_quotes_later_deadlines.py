"""A later deadline is never quoted dearer than an earlier one: by construction, and on the example night."""

from __future__ import annotations

from collections.abc import Sequence
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
from router.quotes.quote import Quote
from router.quotes.runner import QuoteClock, ScenarioOutcomes
from router.quotes.statistics import QuoteLevels
from tests.support.asked_quotes import asking, dollars
from tests.support.repository import ROOT
from tests.support.scenes import NORTH, a_job

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


def quoted(names: Sequence[str], by: str | None, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Quote]:
    """Of these example jobs, those that can be quoted."""
    monkeypatch.setenv("STEPFARE_HOME", str(home))
    options = QuoteOptions(by=None if by is None else Moment.parse(by), processes=1)
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


def expected(amount: Usd | None) -> float:
    """Dollars; None is an amount without end."""
    return float("inf") if amount is None else amount.dollars()


def test_a_few_jobs_of_the_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = quoted(FEW, "+24h", tmp_path, monkeypatch)
    assert [q.job for q in found] == sorted(FEW, key=FEW.index)
    for q in found:
        holds(q)
    (weekly,) = (q for q in found if q.job == "resnet50-weekly")
    # Once 25.51 while its own curve said 15.43 by 18 h: what an earlier deadline's run costs is on offer too.
    sooner = [dollars(p.mean) for p in weekly.curve if p.mean is not None and p.deadline <= weekly.deadline]
    assert dollars(weekly.usd.mean) <= min(sooner)


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "+24h", "+48h", "+120h"])
def test_every_job_of_the_night(by: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = quoted((), by, tmp_path, monkeypatch)
    assert len(found) >= 14
    for q in found:
        holds(q)
