"""How long the page of a large plan takes in the console, and how large it is.

    python -m tests.bench.plan_page [--examples 24] [--copies 44]

The nightly examples so many times over (24 times 44 are about 1,000 jobs), compared with a night before that has 30
jobs less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from pricing.money import Usd
from router.app.plan import PlanOptions, plan_request
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_to_json
from router.planning.planner import make_plan
from tests.support.console import NIGHT, OPERATOR, console_client, identity_with, query_context
from tests.support.repository import ROOT

EXAMPLES, COPIES = 24, 44
LESS = 30


def large_nights(examples: int = EXAMPLES, copies: int = COPIES) -> tuple[Plan, Plan]:
    """Return the plan of so many example jobs, each so many times, and the plan of the night before it."""
    night = ROOT / "examples" / "nightly"
    request = plan_request([str(night)], "embedded", night / "limits.yaml", NIGHT, PlanOptions(gap=0.03)).request
    few = replace(request, jobs=request.jobs[:examples], resolve_limits=0)
    today = repeated(make_plan(few), copies)
    return without(today, min(LESS, len(today.jobs) // 2)), today


def repeated(plan: Plan, copies: int) -> Plan:
    """The plan with each job so many times, under names of their own."""
    usage, inputs = plan.usage, plan.inputs
    assert usage is not None
    assert inputs is not None

    def renamed(gang: str, number: int) -> str:
        job, slash, run = gang.partition("/")
        return f"{job}-{number}{slash}{run}"

    numbers = range(copies)
    return replace(
        plan,
        lines=tuple(replace(x, job=f"{x.job}-{n}", gang=renamed(x.gang, n)) for x in plan.lines for n in numbers),
        moves=tuple(replace(x, job=f"{x.job}-{n}") for x in plan.moves for n in numbers),
        jobs=tuple(replace(x, job=f"{x.job}-{n}") for x in plan.jobs for n in numbers),
        cost_usd=Usd(plan.cost_usd.nanos * copies),
        orders_usd=Usd(plan.orders_usd.nanos * copies),
        inputs=replace(inputs, use=tuple(replace(x, gang=renamed(x.gang, n)) for x in inputs.use for n in numbers)),
        usage=replace(
            usage, cost_terms=tuple(replace(x, job=f"{x.job}-{n}") for x in usage.cost_terms for n in numbers)
        ),
    )


def without(plan: Plan, count: int) -> Plan:
    """The plan a day earlier without its last jobs."""
    gone = {job.job for job in plan.jobs[-count:]}
    lines = tuple(line for line in plan.lines if line.job not in gone)
    moves = tuple(move for move in plan.moves if move.job not in gone)
    cost = Usd.total([*(line.cost_usd for line in lines), *(move.cost_usd for move in moves)])
    return replace(
        plan, as_of=plan.as_of - timedelta(days=1), jobs=plan.jobs[:-count], lines=lines, moves=moves, cost_usd=cost
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line a page: who asks, its path, seconds, kilobytes before compression."""
    parser = argparse.ArgumentParser(description="How long the page of a large plan takes in the console.")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="how many of the example jobs")
    parser.add_argument("--copies", type=int, default=COPIES, help="how many times each of them")
    asked = parser.parse_args(arguments)
    before, today = large_nights(asked.examples, asked.copies)
    print(f"{len(today.jobs):,} jobs, {len(today.lines):,} lines, {len(plan_to_json(today)) / 1e6:.1f} MB of JSON")
    with TemporaryDirectory() as folder, query_context(Path(folder)) as context:
        for plan in (before, today):
            context.store.made_plans.put(
                plan_content(plan)["digest"], plan_to_json(plan), plan.as_of, NIGHT, "bench", "night"
            )
        digest = plan_content(today)["digest"]
        for who in (OPERATOR, identity_with("viewer:research", name="research")):
            client = console_client(context, lambda who=who: who)  # type: ignore[misc]
            for path in ("/tonight", "/tonight", "/tonight?rows=all", f"/plans/{digest}/diff", "/plans"):
                began = time.perf_counter()
                answer = client.get(path)
                took = time.perf_counter() - began
                assert answer.status_code == 200, f"{path}: {answer.text[:500]}"
                size = len(answer.content) / 1e3
                print(f"{who.name:10} {path[:20]:20} {answer.status_code} {took:6.3f} s {size:8.0f} kB")


if __name__ == "__main__":
    main()
