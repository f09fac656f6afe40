"""What the policy of quotes brings: the mean cost of the example night's jobs, on places as they are quoted, under
plain Uniform Progress, under foresight as quotes fit it, and under foresight as the watcher fits it.

    python -m tests.bench.quoted_policies [JOB ...] [--full]

All in the same made-up availability, in dollars, without the recalibration. ``--full`` takes some seconds a job more.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from tempfile import TemporaryDirectory

from router.app.quotes import QuoteOptions, prepare_quotes
from router.prices.books import load_book
from router.quotes.explanation import list_single_sizes
from router.quotes.make_quote import DRAWS
from router.quotes.request import MarketInputs, QuoteProblem, QuoteRequest
from router.quotes.runner import PolicyFactory, choose_clock
from router.spot.policies.our_policy import policy_for, quoted_policy_for
from router.spot.policies.published.baselines import UniformProgress
from router.spot.simulator.inputs import HOUR_S
from router.spot.venues import QuoteOption
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
NIGHTLY = ROOT / "examples" / "nightly"
_TICKS, _LEAST_S, _MOST_S = 96, 120, 2 * HOUR_S


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="What the policy of quotes brings.")
    parser.add_argument("jobs", nargs="*", help="of examples/nightly; none: all of them")
    parser.add_argument("--full", action="store_true", help="the fit of the watcher, too")
    options = parser.parse_args(arguments)
    paths = [str(NIGHTLY / f"{name}.yaml") for name in options.jobs] or [str(NIGHTLY)]
    with TemporaryDirectory(prefix="stepfare-bench-") as home:
        os.environ["STEPFARE_HOME"] = home  # no history of this machine
        found = prepare_quotes(paths, "embedded", NIGHTLY / "limits.yaml", NOW, QuoteOptions(), load_book)
        for ask in found.asks:
            if isinstance(ask, QuoteRequest):
                for line in compared(ask, found.market_inputs, full=options.full):
                    print(line, flush=True)


def compared(ask: QuoteRequest, market_inputs: MarketInputs, *, full: bool) -> Iterator[str]:
    """A line, where there is spot to count on."""
    problem = QuoteProblem(ask, market_inputs)
    if problem.refused() is not None:
        return
    everything = problem.menu(problem.venues, problem.steps, problem.window_h)
    alone = list_single_sizes(problem, everything)
    menu = alone[0][1] if alone else everything
    if all(v.sure for v in menu) or not any(v.sure for v in menu):
        return
    policies: dict[str, PolicyFactory] = {
        "uniform progress": lambda _outlook, _like: UniformProgress(hysteresis=False),
        "foresight, quick": quoted_policy_for,
    }
    if full:
        policies["foresight"] = policy_for
    told = [
        f"{name} {_usd(ask, replace(market_inputs, policy_for=made), menu):,.2f}" for name, made in policies.items()
    ]
    yield f"{ask.job.name:28} {len(menu)} places   " + "   ".join(told)


def _usd(ask: QuoteRequest, market_inputs: MarketInputs, menu: Sequence[QuoteOption]) -> float:
    problem = QuoteProblem(ask, market_inputs)
    clock = choose_clock(int(problem.window_h * HOUR_S), _TICKS, _LEAST_S, _MOST_S)
    return float(problem.stage(menu, clock, DRAWS, seed=1).play(clock.ticks).usd.mean())


if __name__ == "__main__":
    main()
