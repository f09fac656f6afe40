"""Requests of plans with the change in their inputs that a figure of a plan is about: a raised limit, a relaxation."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from pricing.money import NANOS, Usd, UsdPerHour
from router.jobs.quantities import Moment, parse_duration
from router.jobs.residency import Residency
from router.jobs.spec import Job, MarketRule
from router.planning.document.plan import Relaxation, ShadowPrice
from router.planning.planner import PlanRequest

_BUDGET = "budget of team "
Change = Callable[[PlanRequest, Job, Relaxation], PlanRequest]


def relaxed(request: PlanRequest, name: str, found: Relaxation) -> PlanRequest:
    """The request with the change of the relaxation's words made in job, limits or book."""
    job = next(j for j in request.jobs if j.name == name)
    return next(change for form, change in FORMS if re.fullmatch(form, found.change))(request, job, found)


def raised(request: PlanRequest, price: ShadowPrice) -> PlanRequest:
    """The request with as much more of the limit or budget as the figure says."""
    if price.limit.startswith(_BUDGET):
        return with_team_budget(request, price.limit.removeprefix(_BUDGET), Usd(price.raised_by * NANOS))
    return with_more_of(request, price.limit, price.raised_by)


def with_job(request: PlanRequest, job: Job) -> PlanRequest:
    """The request with another job of the same name."""
    return replace(request, jobs=tuple(job if j.name == job.name else j for j in request.jobs))


def with_team_budget(request: PlanRequest, team: str, more: Usd) -> PlanRequest:
    """The request with a larger budget of the team."""
    teams = tuple(
        t.model_copy(update={"budget": t.budget + more}) if t.team == team else t for t in request.limits.teams
    )
    return replace(request, limits=request.limits.model_copy(update={"teams": teams}))


def with_more_of(request: PlanRequest, name: str, more: int) -> PlanRequest:
    """The request with more of a limit of the file, of an offer's capacity or of a reservation."""
    capacity = re.fullmatch(r"capacity (\w+)/([\w-]+)(?:/([\w-]+))?/([\w.-]+)/(\w+)(?:\((.+)\))?", name)
    if capacity is None:
        limits = tuple(
            limit.model_copy(update={"amount": limit.amount + more}) if limit.name == name else limit
            for limit in request.limits.limits
        )
        return replace(request, limits=request.limits.model_copy(update={"limits": limits}))
    cloud, region, zone, instance_type, market, reservation = capacity.groups()
    if market == "reserved":
        reservations = tuple(
            r.model_copy(update={"machines": r.machines + more}) if r.name == reservation else r
            for r in request.limits.reservations
        )
        return replace(request, limits=request.limits.model_copy(update={"reservations": reservations}))
    place = (cloud, region, zone, instance_type, market)
    default = request.limits.default_cap_machines
    offers = []
    for o in request.book.offers:
        cap = o.machines_cap if o.machines_cap is not None else default
        same = (o.cloud, o.region, o.zone, o.instance_type, o.market.value) == place
        offers.append(replace(o, machines_cap=cap + more) if same and cap is not None else o)
    return replace(request, book=request.book.with_offers(offers))


def _later(request: PlanRequest, job: Job, found: Relaxation) -> PlanRequest:
    more = timedelta(hours=int(found.change.removeprefix("+").removesuffix(" h")))
    assert job.deadline is not None
    moment = Moment.parse((job.deadline.at(request.now) + more).isoformat())
    return with_job(request, job.model_copy(update={"deadline": moment}))


def _richer(request: PlanRequest, job: Job, found: Relaxation) -> PlanRequest:
    more = Usd.parse(found.change.removeprefix("+$").replace(",", ""))
    if "budget of team" in found.detail:
        return with_team_budget(request, job.team, more)
    assert job.budget is not None
    return with_job(request, job.model_copy(update={"budget": job.budget + more}))


def _wider(request: PlanRequest, job: Job, found: Relaxation) -> PlanRequest:
    """The region is allowed beside what was allowed, and forbidden no longer."""
    place = found.change.removeprefix("allow ")
    allow = [str(rule) for rule in job.residency.allow]
    rules = Residency.model_validate({"allow": [*allow, place] if allow else []})
    return with_job(request, job.model_copy(update={"residency": rules}))


def _more_patient(request: PlanRequest, job: Job, found: Relaxation) -> PlanRequest:
    wait = parse_duration(found.change.removeprefix("max_wait "))
    return with_job(request, job.model_copy(update={"max_wait": wait}))


def _any_market(request: PlanRequest, job: Job, _: Relaxation) -> PlanRequest:
    return with_job(request, job.model_copy(update={"market": MarketRule()}))


def _more_egress(request: PlanRequest, job: Job, found: Relaxation) -> PlanRequest:
    gib = float(found.change.removeprefix("raise the egress cap to ").removesuffix(" GiB").replace(",", ""))
    assert job.data is not None
    assert job.data.egress_cap is not None
    cap = job.data.egress_cap.model_copy(update={"gib": gib, "usd": None})
    return with_job(request, job.model_copy(update={"data": job.data.model_copy(update={"egress_cap": cap})}))


def _any_fabric(request: PlanRequest, job: Job, _: Relaxation) -> PlanRequest:
    return with_job(request, job.model_copy(update={"gang": job.gang.model_copy(update={"rdma": "optional"})}))


def _more_saves(request: PlanRequest, job: Job, found: Relaxation) -> PlanRequest:
    assert job.checkpoint is not None
    interval = parse_duration(found.change.removeprefix("checkpoint interval "))
    checkpoint = job.checkpoint.model_copy(update={"interval": interval})
    return with_job(request, job.model_copy(update={"checkpoint": checkpoint}))


def _any_machines(request: PlanRequest, job: Job, _: Relaxation) -> PlanRequest:
    return with_job(request, job.model_copy(update={"gang": job.gang.model_copy(update={"machines": None})}))


def _any_placement(request: PlanRequest, job: Job, _: Relaxation) -> PlanRequest:
    return with_job(request, job.model_copy(update={"placement": "none"}))


def _dearer(request: PlanRequest, job: Job, found: Relaxation) -> PlanRequest:
    stated = found.change.removeprefix("max_price $")
    cap = None if found.change == "no max_price" else UsdPerHour.parse(stated)
    return with_job(request, job.model_copy(update={"max_price": cap}))


def _roomier(request: PlanRequest, _: Job, found: Relaxation) -> PlanRequest:
    for part in found.change.split(", +"):
        matched = re.fullmatch(r"\+?(\d+) \w+ of (.+)", part)
        assert matched is not None
        request = with_more_of(request, matched[2], int(matched[1]))
    return request


FORMS: tuple[tuple[str, Change], ...] = (
    (r"\+\d+ h", _later),
    (r"\+\$[\d,]+\.\d\d", _richer),
    (r"max_wait \w+", _more_patient),
    (r"allow (spot|on-demand)", _any_market),
    (r"allow [a-z]+/[\w-]+", _wider),
    (r"raise the egress cap to [\d,]+ GiB", _more_egress),
    (r"do without an RDMA fabric", _any_fabric),
    (r"any number of machines", _any_machines),
    (r"checkpoint interval \w+", _more_saves),
    (r"placement none", _any_placement),
    (r"max_price \$\d+\.\d\d|no max_price", _dearer),
    (r"\+\d+ (machines|accelerators|vcpus) of .+", _roomier),
)
