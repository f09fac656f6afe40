"""Provision the gang of one order: in the plan's place, and while that fails, in the fallbacks. Whole gangs only.

Safe to call again at any time: a running order is left alone, one that a crash left half done is resumed, and one that
cannot be resumed is released before anything else is tried.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from functools import partial

from pricing.book import PriceBook
from pricing.problems import InvalidInputError
from router.controller.attempt_history import Chain, order_chain
from router.controller.causes import Cause
from router.controller.checkpoint_transfer import goes_on_from, told
from router.controller.context import Site
from router.controller.host_pool import TooFewHostsError, free_hosts
from router.controller.lifecycle import PUT_OFF
from router.controller.orders import Order
from router.controller.placement_options import Choice, short_of, with_list_prices, with_zones, zones_sold
from router.controller.provision import Trouble, make
from router.controller.quarantine import pass_over
from router.controller.release import release
from router.controller.secret_refs import resolved
from router.controller.workspaces import Before, Secrets, attempt_name, new_attempt, workspace
from router.jobs.spec import Job
from router.state.records import Attempt, NodeRecord, Phase
from terraform.module_metadata import needs_zones
from terraform.render import MAIN, SECRETS
from terraform.spec import WorkspaceSpec

_TOKEN_BYTES = 32


class Result(StrEnum):
    """The status of an order after an attempt to provision it."""

    READY = "ready"
    RUNS = "runs already"
    DONE = "done already"
    ELSEWHERE = "runs under another plan"
    NOT_DUE = "not due yet"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one order; ``attempt`` is the last one, ``cause`` why it failed."""

    order: Order
    result: Result
    attempt: Attempt | None = None
    message: str = ""
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Errand:
    """An order with everything that provisioning it needs.

    ``plan`` is the digest; ``choices`` are best first. ``checkpoint_seconds``: how often the training is to save; None:
    as it likes. ``policies``: the ``policy`` and the ``quoted_policy`` of its attempts.
    """

    plan: str
    order: Order
    choices: tuple[Choice, ...]
    job: Job
    digest: str
    book: PriceBook
    checkpoint_seconds: float | None = None
    policies: tuple[str, str] = ("", "")


def standing(site: Site, plan: str, order: Order) -> Outcome | None:
    """Return the result that the order already has, None when it is to be provisioned. Changes nothing."""
    for attempt in site.store.attempts(job=order.job, alive=True):
        if attempt.phase.is_up:
            mine = (attempt.plan, attempt.gang, attempt.start) == (plan, order.gang, order.start)
            return Outcome(order, Result.RUNS if mine else Result.ELSEWHERE, attempt, f"as {attempt.id}")
    # A training that finished is done, whatever orders the plan still has for it.
    for attempt in site.store.attempts(plan=plan, job=order.job):
        if attempt.phase is Phase.FINISHED:
            return Outcome(order, Result.DONE, attempt, f"as {attempt.id}")
    if order.start - site.deploy.patience.early > site.clock():
        return Outcome(order, Result.NOT_DUE, None, f"starts at {order.start:%Y-%m-%d %H:%MZ}")
    return None


def carry_out(site: Site, request: Errand) -> Outcome:
    """Provision the gang of an order, trying its placements in turn, and return the result.

    Never raises for what a cloud or Terraform does; NotReleasedError when a half-done attempt could not be released.
    """
    if (already := standing(site, request.plan, request.order)) is not None:
        return already
    resumed = _resume_or_release(site, request)
    if resumed is not None:
        return resumed
    outcome = Outcome(request.order, Result.FAILED, None, "every place is remembered as short", Cause.SHORT)
    for tried, choice in enumerate(_open_choices(site, request), start=1):
        if site.stop.is_set():
            return Outcome(request.order, Result.STOPPED, outcome.attempt, "stopped", Cause.STOPPED)
        outcome = _provision_choice(site, request, choice)
        if outcome.result is Result.READY:
            return outcome
        if outcome.cause is None or not outcome.cause.tries_elsewhere:
            return outcome
        if tried < len(request.choices):
            site.tell(request.order.job, "trying the next place")
    return outcome


def release_interrupted(site: Site, attempt: Attempt) -> Attempt:
    """Release an attempt that a crash left half done. NotReleasedError."""
    return release(site, attempt, attempt.reason or "crashed", attempt.message or "an earlier command was interrupted")


def is_interrupted(attempt: Attempt) -> bool:
    """Return whether the attempt is half done although nobody works on it.

    Only valid under the lock of the process that applies.
    """
    return attempt.phase in (Phase.PLANNED, Phase.PROVISIONING, Phase.RELEASING)


