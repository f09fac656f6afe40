"""Provision the gang of one order: in the plan's place, and while that fails, in the fallbacks. Whole gangs only.

Safe to call again at any time: a running order is left alone, one that a crash left half done is resumed, and one that
cannot be resumed is released before anything else is tried.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Final

from pricing.book import PriceBook
from pricing.places import RegionId
from pricing.problems import InvalidInputError
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import AttemptHistory, ResumePoint, order_history
from router.controller.history.lifecycle import POSTPONED
from router.controller.history.run_records import read_fabrics
from router.controller.plans import Order
from router.controller.provision.checkpoint_transfer import prepare_resume_point, with_resume_point
from router.controller.provision.data_transfer import attempts_in_preparation, data_location, prepare_data
from router.controller.provision.provision import ProvisionError, provision
from router.controller.provision.quarantine import mark_off, mark_short
from router.controller.provision.zone_search import first_open_placement, placements_by_zone
from router.controller.release.release import release
from router.controller.workspace.bootstrap import NodeSecrets
from router.controller.workspace.placement_options import (
    GangPlacement,
    assumed_bandwidth,
    blocking_shortage,
    fabric_of,
    fill_list_prices,
    fill_zones,
    zones_with_offers,
)
from router.controller.workspace.secret_refs import resolve_environment
from router.controller.workspace.workspaces import attempt_name, build_workspace, new_attempt
from router.faults.fault import NO_ZONE, OURS, SHORT, STOPPED, UNKNOWN_FAULT, Fault, FaultAction, describe_fault
from router.jobs.experience import Experience
from router.jobs.measured_speed import learn_fabrics
from router.jobs.spec import Job
from router.state.records import ANY, Attempt, NodeRecord, Phase
from terraform.module_metadata import module_facts
from terraform.render import MAIN, SECRETS
from terraform.spec import Host, WorkspaceSpec

_TOKEN_BYTES = 32


class TooFewHostsError(ValueError):
    """Too few hosts are free: other gangs use them, or the pool lists no addresses."""


class ProvisionStatus(StrEnum):
    """The status of an order after an attempt to provision it."""

    READY = "ready"
    RUNS = "runs already"
    DONE = "done already"
    ELSEWHERE = "runs under another plan"
    NOT_DUE = "not due yet"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ProvisionResult:
    """The result of one order; ``attempt`` is the last one, ``fault`` why it failed."""

    order: Order
    result: ProvisionStatus
    attempt: Attempt | None = None
    message: str = ""
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class ProvisionRequest:
    """An order with everything that provisioning it needs.

    ``plan`` is the digest of a plan made at ``planned_at``; ``choices`` are best first. ``checkpoint_seconds``: how
    often the training is to save; None: as it likes. ``policies``: the ``policy`` and the ``quoted_policy`` of its
    attempts.
    """

    plan: str
    order: Order
    choices: tuple[GangPlacement, ...]
    job: Job
    digest: str
    book: PriceBook
    planned_at: datetime
    checkpoint_seconds: float | None = None
    policies: tuple[str, str] = ("", "")


def existing_result(site: ControllerContext, plan: str, order: Order, planned_at: datetime) -> ProvisionResult | None:
    """Return the result that the order already has, None when it is to be provisioned. Changes nothing.

    An order is done where the job finished under this plan, or under another one in a run that began after this plan
    was made.
    """
    for attempt in site.store.attempts.find(job=order.job, alive=True):
        if attempt.phase.is_up or _is_in_preparation(site, attempt):
            return ProvisionResult(order, _standing(attempt, plan, order), attempt, f"as {attempt.id}")
    # A training that finished is done, whatever orders the plan still has for it.
    for attempt in site.store.attempts.find(job=order.job):
        if attempt.phase is Phase.FINISHED and (attempt.plan == plan or attempt.created_at > planned_at):
            return ProvisionResult(order, ProvisionStatus.DONE, attempt, f"as {attempt.id}")
    if order.start - site.deploy.timeouts.start_early > site.clock():
        return ProvisionResult(order, ProvisionStatus.NOT_DUE, None, f"starts at {order.start:%Y-%m-%d %H:%MZ}")
    return None


def _standing(attempt: Attempt, plan: str, order: Order) -> ProvisionStatus:
    mine = (attempt.plan, attempt.gang, attempt.start) == (plan, order.gang, order.start)
    return ProvisionStatus.RUNS if mine else ProvisionStatus.ELSEWHERE


def fulfil_order(site: ControllerContext, request: ProvisionRequest) -> ProvisionResult:
    """Provision the gang of an order, trying its placements in turn, and return the result.

    Never raises for what a cloud or Terraform does; NotReleasedError when a half-done attempt could not be released.
    """
    if (already := existing_result(site, request.plan, request.order, request.planned_at)) is not None:
        return already
    resumed = _resume_or_release(site, request)
    if resumed is not None:
        return resumed
    search = PlaceSearch()
    reported = ProvisionResult(request.order, ProvisionStatus.FAILED, None, "every place is remembered as short", SHORT)
    for tried, choice in enumerate(_open_choices(site, request, search), start=1):
        outcome = _provision_patiently(site, request, choice, search)
        if site.stop.is_set() and outcome.result is not ProvisionStatus.READY:
            return replace(outcome, result=ProvisionStatus.STOPPED, fault=STOPPED)
        if outcome.fault is None:
            return outcome
        # What a person has to mend is reported, whatever the places after it said.
        if reported.fault is None or reported.fault.action is not FaultAction.ELSEWHERE_OTHER_CLOUD:
            reported = outcome
        search.note(choice.cloud, choice.region, outcome.fault)
        if search.is_over:
            return reported
        if tried < len(request.choices):
            site.tell(request.order.job, "trying the next place")
    return reported


def _provision_patiently(
    site: ControllerContext, request: ProvisionRequest, choice: GangPlacement, search: PlaceSearch
) -> ProvisionResult:
    while True:
        outcome = _provision_choice(site, request, choice)
        if outcome.fault is None or site.stop.is_set():
            return outcome
        pause_s = search.pause_before_retry(outcome.fault)
        if pause_s is None:
            return outcome
        site.tell(request.order.job, f"{choice.place}: trying again" + (f" in {pause_s:g} s" if pause_s else ""))
        if site.stop.wait(pause_s):
            return outcome


def release_half_done(site: ControllerContext, attempt: Attempt) -> Attempt:
    """Release an attempt that a crash left half done. NotReleasedError."""
    return release(site, attempt, attempt.reason or "crashed", attempt.message or "an earlier command was interrupted")


def is_half_done(attempt: Attempt) -> bool:
    """Return whether the attempt is half done: somebody works on it, or a crash left it so."""
    return attempt.phase in (Phase.PLANNED, Phase.PROVISIONING, Phase.RELEASING)


def is_abandoned(site: ControllerContext, attempt: Attempt) -> bool:
    """Return whether the attempt is half done although nobody works on it.

    Only valid under the lock of the process that applies.
    """
    return is_half_done(attempt) and not _is_in_preparation(site, attempt)


def _is_in_preparation(site: ControllerContext, attempt: Attempt) -> bool:
    return attempt.phase is Phase.PLANNED and attempt.id in attempts_in_preparation(site)


def _resume_or_release(site: ControllerContext, request: ProvisionRequest) -> ProvisionResult | None:
    """Resume what a crash left of this order; release what cannot be resumed, or is of the job under other plans."""
    for attempt in site.store.attempts.find(job=request.order.job, alive=True):
        if not is_half_done(attempt):
            continue
        mine = (attempt.plan, attempt.gang, attempt.start) == (request.plan, request.order.gang, request.order.start)
        directory = site.directory(attempt.directory)
        whole = all((directory / name).is_file() for name in (MAIN, SECRETS))
        if mine and attempt.phase is Phase.PROVISIONING and whole:
            site.tell(attempt.job, f"resuming {attempt.id}, which was interrupted")
            outcome = _provision(
                site,
                request,
                _with_resume_point(site, request, attempt, copy=True) if attempt.resumes else attempt,
                None,
            )
            if outcome.result is ProvisionStatus.READY or outcome.fault is STOPPED:
                return outcome
        else:
            site.tell(attempt.job, f"releasing {attempt.id}, which was interrupted")
            release_half_done(site, attempt)
    return None


def _open_choices(site: ControllerContext, request: ProvisionRequest, search: PlaceSearch) -> Iterator[GangPlacement]:
    """Yield the placements whose pools are not remembered as short and that no fault excludes, asked before each."""
    for choice in _choices_by_zone(site, request):
        if (why := search.excludes(choice.cloud, choice.region)) is not None:
            site.tell(request.order.job, f"{choice.place}: passed over, {why}")
            continue
        shortage = blocking_shortage(choice, site.store.shortages.in_force(site.clock()))
        if shortage is None:
            yield choice
        else:
            site.tell(request.order.job, f"{choice.place}: passed over, {shortage.why} (until {shortage.until:%H:%MZ})")


def _choices_by_zone(site: ControllerContext, request: ProvisionRequest) -> Iterator[GangPlacement]:
    """Yield the placements, those without a zone in one that sells them; in another one where it turns out not to."""
    for choice in request.choices:
        places = (choice,) if module_facts(choice.cloud).zones_named else placements_by_zone(site, choice)
        if not places:
            site.tell(request.order.job, f"{choice.place}: passed over, no zone sells it to this account")
            mark_short(site, choice.cloud, choice.region, choice.seats, NO_ZONE.reason)
        shortages = site.store.shortages.in_force(site.clock())
        for place in [each for each in places if blocking_shortage(each, shortages) is None] or places[:1]:
            yield place
            after = blocking_shortage(place, site.store.shortages.in_force(site.clock()))
            if after is None or after.why != NO_ZONE.reason:
                if after is not None and place is not choice:
                    # The offer is the region's, and plans do not know which zone it is tried in.
                    mark_short(site, choice.cloud, choice.region, choice.seats, after.why)
                break


@dataclass(frozen=True, slots=True)
class PlacedAttempt:
    """An attempt that is recorded in the store and not provisioned yet. ``token`` is known here alone."""

    attempt: Attempt
    choice: GangPlacement
    token: str = field(repr=False)


def record_attempts(
    site: ControllerContext, requests: Sequence[tuple[ProvisionRequest, AttemptHistory]]
) -> list[PlacedAttempt | ProvisionResult]:
    """Record where orders are to be provisioned next, in their first placement, all at once; nothing is provisioned.

    Each resumes from what its earlier attempts, the order's history, saved. Returns a result instead of an attempt
    where machines would have no zone; that pool is avoided for a while.
    """
    sold: ZoneCache = {}
    shortages = site.store.shortages.in_force(site.clock())
    first = [first_open_placement(site, request.choices[0], shortages) for request, _ in requests]
    records = [
        _new_attempt(site, request, choice, chain, sold)
        for (request, chain), choice in zip(requests, first, strict=True)
    ]
    made = [(one[0].attempt, one[1]) for one in records if not isinstance(one, ProvisionResult)]
    site.store.attempts.add_all(made)
    for one, (request, _) in zip(records, requests, strict=True):
        if isinstance(one, ProvisionResult):
            choice = request.choices[0]
            mark_short(site, choice.cloud, choice.region, choice.seats, "no zone")
    return [one if isinstance(one, ProvisionResult) else one[0] for one in records]


def provision_recorded(
    site: ControllerContext, request: ProvisionRequest, placed: PlacedAttempt, when_whole: Callable[[], None] | None
) -> ProvisionResult:
    """Provision a recorded attempt, in one place, and return the result as :func:`fulfil_order` does.

    Its data are copied to its region first. It resumes from what the attempts before it have saved by then. That
    checkpoint is copied, too, unless there is a ``when_whole`` action: until then the attempt before it saves more.
    """
    if not prepare_data(site, request.book, placed.attempt, request.job):
        # The site was stopped without the lock: whoever takes it next releases the attempt.
        return ProvisionResult(request.order, ProvisionStatus.STOPPED, placed.attempt, "stopped", STOPPED)
    attempt = _with_resume_point(site, request, placed.attempt, copy=when_whole is None)
    return _provision_prepared(site, request, replace(placed, attempt=attempt), when_whole)


def _provision_prepared(
    site: ControllerContext, request: ProvisionRequest, placed: PlacedAttempt, when_whole: Callable[[], None] | None
) -> ProvisionResult:
    attempt = placed.attempt
    if attempt.phase is not Phase.PLANNED:
        return ProvisionResult(request.order, ProvisionStatus.STOPPED, attempt, "released meanwhile", STOPPED)
    try:
        with site.choosing:
            known = site.store.attempts.nodes(attempt.id)
            spec, nodes = _build_spec(site, request.job, attempt, known, placed.choice, placed.token, request.book)
            for old, new in zip(known, nodes, strict=True):
                changes = {
                    f.name: value for f in fields(new) if (value := getattr(new, f.name)) != getattr(old, f.name)
                }
                if changes:
                    site.store.attempts.set_node(attempt.id, new.rank, **changes)
    except TooFewHostsError as error:
        return _fail_before_provisioning(site, request, attempt, SHORT, str(error))
    except (ValueError, InvalidInputError) as error:
        return _fail_before_provisioning(site, request, attempt, OURS, str(error))
    site.tell(attempt.job, f"making {placed.choice.place} as {attempt.id}")
    return _provision(site, request, attempt, spec, when_whole)


def _with_resume_point(site: ControllerContext, request: ProvisionRequest, attempt: Attempt, *, copy: bool) -> Attempt:
    """Return the attempt with its resume point; ``copy``: its checkpoint comes to the region if there is time."""
    chain = _history(site, request)
    before = prepare_resume_point(site, request.book, attempt, chain) if copy else _resume_point(chain)
    return site.store.attempts.update(attempt.id, partial(with_resume_point, before))


def _fail_before_provisioning(
    site: ControllerContext, request: ProvisionRequest, attempt: Attempt, fault: Fault, message: str
) -> ProvisionResult:
    _remember_fault(site, attempt, fault)
    return ProvisionResult(
        request.order, ProvisionStatus.FAILED, release(site, attempt, fault.reason, message), message, fault
    )


def _history(site: ControllerContext, request: ProvisionRequest) -> AttemptHistory | None:
    order = request.order
    return order_history(site.store, request.plan, order.job, order.gang, order.start)


def _resume_point(chain: AttemptHistory | None) -> ResumePoint:
    # The newest attempt is about to be provisioned: nothing can be resumed from it.
    return ResumePoint() if chain is None else chain.before


# Zones by instance type, cached by the price book and the machines that they were looked up for.
ZoneCache = dict[tuple[object, ...], Mapping[str, str]]


def _new_attempt(
    site: ControllerContext,
    request: ProvisionRequest,
    choice: GangPlacement,
    chain: AttemptHistory | None,
    sold: ZoneCache,
) -> tuple[PlacedAttempt, tuple[NodeRecord, ...]] | ProvisionResult:
    order = request.order
    number = 1 if chain is None else len(chain.attempts) + 1
    name = attempt_name(site.store.id, request.plan, order, number)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        if module_facts(choice.cloud).zones_named:
            types = {(s.instance_type, s.market.value) for s in choice.seats}
            key = (id(request.book), choice.cloud, choice.region, *sorted(types))
            if key not in sold:
                sold[key] = zones_with_offers(choice, request.book, site.deploy.cloud(choice.cloud, choice.region).zone)
            choice = fill_zones(choice, sold[key])
    except KeyError as error:
        what = f"no zone of {choice.region} is known that sells {error.args[0]}"
        remedy = f"write clouds.{choice.cloud}.regions.{choice.region}.zone into the deploy file"
        return ProvisionResult(order, ProvisionStatus.FAILED, None, f"{what}: {remedy}", NO_ZONE)
    choice = fill_list_prices(choice, request.book)
    attempt, nodes = new_attempt(
        name,
        request.plan,
        order,
        choice,
        number,
        request.job,
        request.digest,
        token,
        site.clock(),
        _resume_point(chain),
        request.checkpoint_seconds,
        request.policies,
    )
    return PlacedAttempt(attempt, choice, token), nodes


def _provision_choice(site: ControllerContext, request: ProvisionRequest, choice: GangPlacement) -> ProvisionResult:
    order = request.order
    record = _new_attempt(site, request, choice, _history(site, request), {})
    if isinstance(record, ProvisionResult):
        return record
    placed, nodes = record
    attempt, choice = placed.attempt, placed.choice
    try:
        # Hosts count as free until an attempt with them is in the store.
        with site.choosing:
            spec, nodes = _build_spec(site, request.job, attempt, nodes, choice, placed.token, request.book)
            site.store.attempts.add(attempt, nodes)
    except TooFewHostsError as error:
        return ProvisionResult(order, ProvisionStatus.FAILED, None, str(error), SHORT)
    except (ValueError, InvalidInputError) as error:
        return ProvisionResult(order, ProvisionStatus.FAILED, None, str(error), OURS)
    if request.job.data is not None:
        # What was built above shows early that something is missing; now the machines hear where the data are.
        if not prepare_data(site, request.book, attempt, request.job):
            return ProvisionResult(order, ProvisionStatus.STOPPED, attempt, "stopped", STOPPED)
        now = site.store.attempts.get(attempt.id) or attempt
        return _provision_prepared(site, request, replace(placed, attempt=now, choice=choice), None)
    site.tell(order.job, f"making {choice.place} as {attempt.id}")
    return _provision(site, request, attempt, spec)


def _build_spec(
    site: ControllerContext,
    job: Job,
    attempt: Attempt,
    nodes: tuple[NodeRecord, ...],
    choice: GangPlacement,
    token: str,
    book: PriceBook,
) -> tuple[WorkspaceSpec, tuple[NodeRecord, ...]]:
    plain, secret = resolve_environment(job, site.environment, site.deploy.secrets_of(job.team))
    hosts, nodes = assign_hosts(site, attempt, nodes)
    fabric = fabric_of(choice, book) if len(nodes) > 1 else "none"
    measured = read_fabrics(site.store) if len(nodes) > 1 else ()
    learned = Experience(fabrics=learn_fabrics(measured, site.clock()))
    spec = build_workspace(
        attempt,
        nodes,
        job,
        site.deploy,
        site.store.id,
        site.home,
        NodeSecrets(token, plain, secret),
        data=data_location(site.store, job, RegionId(attempt.cloud, attempt.region)),
        fabric=fabric,
        hosts=hosts,
        assumed_gb_per_s=assumed_bandwidth(choice, book, learned),
    )
    return spec, nodes


def _provision(
    site: ControllerContext,
    request: ProvisionRequest,
    attempt: Attempt,
    spec: WorkspaceSpec | None,
    when_whole: Callable[[], None] | None = None,
) -> ProvisionResult:
    try:
        ready = provision(site, attempt, spec, when_whole)
    except ProvisionError as error:
        site.tell(attempt.job, f"{attempt.id}: {describe_fault(error.fault, attempt.region)}: {error}")
        now = site.store.attempts.get(attempt.id) or attempt
        _remember_fault(site, now, error.fault)
        put_off = error.fault is STOPPED and site.stop.is_set() and attempt.resumes
        released = release(site, now, POSTPONED if put_off else error.fault.reason, str(error))
        result = ProvisionStatus.STOPPED if error.fault is STOPPED else ProvisionStatus.FAILED
        return ProvisionResult(request.order, result, released, str(error), error.fault)
    return ProvisionResult(request.order, ProvisionStatus.READY, ready, f"as {ready.id}")


def _remember_fault(site: ControllerContext, attempt: Attempt, fault: Fault) -> None:
    if fault.holds_in_region:
        mark_off(site, attempt, attempt.region, fault.reason)
    elif fault.action is FaultAction.ELSEWHERE_OTHER_CLOUD and fault != UNKNOWN_FAULT:
        mark_off(site, attempt, ANY, fault.reason)
    elif fault.marks_pool:
        mark_short(site, attempt.cloud, attempt.region, site.store.attempts.nodes(attempt.id), fault.reason)


def assign_hosts(
    site: ControllerContext, attempt: Attempt, nodes: tuple[NodeRecord, ...]
) -> tuple[Mapping[int, Host], tuple[NodeRecord, ...]]:
    """Return a free host for each rank, and the nodes with their addresses; no hosts where machines are created.

    Raises TooFewHostsError.
    """
    if not module_facts(attempt.cloud).hosts_named:
        return {}, nodes
    used = {
        node.address
        for other in site.store.attempts.find(alive=True)
        if other.cloud == attempt.cloud and other.id != attempt.id
        for node in site.store.attempts.nodes(other.id)
    }
    hosts: dict[int, Host] = {}
    for node in nodes:
        free = (host for host in site.pool.get((attempt.region, node.instance_type), ()) if host.address not in used)
        host = next(free, None)
        if host is None:
            raise TooFewHostsError(
                f"{attempt.region} has too few free {node.instance_type} with an address: {len(nodes)} are needed"
            )
        used.add(host.address)
        hosts[node.rank] = host
    return hosts, tuple(replace(node, address=hosts[node.rank].address) for node in nodes)


# A place is asked again once after a fault that passes, and twice after these pauses where a cloud limits the rate.
_RETRIES: Final = 1
_PAUSES_S: Final = (20.0, 60.0)


@dataclass(slots=True)
class PlaceSearch:
    """The faults that one order met: what they exclude, and whether the search is over.

    A fault of a region excludes the region, one of the account its cloud. Words that nobody knows are tried once more,
    in another cloud.
    """

    _regions: dict[tuple[str, str], Fault] = field(default_factory=dict)
    _clouds: dict[str, Fault] = field(default_factory=dict)
    _unknown: int = 0
    _retries: Counter[FaultAction] = field(default_factory=Counter)
    is_over: bool = False

    def note(self, cloud: str, region: str, fault: Fault) -> None:
        """Take in the fault that ended the tries in one place."""
        self._retries.clear()
        if fault.holds_in_region:
            self._regions[cloud, region] = fault
        if fault.action in (FaultAction.ELSEWHERE_OTHER_CLOUD, FaultAction.RETRY_LATER):
            self._clouds[cloud] = fault
        if fault == UNKNOWN_FAULT:
            self._unknown += 1
        self.is_over = fault.action is FaultAction.STOP_WITH_REMEDY or self._unknown > 1

    def excludes(self, cloud: str, region: str) -> str | None:
        """Return why a place is not worth a try; None if it is."""
        fault = self._clouds.get(cloud) or self._regions.get((cloud, region))
        return None if fault is None else describe_fault(fault, region)

    def pause_before_retry(self, fault: Fault) -> float | None:
        """Return the seconds until the same place is asked again; None if it is not."""
        pauses = {FaultAction.RETRY_SAME: (0.0,) * _RETRIES, FaultAction.RETRY_LATER: _PAUSES_S}.get(fault.action, ())
        tried = self._retries[fault.action]
        self._retries[fault.action] += 1
        return pauses[tried] if tried < len(pauses) else None
