"""Budget quotes: the number of steps that a budget pays for by a deadline, and its probability. Pure."""

from __future__ import annotations

from typing import Final

from pricing.money import Usd
from router.quotes.explanation import find_learned, list_conditions, list_single_sizes
from router.quotes.quote import BudgetQuote, Reach, Refused
from router.quotes.request import MarketInputs, QuoteProblem, QuoteRequest, summarise_reasons
from router.quotes.runner import DeadlineCase, ScenarioRunner, choose_clock
from router.quotes.statistics import quantiles, to_usd
from router.spot.simulator.inputs import HOUR_S

CONFIDENCES: Final = (0.5, 0.8, 0.95)
DRAWS: Final = 200
_TICKS: Final = 64
_LEAST_TICK_S, _MOST_TICK_S = 120, HOUR_S
_COARSE, _BETWEEN, _ROUNDS = 10, 4, 3
_ROOM: Final = 1.25  # factor above what the cheapest option could do for the money


def make_budget_quote(ask: QuoteRequest, budget: Usd, market_inputs: MarketInputs) -> BudgetQuote | Refused:
    """Return the steps within ``budget`` and on time, or why there are none.

    They are those reached in 50, 80 and 95 % of the draws. Steps beyond those that the job has left are reported too.
    """
    problem, name = QuoteProblem(ask, market_inputs), ask.job.name
    hours = problem.window_h
    if problem.steps == 0 or hours <= 0 or not problem.venues:
        return problem.refused() or Refused(
            name, "nothing can run it", "see stepfare plan", reasons=summarise_reasons(problem.dropped)
        )
    within = [v for v in problem.venues if v.startup_hours < hours]
    most = max((int((hours - v.startup_hours) * v.steps_per_hour) for v in within), default=0)
    rate = min((v.usd_per_hour / v.steps_per_hour for v in within), default=1.0)
    most = min(most, int(_ROOM * budget.dollars() / rate))
    if most < 1:
        what = f"not one step for ${budget.dollars():,.2f} in {hours:.1f} h"
        return Refused(name, what, "give more of either", reasons=summarise_reasons(problem.dropped))
    clock = choose_clock(int(hours * HOUR_S), _TICKS, _LEAST_TICK_S, _MOST_TICK_S)
    everything = problem.menu(problem.venues, max(1, most // 2), hours)
    alone = list_single_sizes(problem, everything)
    menu = alone[0][1] if alone else everything  # as quotes choose: the cheapest gang size that can be in time
    problem.least_steps = max(1, min(problem.steps, most // _COARSE))
    stage = problem.stage(menu, clock, DRAWS)
    reaches = _reaches(stage, most, budget.dollars())
    if not any(r.steps for r in reaches):
        what = f"not one step for ${budget.dollars():,.2f} in {hours:.1f} h is {min(CONFIDENCES):.0%} sure"
        return Refused(name, what, "give more of either", reasons=summarise_reasons(problem.dropped))
    return BudgetQuote(
        job=name,
        job_digest=ask.job.digest,
        asked_at=market_inputs.now,
        start=problem.start,
        deadline=ask.deadline,
        budget=budget,
        steps=problem.steps,
        reaches=reaches,
        places=problem.somewhere(menu),
        conditions=list_conditions(problem, stage, market_inputs.policy_name),
        policy=market_inputs.policy_name,
        draws=DRAWS,
        book_digest=market_inputs.book.digest,
        run_policy=market_inputs.run_policy,
        learned=find_learned(problem),
        limits=ask.quoted_limits,
    )


def _reaches(stage: ScenarioRunner, max_steps: int, dollars: float) -> tuple[Reach, ...]:
    """Return the most steps for each confidence, to about a part in 1,000 of ``max_steps``; 0 for none.

    They are those of which the share of draws within the money and on time is at least the confidence. Where the share
    is not monotone, the farthest of a coarse grid is refined.
    """
    results: dict[int, tuple[float, float]] = {}  # by steps: the share, and the median dollars
    steps_by_confidence = dict.fromkeys(CONFIDENCES, 0)
    _simulate_steps(stage, {max_steps * i // _COARSE for i in range(1, _COARSE + 1)}, dollars, results)
    for _ in range(_ROUNDS):
        step_counts: set[int] = set()
        for confidence in CONFIDENCES:
            low = max((n for n, (share, _) in results.items() if share >= confidence), default=0)
            high = min((n for n in results if n > low), default=low)
            step_counts |= {low + (high - low) * i // (_BETWEEN + 1) for i in range(1, _BETWEEN + 1)}
        _simulate_steps(stage, step_counts, dollars, results)
    for confidence in CONFIDENCES:
        steps_by_confidence[confidence] = max(
            (n for n, (share, _) in results.items() if share >= confidence), default=0
        )
    return tuple(Reach(c, n, to_usd(results[n][1]) if n else Usd(0)) for c, n in steps_by_confidence.items())


def _simulate_steps(
    stage: ScenarioRunner, step_counts: set[int], dollars: float, results: dict[int, tuple[float, float]]
) -> None:
    new = sorted({n for n in step_counts if n > 0} - results.keys())
    if not new:
        return
    for n, got in zip(new, stage.plays([DeadlineCase(stage.clock.ticks, DRAWS, n) for n in new]), strict=True):
        share = float(((got.usd <= dollars) & ~got.late).mean())
        results[n] = share, float(quantiles(got.usd, (0.5,))[0])