def _resume_or_release(site: Site, request: Errand) -> Outcome | None:
    """Resume what a crash left of this order.

    What cannot be resumed is released, and so are half-done attempts of the same job under other plans.
    """
    for attempt in site.store.attempts(job=request.order.job, alive=True):
        if not is_interrupted(attempt):
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
            if outcome.result is Result.READY or outcome.cause is Cause.STOPPED:
                return outcome
        else:
            site.tell(attempt.job, f"releasing {attempt.id}, which was interrupted")
            release_interrupted(site, attempt)
    return None


def _open_choices(site: Site, request: Errand) -> Iterator[Choice]:
    """Yield the placements whose pools are not remembered as short, checked anew before each."""
    for choice in request.choices:
        shortage = short_of(choice, site.store.shortages(site.clock()))
        if shortage is None:
            yield choice
        else:
            site.tell(request.order.job, f"{choice.place}: passed over, {shortage.why} (until {shortage.until:%H:%MZ})")


@dataclass(frozen=True, slots=True)
class Placed:
    """An attempt that is recorded in the store and not provisioned yet. ``token`` is known here alone."""

    attempt: Attempt
    choice: Choice
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Next:
    """The next attempt to record for an order.

    ``chain``: the order's attempts until now.
    """

    request: Errand
    choice: Choice
    checkpoint_seconds: float | None
    chain: Chain | None


def place(site: Site, requests: Sequence[Next]) -> list[Placed | Outcome]:
    """Record where orders are to be provisioned next, all at once; nothing is provisioned.

    Each resumes from what its earlier attempts saved. Returns a result instead of an attempt where machines would have
    no zone; that pool is avoided for a while.
    """
    sold: Sold = {}
    records = [_new_attempt(site, n.request, n.choice, n.checkpoint_seconds, n.chain, sold) for n in requests]
    made = [(one[0].attempt, one[1]) for one in records if not isinstance(one, Outcome)]
    site.store.add_attempts(made)
    for one, n in zip(records, requests, strict=True):
        if isinstance(one, Outcome):
            pass_over(site, n.choice.cloud, n.choice.region, n.choice.seats, "no zone")
    return [one if isinstance(one, Outcome) else one[0] for one in records]


def make_placed(site: Site, request: Errand, placed: Placed, when_whole: Callable[[], None] | None) -> Outcome:
    """Provision a recorded attempt, in one place, and return the result as :func:`fulfil_order` does.

    The attempt resumes from what the attempts before it have saved by now. That checkpoint is copied to its region
    first, unless there is a ``when_whole`` action: until then the attempt before it saves more.
    """
    attempt = _with_resume_point(site, request, placed.attempt, copy=when_whole is None)
    if attempt.phase is not Phase.PLANNED:
        return Outcome(request.order, Result.STOPPED, attempt, "released meanwhile", Cause.STOPPED)
    try:
        with site.choosing:
            known = site.store.nodes(attempt.id)
            spec, nodes = _build_spec(site, request.job, attempt, known, placed.choice, placed.token, request.book)
            for old, new in zip(known, nodes, strict=True):
                if old != new:
                    site.store.set_node(attempt.id, new.rank, **_changed_fields(old, new))
    except TooFewHostsError as error:
        return _fail_before_provisioning(site, request, attempt, Cause.SHORT, str(error))
    except (ValueError, InvalidInputError) as error:
        return _fail_before_provisioning(site, request, attempt, Cause.HERE, str(error))
    site.tell(attempt.job, f"making {placed.choice.place} as {attempt.id}")
    return _provision(site, request, attempt, spec, when_whole)


def _with_resume_point(site: Site, request: Errand, attempt: Attempt, *, copy: bool) -> Attempt:
    """Return the attempt with its resume point updated.

    ``copy``: the checkpoint is copied to the attempt's region where that does not take too long.
    """
    chain = _history(site, request)
    before = goes_on_from(site, request.book, attempt, chain) if copy else _resume_point(chain)
    return site.store.update(attempt.id, partial(told, before))


def _changed_fields(old: NodeRecord, new: NodeRecord) -> dict[str, object]:
    names = (item.name for item in fields(NodeRecord))
    return {name: getattr(new, name) for name in names if getattr(new, name) != getattr(old, name)}


def _fail_before_provisioning(site: Site, request: Errand, attempt: Attempt, cause: Cause, message: str) -> Outcome:
    if cause.is_the_pools:
        _remember_shortage(site, attempt, cause)
    return Outcome(request.order, Result.FAILED, release(site, attempt, cause.value, message), message, cause)


def _history(site: Site, request: Errand) -> Chain | None:
    order = request.order
    return order_chain(site.store, request.plan, order.job, order.gang, order.start)


def _resume_point(chain: Chain | None) -> Before:
    # The newest attempt is about to be provisioned: nothing can be resumed from it.
    return Before() if chain is None else chain.before


