"""Plans for pages, made of given lines without the planner."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from pricing.money import ZERO, Usd, UsdPerHour
from router.jobs.limits import Limits
from router.planning.document.inputs import PlanInputs
from router.planning.document.plan import JobSummary, Line, Plan, Relaxation, Unplaced
from router.planning.document.plan_usage import PlanUsage

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
HOUR = timedelta(hours=1)
HORIZON = 24

# A plan of no limits and no budgets.
NO_INPUTS = PlanInputs(Limits.none().digest, (), ())
NO_USAGE = PlanUsage("2026-11", ZERO, (), ())


def a_line(
    job: str, start: float, end: float, place: str = "aws/us-east-1", market: str = "spot", gang: str = ""
) -> Line:
    """Eight H100 at ten dollars an hour from and until hours after now; beyond the horizon it is an outlook."""
    cloud, region = place.split("/")
    rate = UsdPerHour.parse("0" if market == "reserved" else "10")
    return Line(
        job=job,
        gang=gang or f"{job}/{start}",
        kind="order" if start < HORIZON else "outlook",
        provisionable=True,
        max_usd_per_hour=UsdPerHour.parse("25"),
        cloud=cloud,
        region=region,
        zone=None,
        instance_type="p5.48xlarge",
        market=market,
        machines=1,
        accelerator="H100",
        accelerators=8,
        start=NOW + start * HOUR,
        end=NOW + end * HOUR,
        hours=Fraction(end - start),
        share=1.0,
        startup=True,
        usd_per_hour=rate,
        amortised_usd_per_hour=rate,
        steps=100,
        steps_per_hour=100.0,
        on_time_steps_per_hour=90.0,
        billed_share=1.0,
        usd_per_step=None,
        cost_usd=rate.over((end - start) * HOUR),
        price_as_of="2026-11-20",
        price_source="made up",
        weak="",
    )


def a_night(
    lines: Sequence[Line],
    *,
    left_out: Sequence[str] = (),
    usage: PlanUsage = NO_USAGE,
    deadline: float = 200,
    probability: float = 0.95,
) -> Plan:
    """The plan of these lines; jobs in ``left_out`` could not be placed."""
    names = sorted({line.job for line in lines})
    cost = Usd.total(line.cost_usd for line in lines)
    by_job: dict[str, list[Line]] = {name: [] for name in names}
    for line in lines:
        by_job[line.job].append(line)
    summaries = [summarise(name, by_job[name], deadline, probability) for name in names]
    summaries += [summarise(name, [], deadline, probability) for name in left_out]
    return Plan(
        as_of=NOW,
        expires_at=NOW + 6 * HOUR,
        book_digest="b" * 64,
        book_as_of=NOW - 6 * HOUR,
        horizon_start=NOW,
        horizon_end=NOW + HORIZON * HOUR,
        status="optimal" if lines else "infeasible",
        stage_one_proven=True,
        time_limit_hit=False,
        cost_usd=cost,
        orders_usd=Usd.total(line.cost_usd for line in lines if line.kind == "order"),
        threshold_usd=ZERO,
        bound_usd=cost,
        gap=0.0,
        gap_asked=0.005,
        solver="by hand",
        lines=tuple(sorted(lines, key=lambda line: (line.job, line.start))),
        moves=(),
        unplaced=tuple(
            Unplaced(
                name, "team-a", 0, "no room <here> & now", (Relaxation("+3 h", "of its deadline", Usd.parse("5")),)
            )
            for name in left_out
        ),
        shadow_prices=(),
        jobs=tuple(summaries),
        inputs=NO_INPUTS,
        usage=usage,
    )


def summarise(name: str, lines: Sequence[Line], deadline: float = 200, probability: float = 0.95) -> JobSummary:
    return JobSummary(
        job=name,
        job_digest="c" * 64,
        team="team-a",
        project=None,
        cost_usd=Usd.total(line.cost_usd for line in lines),
        usd_per_step=None,
        steps=100,
        start=min((line.start for line in lines), default=None),
        finish=max((line.end for line in lines), default=None),
        deadline=NOW + deadline * HOUR,
        confidence=0.95,
        on_time_probability=probability if lines else None,
        runner_up=None,
        alternatives=(),
        constraint_costs=(),
        dropped=(),
        notes=(),
    )
