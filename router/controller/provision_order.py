"""Carrying one order out: the plan's place, and while that cannot be had whole, the next ones. Whole gangs only.

Safe to call again at any time: an order that runs is left alone, one that a crash left half made is taken up, and one
that cannot be taken up is released before anything else is tried.
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
    """What came of an order."""

    READY = "ready"
    RUNS = "runs already"
    DONE = "done already"
    ELSEWHERE = "runs under another plan"
    NOT_DUE = "not due yet"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one order; ``attempt`` is the last one, ``cause`` why it failed."""

    order: Order
    result: Result
    attempt: Attempt | None = None
    message: str = ""
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Errand:
    """An order with everything that carrying it out needs. ``plan`` is the digest; ``choices`` best first.
    ``checkpoint_seconds``: how often the training is to save; None: as it likes. ``policies``: the ``policy`` and the
    ``quoted_policy`` of its attempts."""

    plan: str
    order: Order
    choices: tuple[Choice, ...]
    job: Job
    digest: str
    book: PriceBook
    checkpoint_seconds: float | None = None
    policies: tuple[str, str] = ("", "")


def standing(site: Site, plan: str, order: Order) -> Outcome | None:
    """What already came of the order, None when it is to be carried out. Changes nothing."""
    for attempt in site.store.attempts(job=order.job, alive=True):
        if attempt.phase.is_up:
            mine = (attempt.plan, attempt.gang, attempt.start) == (plan, order.gang, order.start)
            return Outcome(order, Result.RUNS if mine else Result.ELSEWHERE, attempt, f"as {attempt.id}")
    # A training that ended well is done, whatever stretches the plan still has for it.
    for attempt in site.store.attempts(plan=plan, job=order.job):
        if attempt.phase is Phase.FINISHED:
            return Outcome(order, Result.DONE, attempt, f"as {attempt.id}")
    if order.start - site.deploy.patience.early > site.clock():
        return Outcome(order, Result.NOT_DUE, None, f"starts at {order.start:%Y-%m-%d %H:%MZ}")
    return None


def carry_out(site: Site, errand: Errand) -> Outcome:
    """Makes the gang. Never raises for what a cloud or Terraform does; NotReleasedError when something half made could
    not be released."""
    if (already := standing(site, errand.plan, errand.order)) is not None:
        return already
    taken_up = _take_up(site, errand)
    if taken_up is not None:
        return taken_up
    outcome = Outcome(errand.order, Result.FAILED, None, "every place is remembered as short", Cause.SHORT)
    for tried, choice in enumerate(_in_order(site, errand), start=1):
        if site.stop.is_set():
            return Outcome(errand.order, Result.STOPPED, outcome.attempt, "stopped", Cause.STOPPED)
        outcome = _try(site, errand, choice)
        if outcome.result is Result.READY:
            return outcome
        if outcome.cause is None or not outcome.cause.tries_elsewhere:
            return outcome
        if tried < len(errand.choices):
            site.tell(errand.order.job, "trying the next place")
    return outcome


def release_interrupted(site: Site, attempt: Attempt) -> Attempt:
    """Ends an attempt that a crash left between two states. NotReleasedError."""
    return release(site, attempt, attempt.reason or "crashed", attempt.message or "an earlier command was interrupted")


def is_interrupted(attempt: Attempt) -> bool:
    """Whether nobody is at work on it though it is between two states: only true under the lock of whoever applies."""
    return attempt.phase in (Phase.PLANNED, Phase.PROVISIONING, Phase.RELEASING)


def _take_up(site: Site, errand: Errand) -> Outcome | None:
    """Goes on with what a crash left of this order; releases what cannot be gone on with, and what is left of the same
    job under other plans."""
    for attempt in site.store.attempts(job=errand.order.job, alive=True):
        if not is_interrupted(attempt):
            continue
        mine = (attempt.plan, attempt.gang, attempt.start) == (errand.plan, errand.order.gang, errand.order.start)
        directory = site.directory(attempt.directory)
        whole = all((directory / name).is_file() for name in (MAIN, SECRETS))
        if mine and attempt.phase is Phase.PROVISIONING and whole:
            site.tell(attempt.job, f"taking up {attempt.id}, which was interrupted")
            outcome = _made(
                site, errand, _told(site, errand, attempt, brings=True) if attempt.resumes else attempt, None
            )
            if outcome.result is Result.READY or outcome.cause is Cause.STOPPED:
                return outcome
        else:
            site.tell(attempt.job, f"releasing {attempt.id}, which was interrupted")
            release_interrupted(site, attempt)
    return None


