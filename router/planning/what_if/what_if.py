"""Change a request of a plan in one respect at a time, to see what the plan would then be. Pure.

A changed request is a question. Its plan is compared with that of the request as it is, and never applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import ClassVar, Literal

from pricing.book import PriceBook
from pricing.hazard import HIGH, LOW
from pricing.money import Usd
from pricing.offers import Offer
from pricing.places import RegionId
from pricing.problems import InvalidInputError, Problem
from router.jobs.fields import suggest
from router.jobs.limits import Carbon, TeamBudget
from router.jobs.quantities import TOO_FAR, TOO_FAR_REMEDY, Moment, format_duration, is_beyond_planning
from router.jobs.spec import Job
from router.planning.find.emissions import ExternalCosts
from router.planning.planner import PlanRequest

ALL_JOBS = "all"
_MOST_NAMES = 40  # an error lists the known names up to this number


@dataclass(frozen=True, slots=True)
class LimitChange:
    """Another amount of a limit: ``value`` itself, so much more, or so many times as much, rounded down."""

    option: ClassVar[str] = "--limit"
    name: str
    how: Literal["=", "+", "x"]
    value: Decimal

    def __str__(self) -> str:
        return f"limit {self.name} {'' if self.how == '=' else self.how}{self.value}"

    def apply(self, request: PlanRequest) -> PlanRequest:
        """Return the request with the other amount."""
        limits = request.limits.limits
        _known(self.option, "limit", self.name, [limit.name for limit in limits])
        changed = tuple(
            limit.model_copy(update={"amount": self._amount(limit.amount)}) if limit.name == self.name else limit
            for limit in limits
        )
        return replace(request, limits=request.limits.model_copy(update={"limits": changed}))

    def _amount(self, now: int) -> int:
        return int({"=": self.value, "+": now + self.value, "x": now * self.value}[self.how])


@dataclass(frozen=True, slots=True)
class PriceScaling:
    """A factor on the prices of a cloud, a region, a machine type in a region, or a market.

    ``scope`` is ``aws``, ``aws/us-east-1``, ``aws/us-east-1/p5.48xlarge`` or ``spot``. Reservations keep their price.
    """

    option: ClassVar[str] = "--price"
    scope: str
    factor: Decimal

    def __str__(self) -> str:
        return f"price {self.scope} x{self.factor}"

    def apply(self, request: PlanRequest) -> PlanRequest:
        """Return the request with the other prices, each rounded once to the nano-dollar."""
        book = request.book
        if not any(self.scope in scopes_of(offer) for offer in book.offers):
            known = {scope for offer in book.offers for scope in scopes_of(offer)}
            # A machine type is looked for among those of its region, a region among those of its cloud.
            near = [scope for scope in known if scope.count("/") == self.scope.count("/")]
            _known(self.option, "cloud, region, machine type or market", self.scope, near)
        offers = (
            replace(offer, usd_per_hour=offer.usd_per_hour.scaled(self.factor))
            if self.scope in scopes_of(offer)
            else offer
            for offer in book.offers
        )
        return replace(request, book=book.with_offers(offers))


def scopes_of(offer: Offer) -> tuple[str, str, str, str]:
    """Return the scopes that an offer belongs to: its market, cloud, region, and machine type there."""
    return (
        offer.market.value,
        offer.cloud,
        f"{offer.cloud}/{offer.region}",
        f"{offer.cloud}/{offer.region}/{offer.instance_type}",
    )


@dataclass(frozen=True, slots=True)
class RegionDrop:
    """A region without offers and reservations. Data and checkpoints that lie there can still be read."""

    option: ClassVar[str] = "--drop-region"
    region: RegionId

    def __str__(self) -> str:
        return f"drop-region {self.region}"

    def apply(self, request: PlanRequest) -> PlanRequest:
        """Return the request without what is for sale or reserved in the region."""
        book, limits = request.book, request.limits
        _known(self.option, "region", str(self.region), _regions(book))
        offers = tuple(offer for offer in book.offers if offer.region_id != self.region)
        reservations = tuple(r for r in limits.reservations if RegionId(r.cloud, r.region) != self.region)
        return replace(
            request,
            book=book if len(offers) == len(book.offers) else book.with_offers(offers),
            limits=limits.model_copy(update={"reservations": reservations}),
        )


def _regions(book: PriceBook) -> list[str]:
    return [str(region.id) for region in book.regions]


@dataclass(frozen=True, slots=True)
class DeadlineChange:
    """A later deadline of one job or, with ``all``, of every job that has one; earlier where ``by`` is below zero."""

    option: ClassVar[str] = "--deadline"
    job: str
    by: timedelta

    def __str__(self) -> str:
        sign = "-" if self.by < timedelta(0) else "+"
        return f"deadline {self.job} {sign}{format_duration(abs(self.by))}"

    def apply(self, request: PlanRequest) -> PlanRequest:
        """Return the request with the other deadlines; refused where none is or where it lies too far ahead."""
        having = [job.name for job in request.jobs if job.deadline is not None]
        if self.job == ALL_JOBS:
            if not having:
                raise InvalidInputError.single("no job has a deadline", field=self.option, remedy="leave it out")
        else:
            _known_job(self.option, self.job, request)
            if self.job not in having:
                raise InvalidInputError.single(
                    f"job {self.job} has no deadline to move",
                    field=self.option,
                    remedy=suggest(self.job, having) or "give its file a deadline",
                )
        return _with_jobs(request, lambda job: self._moved(job, request), self.job)

    def _moved(self, job: Job, request: PlanRequest) -> Job:
        if job.deadline is None:
            return job
        now, old = request.now, job.deadline
        if is_beyond_planning(old.at(now) + self.by, now):
            what = TOO_FAR.format(f"the deadline of {job.name} after {self}")
            raise InvalidInputError.single(what, field=self.option, remedy=TOO_FAR_REMEDY)
        moved = Moment(
            absolute=None if old.absolute is None else old.absolute + self.by,
            relative=None if old.relative is None else old.relative + self.by,
        )
        return job.model_copy(update={"deadline": moved})


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """Another budget of a team, or one for a team of these jobs that has none. What is spent stays as it is."""

    option: ClassVar[str] = "--budget"
    team: str
    amount: Usd

    def __str__(self) -> str:
        return f"budget {self.team} ${self.amount}"

    def apply(self, request: PlanRequest) -> PlanRequest:
        """Return the request with the other budget."""
        teams = request.limits.teams
        _known(self.option, "team", self.team, {entry.team for entry in teams} | {job.team for job in request.jobs})
        changed = tuple(
            entry.model_copy(update={"budget": self.amount}) if entry.team == self.team else entry for entry in teams
        )
        if not any(entry.team == self.team for entry in teams):
            changed += (TeamBudget(team=self.team, budget=self.amount),)
        return replace(request, limits=request.limits.model_copy(update={"teams": changed}))


@dataclass(frozen=True, slots=True)
class ConfidenceChange:
    """Another confidence with which the deadline of a job, or with ``all`` of every job, must hold."""

    option: ClassVar[str] = "--confidence"
    job: str
    confidence: float

    def __str__(self) -> str:
        return f"confidence {self.job} {self.confidence:g}"

    def apply(self, request: PlanRequest) -> PlanRequest:
        """Return the request with the other confidence."""
        if self.job != ALL_JOBS:
            _known_job(self.option, self.job, request)
        return _with_jobs(request, lambda job: job.model_copy(update={"confidence": self.confidence}), self.job)


@dataclass(frozen=True, slots=True)
class InterruptionChange:
    """The interruptions of every spot pool at one end of the interval that holds them four times in five.

    Rates that an owner states stay what they are.
    """

    option: ClassVar[str] = "--interruptions"
    end: Literal["low", "high"]

    def __str__(self) -> str:
        return f"interruptions {self.end}"

    def apply(self, request: PlanRequest) -> PlanRequest:
        """Return the request in which the level of each spot pool counts as known."""
        return replace(request, risk_quantile=LOW if self.end == "low" else HIGH)


@dataclass(frozen=True, slots=True)
class JobDrop:
    """A plan without the job."""

    option: ClassVar[str] = "--drop-job"
    job: str

    def __str__(self) -> str:
        return f"drop-job {self.job}"

    def apply(self, request: PlanRequest) -> PlanRequest:
        """Return the request without the job."""
        _known_job(self.option, self.job, request)
        return replace(request, jobs=tuple(job for job in request.jobs if job.name != self.job))


@dataclass(frozen=True, slots=True)
class CarbonChange:
    """Another weight of carbon, dollars a tonne of CO2e, whether or not the limits state one."""

    option: ClassVar[str] = "--carbon"
    usd_per_tonne: Usd

    def __str__(self) -> str:
        return f"carbon ${self.usd_per_tonne} a tonne"

    def apply(self, request: PlanRequest) -> PlanRequest:
        """Return the request with the other weight; refused where the book knows no carbon."""
        limits = request.limits.model_copy(update={"carbon": Carbon(usd_per_tonne=self.usd_per_tonne)})
        ExternalCosts(request.book, limits)
        return replace(request, limits=limits)


Change = (
    LimitChange
    | PriceScaling
    | RegionDrop
    | DeadlineChange
    | BudgetChange
    | ConfidenceChange
    | InterruptionChange
    | JobDrop
    | CarbonChange
)


@dataclass(frozen=True, slots=True)
class Variant:
    """Changes that are made together, under a name.

    A point of sweeps has their values: as numbers in ``at``, and as written in ``values``.
    """

    name: str
    changes: tuple[Change, ...]
    at: tuple[float, ...] = ()
    values: tuple[str, ...] = ()


def apply_changes(request: PlanRequest, changes: Iterable[Change], option: str = "") -> PlanRequest:
    """Return the request after the changes, made in their order.

    InvalidInputError has every name that the request does not know, with the nearest one that it knows. Its field is
    the option of the change, or ``option`` where that is given.
    """
    problems: list[Problem] = []
    for change in changes:
        try:
            request = change.apply(request)
        except InvalidInputError as error:
            problems += (replace(problem, field=option or problem.field) for problem in error.problems)
    if problems:
        raise InvalidInputError(problems)
    return request


def _with_jobs(request: PlanRequest, change: Callable[[Job], Job], name: str) -> PlanRequest:
    jobs = tuple(change(job) if name in (job.name, ALL_JOBS) else job for job in request.jobs)
    return replace(request, jobs=jobs)


def _known_job(option: str, name: str, request: PlanRequest) -> None:
    _known(option, "job", name, [job.name for job in request.jobs])


def _known(option: str, kind: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        remedy = suggest(name, names, max_names=_MOST_NAMES) or f"there is no {kind} in what is planned"
        raise InvalidInputError.single(f"there is no {kind} {name!r}", field=option, remedy=remedy)
