"""Choose which speeds of a job to measure next: what narrows the error of its best gang most for the money. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from pricing.machines import Accelerator
from pricing.money import Usd
from router.jobs.point_model import PointLinks, StepForm, StepMeasurement, StepPlace, fit_form
from router.jobs.spec import Job
from router.jobs.speed import POINT_ERROR, Speed, UnknownSpeed, form_of, gang_speed, links_of, step_place
from router.planning.find.candidate import Candidate
from router.planning.find.listings import OfferListing

_SIZES: Final = (1, 2, 3, 4, 8, 16)  # machines
_MISLEADING: Final = 2  # machines over Ethernet: published network times there are up to twice those of three
_LEAST_GAIN: Final = 0.01


@dataclass(frozen=True, slots=True)
class PointProposal:
    """A gang to measure, what that costs, and the error of the best gang's speed before and after it."""

    listing: OfferListing
    machines: int
    batch: float | None
    usd: Usd
    error_before: float
    error_after: float

    @property
    def accelerators(self) -> int:
        """Return the accelerators of the gang."""
        return self.machines * self.listing.machine.accelerator_count

    @property
    def placement(self) -> str:
        """Return machines x accelerators of each."""
        return f"{self.machines}x{self.listing.machine.accelerator_count}"

    @property
    def point(self) -> str:
        """Return what `--add` takes, with the speed still to be filled in."""
        parts = [f"accelerators={self.listing.accelerator.name}:{self.accelerators}", f"placement={self.placement}"]
        parts += [] if self.batch is None else [f"batch={self.batch:g}"]
        if self.machines > 1 and not self.listing.machine.has_rdma:
            parts.append("fabric=ethernet")
        return ",".join([*parts, "seconds_per_step=..."])


@dataclass(frozen=True, slots=True)
class MeasuringPlan:
    """The gang that costs least for the whole job, its speed, and the points to measure in their order."""

    best: Candidate
    speed: Speed
    proposals: tuple[PointProposal, ...]


def propose_points(
    job: Job,
    candidates: Sequence[Candidate],
    listings: Mapping[str, tuple[OfferListing, ...]],
    accelerators: Sequence[Accelerator],
    *,
    lasting: timedelta = timedelta(minutes=15),
    max_points: int = 3,
    best: Candidate | None = None,
) -> MeasuringPlan | UnknownSpeed:
    """Return up to ``max_points`` to measure for the candidate that costs least, each for ``lasting`` and its start.

    One after the other the point is taken that narrows the error most for a dollar, until none narrows it by a
    percentage point or the gang itself is measured. Points are gangs of the same accelerator, no larger than the best
    one, over the same kind of links; each accelerator has the batch that it would have in the best gang.
    Gangs of two machine types are left aside. ``best`` is another gang to measure for.
    """
    alone = [c for c in candidates if len({part.offer.instance_type for part in c.parts}) == 1]
    if not alone:
        return UnknownSpeed("no gang can run it, so nothing can be weighed")
    best = best or min(alone, key=lambda c: (c.expected_usd(job.steps_left), c.key))
    listing = best.parts[-1].listing
    speed = gang_speed(job.workload, listing.machine, best.machines, listing.accelerator, accelerators)
    assert isinstance(speed, Speed)  # or it would be no candidate
    target = step_place(job.workload, listing.machine, best.machines)
    if speed.relative_error <= POINT_ERROR:
        return MeasuringPlan(best, speed, ())
    form = _form(job, best, speed, target, accelerators)
    regions = {c.region for c in candidates}  # where residency and egress let the job run
    places = [row for row in listings.get(best.accelerator, ()) if row.region.id in regions]
    options = list(_options(job, best, places, target, lasting))
    proposals: list[PointProposal] = []
    while options and len(proposals) < max_points:
        error = min(speed.relative_error, form.predict(target)[1])
        tried = [replace(o, error_before=error, error_after=min(error, _after(form, o, target))) for o in options]
        chosen = max(tried, key=_worth)
        if chosen.error_before - chosen.error_after < _LEAST_GAIN:
            break
        proposals.append(chosen)
        if chosen.machines == best.machines and chosen.accelerators == best.accelerators:
            break
        form = form.with_point(_place(chosen, target), POINT_ERROR)
        options = [o for o in options if o.placement != chosen.placement]
    return MeasuringPlan(best, speed, tuple(proposals))


def _worth(option: PointProposal) -> tuple[float, int, str]:
    """Return percentage points for a dollar; fewer machines and then the name decide between equals."""
    return (
        (option.error_before - option.error_after) / max(option.usd.dollars(), 0.01),
        -option.machines,
        option.listing.name,
    )


def _after(form: StepForm, option: PointProposal, target: StepPlace) -> float:
    """Return the error of the best gang's speed once the option is measured; its own error if it is that gang."""
    place = _place(option, target)
    if (place.machines, place.per_machine) == (target.machines, target.per_machine):
        return POINT_ERROR
    return form.with_point(place, POINT_ERROR).predict(target)[1]


def _place(option: PointProposal, target: StepPlace) -> StepPlace:
    return StepPlace(option.machines, option.listing.machine.accelerator_count, target.batch)


def _form(job: Job, best: Candidate, speed: Speed, target: StepPlace, accelerators: Sequence[Accelerator]) -> StepForm:
    """Return the form fitted to the profile; without points, to the estimate as if it were a point of its error."""
    machine = best.parts[-1].machine
    form = form_of(job.workload, machine, best.machines, accelerators)
    if isinstance(form, StepForm):
        return form
    links: PointLinks = links_of(machine)
    return fit_form((StepMeasurement(target, 3600 / speed.steps_per_hour, speed.relative_error),), links)


def _options(
    job: Job, best: Candidate, listings: Iterable[OfferListing], target: StepPlace, lasting: timedelta
) -> Iterator[PointProposal]:
    """Yield every gang that may be measured, once for each placement, at the cheapest price."""
    machine = best.parts[-1].machine
    cheapest: dict[tuple[int, int], PointProposal] = {}
    for listing in listings:
        other = listing.machine
        if listing.reservation or (best.provisionable and not listing.offer.provisionable):
            continue
        for machines in sorted({*_SIZES, best.machines}):
            count = machines * other.accelerator_count
            misleading = machines == _MISLEADING and not other.has_rdma and machines != best.machines
            other_fabric = machines > 1 and other.has_rdma != machine.has_rdma
            scarce = listing.cap is not None and machines > listing.cap
            if count > best.accelerators or misleading or other_fabric or scarce:
                continue
            batch = None if job.workload.step_batch is None else target.batch * count
            usd = listing.offer.usd_per_hour.times(machines).over(job.start_time + lasting)
            option = PointProposal(listing, machines, batch, usd, 0.0, 0.0)
            key = (machines, other.accelerator_count)
            if key not in cheapest or (usd, listing.name) < (cheapest[key].usd, cheapest[key].listing.name):
                cheapest[key] = option
    yield from (option for _, option in sorted(cheapest.items()))
