"""Evaluate other ways to run one job while the other jobs stay in place: runner-up, fallbacks, cost of a rule."""

from __future__ import annotations

from collections.abc import Sequence

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.document.costing import per_step
from router.planning.document.external_costs import external_of_gang
from router.planning.document.plan import Alternative, describe_mix
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.program.single_runs import (
    TRIED,
    JobContext,
    SingleRun,
    evaluate_single_run,
    rank_candidates,
)

SHOWN = 5


def alternatives_of(
    here: JobContext, chosen: frozenset[str], candidates: Sequence[Candidate], advisory: Sequence[Candidate]
) -> tuple[Alternative, ...]:
    """Return the cheapest candidates that the job does not use, dominated ones included.

    Those that could be had come first, then those that lack something. The cheapest offer that cannot be ordered from
    here is among them when there is one.
    """
    local = here.with_candidates([*candidates, *advisory])
    usable = [c for c in rank_candidates(here.job, candidates) if c.key not in chosen]
    runs: list[SingleRun] = []
    for candidate in usable[:TRIED]:
        runs.append(evaluate_single_run(local, candidate))
        if sum(not a.lacks for a in runs) >= SHOWN:
            break
    runs.sort(key=lambda a: (bool(a.lacks), a.objective_usd, a.candidate.key))
    advisory_runs = [evaluate_single_run(local, c) for c in rank_candidates(here.job, advisory)[:1]]
    undominated_keys = {c.key for c in here.problem.candidates.get(here.job.name, ())}
    return tuple(
        _shown(here.job, a, dominated=a.candidate.key not in undominated_keys) for a in [*runs[:SHOWN], *advisory_runs]
    )


def _shown(job: Job, run: SingleRun, *, dominated: bool) -> Alternative:
    """Return the run as an alternative of the plan."""
    c = run.candidate
    steps = steps_to_do(job, running=c.running)
    return Alternative(
        cloud=c.offer.cloud,
        region=c.offer.region,
        zone=c.offer.zone,
        instance_type=c.offer.instance_type,
        market=c.market.value,
        machines=c.machines,
        accelerator=c.accelerator,
        accelerators=c.accelerators,
        usd_per_hour=c.usd_per_hour,
        usd_per_step=None if run.amortised is None else per_step(run.amortised, steps) or Usd(0),
        cost_usd=run.cost,
        finish=run.finish,
        provisionable=c.provisionable,
        dominated=dominated,
        lacks=run.lacks,
        reservation_cost=c.parts[-1].listing.cost or "",
        amortised_usd_per_hour=c.amortised_usd_per_hour if c.parts[-1].listing.cost else None,
        mix=describe_mix((part.machines, part.offer.instance_type) for part in c.parts),
        **external_of_gang(c.external, run.billed),
    )


def runner_up(alternatives: Sequence[Alternative], objective: Usd) -> Alternative | None:
    """Return the alternative that could be had with the least cost and carbon.

    One that cannot be ordered from here counts only if it would save some of them.
    """
    eligible = [a for a in alternatives if not a.lacks or (not a.provisionable and a.objective_usd < objective)]
    return min(eligible, key=lambda a: (a.objective_usd, a.cloud, a.region, a.instance_type), default=None)
