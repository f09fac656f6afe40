"""Accept quotes: make the plan of one within a ceiling, and record who accepted it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from pricing.money import NANOS_PER_CENT, Usd
from pricing.places import Market
from pricing.problems import InvalidInputError
from pricing.units import format_utc
from router.access.identity import Permission
from router.app.budgets import BooksFolders, budget_constraints
from router.app.learned import RunReader, read_no_runs
from router.app.plan import store_plan_inputs
from router.app.queries.context import QueryContext
from router.app.queries.plans import whole_plan
from router.app.queries.quote_questions import limits_of_quote
from router.app.queries.quotes import find_quote, quotes_folder_of
from router.app.quotes import plan_request_of, with_quoted_policy
from router.app.stored_quotes import put_acceptance, put_quote
from router.config.job_files import read_limits
from router.config.plan_files import QuoteAcceptance, StoredQuote
from router.controller.accept.accept import APPLY
from router.controller.history.lifecycle import RESUMABLE_REASONS
from router.controller.plans import BudgetConstraints
from router.jobs.job_json import job_json
from router.jobs.limits import Limits
from router.planning.document.plan import Line, LineFallback, Plan
from router.planning.document.plan_json import plan_content, plan_to_json
from router.planning.document.plan_names import QUOTE
from router.planning.planner import PlanRequest, make_plan
from router.planning.problem.current_use import PromisedMachines, RunningMachines, peak_use
from router.render.plan_text import describe_relaxation
from router.render.tables import format_usd

Progress = Callable[[str], None]


class QuoteStaleError(Exception):
    """The quote was valid until earlier; ``remedy`` says what to do."""

    remedy = "ask for the quote again"


class QuoteUnplacedError(Exception):
    """The job cannot be planned within the ceiling; ``remedy`` says what would help.

    ``field`` is the part of an acceptance that may change that: the ceiling, or what is meant by it.
    """

    field = "ceiling"

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class QuoteLaterError(QuoteUnplacedError):
    """The plan would start when the quote holds no longer; whoever accepts it says that this is meant."""

    field = "later"


class QuoteAcceptedError(Exception):
    """The quote was accepted before; ``plan`` is the digest of its plan, "" where only that is known."""

    def __init__(self, message: str, plan: str) -> None:
        super().__init__(message)
        self.plan = plan


@dataclass(frozen=True, slots=True)
class AcceptanceInputs:
    """The inputs of a quote's plan, as on the command line.

    ``budgets`` and ``runs`` are what the state knows. ``reads_files``: the job's file counts where the quote names one,
    so that a job that was changed since is refused. A ``limits_file`` or ``quotas`` replace the quote's own limits.
    ``later``: a plan that starts later than quoted is accepted too.
    """

    now: datetime
    book: str = "latest"
    limits_file: Path | None = None
    quotas: str | None = None
    budgets: BudgetConstraints = field(default_factory=BudgetConstraints)
    runs: RunReader = read_no_runs
    reads_files: bool = False
    later: bool = False


@dataclass(frozen=True, slots=True)
class PreparedAcceptance:
    """A quote that may be accepted now, with the ceiling and the request of its plan.

    ``is_confined``: the job says more gangs or markets than the quote counts on, which the plan keeps to.
    """

    stored: StoredQuote
    ceiling: Usd
    request: PlanRequest
    is_confined: bool
    inputs: AcceptanceInputs
    limits: Path | Limits | None = None

    @property
    def limits_to_store(self) -> Limits | None:
        """Return the limits of quote, file and readings, without the budgets of the state; None without any."""
        limits = self.limits
        if limits is None and not self.request.limit_sources:
            return None
        written = Limits.none() if limits is None else limits if isinstance(limits, Limits) else read_limits(limits)
        return self.request.limits.model_copy(update={"teams": written.teams})


def prepare_acceptance(
    context: QueryContext, name: str, ceiling: Usd | None, inputs: AcceptanceInputs
) -> PreparedAcceptance:
    """Check that a quote can be accepted, and return the request of its plan.

    The ceiling is by default :attr:`Quote.ceiling_usd`; the limits are those of the quote. QuoteStaleError;
    InvalidInputError as :func:`find_quote`, without a ceiling, for a job that was changed, for limits that are lost.
    """
    stored = find_quote(context, name)
    quote = stored.quote
    context.identity.require(Permission.ACCEPT_QUOTES, quote.team or None)
    _check_valid(stored, inputs.now)
    limit = _ceiling_of(stored, ceiling)
    limits = _limits_of(context, stored, inputs)
    reads_files = bool(quote.files) and (inputs.reads_files or stored.document is None)
    quoted = plan_request_of(
        quote,
        limit,
        inputs.book,
        limits,
        inputs.now,
        inputs.budgets.limits,
        inputs.quotas,
        inputs.runs,
        document=None if reads_files else stored.document,
    )
    request = quoted.request
    promised = find_promised_machines(context, quote.job, inputs.now)
    beside = peak_use(promised, inputs.now, quote.deadline, request.book, request.limits)
    return PreparedAcceptance(stored, limit, replace(request, beside=beside), quoted.is_confined, inputs, limits)


def plan_quote(prepared: PreparedAcceptance, progress: Progress) -> Plan:
    """Return the plan of a quote beside all other jobs, run by the policy that it was made for.

    QuoteUnplacedError; QuoteLaterError where the plan starts after the quote is valid, unless that is meant.
    """
    quote = prepared.stored.quote
    plan = make_plan(prepared.request, progress=progress)
    if plan.unplaced:
        left_out = plan.unplaced[0]
        hints = "; ".join(map(describe_relaxation, left_out.relaxations))
        beside = " beside what other jobs hold or are planned to" if prepared.request.beside else ""
        raise QuoteUnplacedError(
            f"{quote.job} cannot be planned within ${prepared.ceiling.dollars():,.2f}{beside}: {left_out.reason}",
            hints or "raise --ceiling, or quote again",
        )
    begin = min(line.start for line in plan.lines)
    if begin > max(quote.valid_until, quote.start) and not prepared.inputs.later:
        raise QuoteLaterError(*_later_words(prepared, plan, begin))
    return replace(with_quoted_policy(plan, quote.run_policy), name=QUOTE)


def _later_words(prepared: PreparedAcceptance, plan: Plan, begin: datetime) -> tuple[str, str]:
    """Return what a plan that starts later promises and the quote did not, and what to do."""
    quote, (job,) = prepared.stored.quote, plan.jobs
    done = f"{job.finish:%Y-%m-%d %H:%MZ}" if job.finish is not None else "a time that is not known"
    quoted = "" if quote.finish_p90 is None else f" (quoted: 9 of 10 by {quote.finish_p90:%Y-%m-%d %H:%MZ})"
    why = "other jobs hold its machines, or are planned to" if prepared.request.beside else "limits or prices changed"
    ordered = "" if any(line.orderable for line in plan.lines) else ", so that nothing is ordered tonight"
    what = f"{quote.job} would start later than quoted: at {begin:%Y-%m-%d %H:%MZ}{ordered}"
    return (
        f"{what}, with time reserved until {done}{quoted}; {why}",
        "accept it although it starts later, or quote again",
    )


def describe_other_cost(prepared: PreparedAcceptance, plan: Plan) -> str:
    """Return why the plan expects another cost than the quote said of a plan; "" where it does not, to the cent."""
    quote = prepared.stored.quote
    if quote.plan_usd is None or abs(plan.cost_usd.nanos - quote.plan_usd.nanos) <= NANOS_PER_CENT:
        return ""
    reasons = []
    if prepared.is_confined:
        gangs = dict.fromkeys(f"{place.accelerators} x {place.accelerator}" for place in quote.places)
        also = ", also for its fallback" if any(line.fallback is not None for line in plan.lines) else ""
        reasons.append(f"it keeps to the gangs and markets that the quote counts on ({', '.join(gangs)}){also}")
    if prepared.request.book.digest != quote.book_digest:
        reasons.append("prices are those of another book")
    if prepared.inputs.now > quote.asked_at:
        reasons.append("less time is left")
    if prepared.request.beside:
        reasons.append("other jobs hold machines, or are planned to")
    if prepared.inputs.limits_file is not None or prepared.inputs.quotas is not None:
        reasons.append("other limits were given")
    why = "; ".join(reasons) or "it keeps to budgets as well, and learns from runs since"
    quoted, planned = format_usd(quote.plan_usd), format_usd(plan.cost_usd)
    return f"the quote says {quoted} for a plan, and this one expects {planned}: {why}"


def record_acceptance(
    context: QueryContext, prepared: PreparedAcceptance, plan: Plan, *, replaces: bool
) -> QuoteAcceptance:
    """Store that a quote was accepted, and return the acceptance.

    QuoteAcceptedError where somebody did so before, unless this one ``replaces`` that. OSError.
    """
    stored, inputs = prepared.stored, prepared.inputs
    acceptance = QuoteAcceptance(
        stored.name,
        format_utc(inputs.now),
        context.identity.name,
        plan_content(plan)["digest"],
        prepared.request.jobs[0].digest,
        str(prepared.ceiling),
        describe_other_cost(prepared, plan),
    )
    if not put_acceptance(quotes_folder_of(context), context.store, stored, acceptance, replaces=replaces):
        raise _accepted_before(find_quote(context, stored.name))
    return acceptance


def accept_quote(
    context: QueryContext, name: str, ceiling: Usd | None, inputs: AcceptanceInputs, progress: Progress
) -> QuoteAcceptance:
    """Make the plan of a quote, store it with its job, and return the acceptance; a quote is accepted once.

    Raises what :func:`prepare_acceptance`, :func:`plan_quote` and :func:`record_acceptance` raise.
    """
    check_acceptable(context, name, ceiling, inputs.now)
    prepared = prepare_acceptance(context, name, ceiling, inputs)
    stored, (job,) = prepared.stored, prepared.request.jobs
    progress(f"planning {job.name}")
    plan = plan_quote(prepared, progress)
    store, at = context.store, context.clock()
    digest: str = plan_content(plan)["digest"]
    if stored.document is None:
        # In the state only one of several servers can accept it.
        put_quote(store, stored.quote, job_json(job), stored.asked_by)
        prepared = replace(prepared, stored=replace(stored, document=job_json(job)))
    store_plan_inputs(store, (job,), digest, prepared.limits_to_store, inputs.now)
    who = context.identity.name
    store.made_plans.put(digest, plan_to_json(plan), plan.as_of, at, who, plan.name)
    return record_acceptance(context, prepared, plan, replaces=False)


def check_acceptable(context: QueryContext, name: str, ceiling: Usd | None, now: datetime) -> StoredQuote:
    """Return a quote that may be accepted now for the first time, as far as that is known without a plan.

    QuoteAcceptedError and what :func:`prepare_acceptance` raises.
    """
    stored = find_quote(context, name)
    context.identity.require(Permission.ACCEPT_QUOTES, stored.quote.team or None)
    if stored.acceptance is not None:
        raise _accepted_before(stored)
    _check_valid(stored, now)
    _ceiling_of(stored, ceiling)
    _limits_of(context, stored, AcceptanceInputs(now))
    return stored


def _check_valid(stored: StoredQuote, now: datetime) -> None:
    until = stored.quote.valid_until
    if now > until:
        raise QuoteStaleError(f"{stored.name} was valid until {until:%Y-%m-%d %H:%MZ}")


def _limits_of(context: QueryContext, stored: StoredQuote, inputs: AcceptanceInputs) -> Path | Limits | None:
    """Return the limits to accept a quote under. InvalidInputError where its own are not stored in this state."""
    if inputs.limits_file is not None or inputs.quotas is not None or stored.quote.limits is None:
        return inputs.limits_file
    try:
        return limits_of_quote(context, stored).limits
    except InvalidInputError as error:
        remedy = "give them on the command line, or quote again"
        raise InvalidInputError.single(error.problems[0].what, field="--limits", remedy=remedy) from None


def _ceiling_of(stored: StoredQuote, ceiling: Usd | None) -> Usd:
    limit = ceiling if ceiling is not None else stored.quote.ceiling_usd
    if limit is None:
        what = "the quote names no upper cost: the job may never be done on spot alone"
        raise InvalidInputError.single(what, field="--ceiling", remedy="say what it may cost")
    return limit


def present_budgets(context: QueryContext, now: datetime) -> BudgetConstraints:
    """Return the budgets in force now, with what is spent of them."""
    folder = context.settings.folder
    return budget_constraints(context.store, now, BooksFolders(folder / "extract", folder / "bills"))


def _accepted_before(stored: StoredQuote) -> QuoteAcceptedError:
    acceptance = stored.acceptance
    if acceptance is None:
        return QuoteAcceptedError(f"{stored.name} was accepted meanwhile", "")
    what = f"{stored.name} was accepted {acceptance.at} by {acceptance.who}"
    return QuoteAcceptedError(what, acceptance.plan)


_ACCEPTED = 50  # plans of accepted quotes that are looked at, the latest first
_NOTHING = 1e-9


def find_promised_machines(context: QueryContext, job: str, now: datetime) -> tuple[PromisedMachines, ...]:
    """Return what other jobs than this one hold now, or are planned to, whoever asks.

    A job that runs holds its machines until its planned end. Any other one has the lines of the last quote of it that
    was accepted, else of the last plan for tonight; those of the outlook hold their share of machines. A plan that was
    not applied while it was good holds nothing, and no gang does that is over for good.
    """
    found = list(_running(context, now))
    applied = {entry.digest for entry in context.store.audit.entries(APPLY)}
    for name, count in ((QUOTE, _ACCEPTED), (context.night, 1)):
        for row in context.store.made_plans.newest(count, name=name):
            plan = whole_plan(context.store, row.digest)
            if plan is not None and (now <= plan.expires_at or row.digest in applied):
                known = {each.job for each in found}
                over = _gangs_over(context, row.digest) if row.digest in applied else frozenset()
                found += (each for each in _planned(plan, over) if each.job not in known)
    return tuple(each for each in found if each.job != job)


def _gangs_over(context: QueryContext, digest: str) -> frozenset[tuple[str, str]]:
    last = {(each.job, each.gang): each for each in context.store.attempts.find(plan=digest, skipped=[])}
    return frozenset(key for key, each in last.items() if each.phase.is_over and each.reason not in RESUMABLE_REASONS)


def _running(context: QueryContext, now: datetime) -> Iterator[PromisedMachines]:
    attempts, nodes = context.store.overview.alive()
    for attempt in attempts:
        pools = Counter((n.zone, n.instance_type, n.market) for n in nodes if n.attempt == attempt.id)
        for pool, machines in pools.items():
            held = RunningMachines(attempt.cloud, attempt.region, *pool, machines, attempt.team)
            yield PromisedMachines(attempt.job, held, now, max(attempt.end, now))


def _planned(plan: Plan, over: Collection[tuple[str, str]]) -> Iterable[PromisedMachines]:
    team = {job.job: job.team for job in plan.jobs}
    return (
        PromisedMachines(
            line.job,
            _machines_of(line, math.ceil(line.machines * line.share - _NOTHING), team[line.job]),
            line.start,
            line.end,
            None
            if line.fallback is None or not line.fallback.reserved
            else _machines_of(line.fallback, line.fallback.machines, team[line.job]),
        )
        for line in plan.lines
        if (line.job, line.gang) not in over
    )


def _machines_of(place: Line | LineFallback, machines: int, team: str) -> RunningMachines:
    market = Market(place.market)
    return RunningMachines(place.cloud, place.region, place.zone, place.instance_type, market, machines, team)