# Zones by instance type, cached by the price book and the machines that they were looked up for.
Sold = dict[tuple[object, ...], Mapping[str, str]]


def _new_attempt(
    site: Site, request: Errand, choice: Choice, checkpoint_seconds: float | None, chain: Chain | None, sold: Sold
) -> tuple[Placed, tuple[NodeRecord, ...]] | Outcome:
    order = request.order
    number = 1 if chain is None else len(chain.attempts) + 1
    name = attempt_name(site.store.id, request.plan, order, number)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        if needs_zones(choice.cloud):
            choice = with_zones(choice, _zone_by_type(site, request.book, choice, sold))
    except KeyError as error:
        what = f"no zone of {choice.region} is known that sells {error.args[0]}"
        remedy = f"write clouds.{choice.cloud}.regions.{choice.region}.zone into the deploy file"
        return Outcome(order, Result.FAILED, None, f"{what}: {remedy}", Cause.FAILED)
    choice = with_list_prices(choice, request.book)
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
        checkpoint_seconds,
        request.policies,
    )
    return Placed(attempt, choice, token), nodes


def _zone_by_type(site: Site, book: PriceBook, choice: Choice, sold: Sold) -> Mapping[str, str]:
    key = (id(book), choice.cloud, choice.region, *sorted({(s.instance_type, s.market.value) for s in choice.seats}))
    if key not in sold:
        sold[key] = zones_sold(choice, book, site.deploy.cloud(choice.cloud, choice.region).zone)
    return sold[key]


def _provision_choice(site: Site, request: Errand, choice: Choice) -> Outcome:
    order = request.order
    record = _new_attempt(site, request, choice, request.checkpoint_seconds, _history(site, request), {})
    if isinstance(record, Outcome):
        return record
    placed, nodes = record
    attempt, choice = placed.attempt, placed.choice
    try:
        # Hosts count as free until an attempt with them is in the store.
        with site.choosing:
            spec, nodes = _build_spec(site, request.job, attempt, nodes, choice, placed.token, request.book)
            site.store.add_attempt(attempt, nodes)
    except TooFewHostsError as error:
        return Outcome(order, Result.FAILED, None, str(error), Cause.SHORT)
    except (ValueError, InvalidInputError) as error:
        return Outcome(order, Result.FAILED, None, str(error), Cause.HERE)
    site.tell(order.job, f"making {choice.place} as {attempt.id}")
    return _provision(site, request, attempt, spec)


def _build_spec(
    site: Site, job: Job, attempt: Attempt, nodes: tuple[NodeRecord, ...], choice: Choice, token: str, book: PriceBook
) -> tuple[WorkspaceSpec, tuple[NodeRecord, ...]]:
    plain, secret = resolved(job, site.environment, site.deploy.secrets_of(job.team))
    hosts, nodes = free_hosts(site, attempt, nodes)
    machine = book.machine(choice.cloud, choice.seats[0].instance_type)
    fabric = (machine.fabric if machine and len(nodes) > 1 else None) or "none"
    spec = workspace(
        attempt,
        nodes,
        job,
        site.deploy,
        site.store.id,
        site.home,
        Secrets(token, plain, secret),
        fabric=fabric,
        hosts=hosts,
    )
    return spec, nodes


def _provision(
    site: Site,
    request: Errand,
    attempt: Attempt,
    spec: WorkspaceSpec | None,
    when_whole: Callable[[], None] | None = None,
) -> Outcome:
    try:
        ready = make(site, attempt, spec, when_whole)
    except Trouble as error:
        site.tell(attempt.job, f"{attempt.id}: {error.cause}: {error}")
        now = site.store.attempt(attempt.id) or attempt
        if error.cause.is_the_pools:
            _remember_shortage(site, now, error.cause)
        put_off = error.cause is Cause.STOPPED and site.stop.is_set() and attempt.resumes
        released = release(site, now, PUT_OFF if put_off else error.cause.value, str(error))
        result = Result.STOPPED if error.cause is Cause.STOPPED else Result.FAILED
        return Outcome(request.order, result, released, str(error), error.cause)
    return Outcome(request.order, Result.READY, ready, f"as {ready.id}")


def _remember_shortage(site: Site, attempt: Attempt, cause: Cause) -> None:
    pass_over(site, attempt.cloud, attempt.region, site.store.nodes(attempt.id), cause.value)


def due_at(site: Site, order: Order) -> datetime:
    """Return when provisioning of an order's gang begins."""
    return order.start - site.deploy.patience.early


__all__ = [
    "Errand",
    "Outcome",
    "Result",
    "carry_out",
    "due_at",
    "is_interrupted",
    "release_interrupted",
    "standing",
]