def _in_order(site: Site, errand: Errand) -> Iterator[Choice]:
    """The choices whose pools are not remembered as short, asked anew before each."""
    for choice in errand.choices:
        shortage = short_of(choice, site.store.shortages(site.clock()))
        if shortage is None:
            yield choice
        else:
            site.tell(errand.order.job, f"{choice.place}: passed over, {shortage.why} (until {shortage.until:%H:%MZ})")


@dataclass(frozen=True, slots=True)
class Placed:
    """An attempt that is in the store, and of which nothing was made yet. ``token`` is known here alone."""

    attempt: Attempt
    choice: Choice
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Next:
    """Where an order is to be made next. ``chain``: its attempts until now."""

    errand: Errand
    choice: Choice
    checkpoint_seconds: float | None
    chain: Chain | None


def place(site: Site, wanted: Sequence[Next]) -> list[Placed | Outcome]:
    """Writes down where orders are to be made next, all at once; nothing is made. Each goes on from what its earlier
    attempts saved. An Outcome for one whose machines would have no zone; that pool is passed over for a while."""
    sold: Sold = {}
    found = [_new(site, n.errand, n.choice, n.checkpoint_seconds, n.chain, sold) for n in wanted]
    made = [(one[0].attempt, one[1]) for one in found if not isinstance(one, Outcome)]
    site.store.add_attempts(made)
    for one, n in zip(found, wanted, strict=True):
        if isinstance(one, Outcome):
            pass_over(site, n.choice.cloud, n.choice.region, n.choice.seats, "no zone")
    return [one if isinstance(one, Outcome) else one[0] for one in found]


def make_placed(site: Site, errand: Errand, placed: Placed, when_whole: Callable[[], None] | None) -> Outcome:
    """Makes the gang of :func:`place`; it knows what the attempts before it have saved by now, which is brought to its
    region before, unless something is done ``when_whole``: until then the one before it saves more. As
    :func:`carry_out`, in one place."""
    attempt = _told(site, errand, placed.attempt, brings=when_whole is None)
    if attempt.phase is not Phase.PLANNED:
        return Outcome(errand.order, Result.STOPPED, attempt, "released meanwhile", Cause.STOPPED)
    try:
        with site.choosing:
            known = site.store.nodes(attempt.id)
            spec, nodes = _workspace(site, errand.job, attempt, known, placed.choice, placed.token, errand.book)
            for old, new in zip(known, nodes, strict=True):
                if old != new:
                    site.store.set_node(attempt.id, new.rank, **_changed(old, new))
    except TooFewHostsError as error:
        return _not_made(site, errand, attempt, Cause.SHORT, str(error))
    except (ValueError, InvalidInputError) as error:
        return _not_made(site, errand, attempt, Cause.HERE, str(error))
    site.tell(attempt.job, f"making {placed.choice.place} as {attempt.id}")
    return _made(site, errand, attempt, spec, when_whole)


def _told(site: Site, errand: Errand, attempt: Attempt, *, brings: bool) -> Attempt:
    """The attempt, which knows what those before it saved; ``brings``: to its region, where that takes not too long."""
    chain = _chain(site, errand)
    before = goes_on_from(site, errand.book, attempt, chain) if brings else _before(chain)
    return site.store.update(attempt.id, partial(told, before))


def _changed(old: NodeRecord, new: NodeRecord) -> dict[str, object]:
    names = (item.name for item in fields(NodeRecord))
    return {name: getattr(new, name) for name in names if getattr(new, name) != getattr(old, name)}


def _not_made(site: Site, errand: Errand, attempt: Attempt, cause: Cause, message: str) -> Outcome:
    if cause.is_the_pools:
        _remember(site, attempt, cause)
    return Outcome(errand.order, Result.FAILED, release(site, attempt, cause.value, message), message, cause)


def _chain(site: Site, errand: Errand) -> Chain | None:
    order = errand.order
    return order_chain(site.store, errand.plan, order.job, order.gang, order.start)


