"""How long it takes to place hundreds of gangs at once after they all lost their places.

The example night again and again, every gang some way on, over every offer of the embedded book but for those of the
region that is gone, with quotas that bind.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from pricing.book import PriceBook
from pricing.places import RegionId
from router.app.plan import PlanOptions, plan_request
from router.jobs.limits import Limit, Limits
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import CandidateFinder
from router.planning.improve.replacement import PlacementRequest, Placements, place_gangs
from router.planning.problem.remaining_work import fits_reservations, remaining_job
from router.planning.program.solver import PulpSolver
from tests.bench.hundred_jobs import many_jobs, many_limits
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
NIGHTLY = ROOT / "examples" / "nightly"
GONE = RegionId("aws", "us-east-1")
GANGS = 500
LIMIT = timedelta(seconds=20)  # so that a machine that others use too shows its real figures


def figures(gangs: int = GANGS) -> Iterator[str]:
    """Seconds by phase with quotas that leave room for all but a few, and with quotas for a third of the gangs."""
    book, jobs, plain = night(gangs)
    yield f"JOINT PLACEMENT of {gangs} gangs, {len(book.offers):,} offers, {GONE} gone"
    for title, share in (("enough for most", 1.0), ("enough for a third", 0.3)):
        limits = tight(plain, gangs, share)
        clock = Both()
        finder = CandidateFinder(book, limits, NOW, advisory=False)
        wants = [PlacementRequest(job, candidates_left(finder, job)) for job in jobs]
        finding = clock.lap()
        found = place_gangs(wants, limits, solver=PulpSolver(), time_limit=LIMIT)
        yield f"  {title}: candidates {finding}, placing {clock.lap()}"
        yield f"    {shown(found)}"


class Both:
    """Time by the clock on the wall and of the processor, since the last lap."""

    def __init__(self) -> None:
        self._began = (time.perf_counter(), time.process_time())

    def lap(self) -> str:
        wall, processor = (now - then for now, then in zip(self._now(), self._began, strict=True))
        self._began = self._now()
        return f"{wall:.2f} s ({processor:.2f} s of the processor)"

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()


def shown(found: Placements) -> str:
    proven = "proven fewest" if found.fewest_waiting else "not proven fewest"
    late = ", time limit hit" if found.hit_time_limit else ""
    return (
        f"{len(found.placed)} placed, {len(found.waiting)} waiting ({proven}), gap {found.gap:.2%}, "
        f"{found.looked_at:,} of {found.of:,} candidates looked at{late}"
    )


def candidates_left(finder: CandidateFinder, job: Job) -> tuple[Candidate, ...]:
    """Candidates outside the region where nothing is to be had now."""
    return tuple(c for c in finder.find(job)[0] if c.region != GONE and fits_reservations(c, job, finder.now))


def night(gangs: int) -> tuple[PriceBook, list[Job], Limits]:
    """The book, what is left of the jobs, and limits as large as the night."""
    request = plan_request([str(NIGHTLY)], "embedded", NIGHTLY / "limits.yaml", NOW, PlanOptions()).request
    jobs = many_jobs(request.jobs, gangs, NOW)
    left = [remaining_job(job, job.steps * (1 + i % 7) // 10, GONE, NOW) for i, job in enumerate(jobs)]
    return request.book, left, many_limits(request.limits, gangs / len(request.jobs))


def tight(limits: Limits, gangs: int, share: float) -> Limits:
    """With a quota of accelerators for every cloud besides that leaves room for about this share of the gangs."""
    clouds = ("aws", "azure", "gcp")
    more = tuple(
        Limit(name=f"tight {cloud}", cloud=cloud, unit="accelerators", amount=int(16 * gangs * share / len(clouds)))
        for cloud in clouds
    )
    return limits.model_copy(update={"limits": (*limits.limits, *more)})


def main() -> None:
    parser = argparse.ArgumentParser(description="How long placing many gangs at once takes.")
    parser.add_argument("--gangs", type=int, default=GANGS)
    for line in figures(parser.parse_args().gangs):
        print(line, flush=True)


if __name__ == "__main__":
    main()