def _before(chain: Chain | None) -> Before:
    # Of the newest itself, which is about to be made, nothing can be gone on from.
    return Before() if chain is None else chain.before


# Zones by offers that were looked through, and what was looked for.
Sold = dict[tuple[object, ...], Mapping[str, str]]


def _new(
    site: Site, errand: Errand, choice: Choice, checkpoint_seconds: float | None, chain: Chain | None, sold: Sold
) -> tuple[Placed, tuple[NodeRecord, ...]] | Outcome:
    order = errand.order
    number = 1 if chain is None else len(chain.attempts) + 1
    name = attempt_name(site.store.id, errand.plan, order, number)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        if needs_zones(choice.cloud):
            choice = with_zones(choice, _zones(site, errand.book, choice, sold))
    except KeyError as error:
        what = f"no zone of {choice.region} is known that sells {error.args[0]}"
        remedy = f"write clouds.{choice.cloud}.regions.{choice.region}.zone into the deploy file"
        return Outcome(order, Result.FAILED, None, f"{what}: {remedy}", Cause.FAILED)
    choice = with_list_prices(choice, errand.book)
    attempt, nodes = new_attempt(
        name,
        errand.plan,
        order,
        choice,
        number,
        errand.job,
        errand.digest,
        token,
        site.clock(),
        _before(chain),
        checkpoint_seconds,
        errand.policies,
    )
    return Placed(attempt, choice, token), nodes


def _zones(site: Site, book: PriceBook, choice: Choice, sold: Sold) -> Mapping[str, str]:
    key = (id(book), choice.cloud, choice.region, *sorted({(s.instance_type, s.market.value) for s in choice.seats}))
    if key not in sold:
        sold[key] = zones_sold(choice, book, site.deploy.cloud(choice.cloud, choice.region).zone)
    return sold[key]


def _try(site: Site, errand: Errand, choice: Choice) -> Outcome:
    order = errand.order
    found = _new(site, errand, choice, errand.checkpoint_seconds, _chain(site, errand), {})
    if isinstance(found, Outcome):
        return found
    placed, nodes = found
    attempt, choice = placed.attempt, placed.choice
    try:
        # Hosts are free until an attempt with them is in the store.
        with site.choosing:
            spec, nodes = _workspace(site, errand.job, attempt, nodes, choice, placed.token, errand.book)
            site.store.add_attempt(attempt, nodes)
    except TooFewHostsError as error:
        return Outcome(order, Result.FAILED, None, str(error), Cause.SHORT)
    except (ValueError, InvalidInputError) as error:
        return Outcome(order, Result.FAILED, None, str(error), Cause.HERE)
    site.tell(order.job, f"making {choice.place} as {attempt.id}")
    return _made(site, errand, attempt, spec)


def _workspace(
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


def _made(
    site: Site,
    errand: Errand,
    attempt: Attempt,
    spec: WorkspaceSpec | None,
    when_whole: Callable[[], None] | None = None,
) -> Outcome:
    try:
        ready = make(site, attempt, spec, when_whole)
    except Trouble as trouble:
        site.tell(attempt.job, f"{attempt.id}: {trouble.cause}: {trouble}")
        now = site.store.attempt(attempt.id) or attempt
        if trouble.cause.is_the_pools:
            _remember(site, now, trouble.cause)
        put_off = trouble.cause is Cause.STOPPED and site.stop.is_set() and attempt.resumes
        released = release(site, now, PUT_OFF if put_off else trouble.cause.value, str(trouble))
        result = Result.STOPPED if trouble.cause is Cause.STOPPED else Result.FAILED
        return Outcome(errand.order, result, released, str(trouble), trouble.cause)
    return Outcome(errand.order, Result.READY, ready, f"as {ready.id}")


def _remember(site: Site, attempt: Attempt, cause: Cause) -> None:
    pass_over(site, attempt.cloud, attempt.region, site.store.nodes(attempt.id), cause.value)


def due_at(site: Site, order: Order) -> datetime:
    """When the gang of an order is begun to be made."""
    return order.start - site.deploy.patience.early


__all__ = [
    "Errand", "Outcome", "Result", "carry_out", "due_at", "is_interrupted", "release_interrupted",
    "standing",
]  # fmt: skip
