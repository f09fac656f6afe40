"""Ask for quotes: check job and limits, which somebody wrote or names, make the quote, and store it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticSerializationError

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.problems import InvalidInputError, Problem
from router.access.identity import Permission
from router.app.learned import RunReader
from router.app.plan import load_inputs
from router.app.queries.context import QueryContext
from router.app.queries.plan_making import job_references, limit_references
from router.app.queries.plans import whole_plan
from router.app.queries.quotes import find_quote, list_quotes
from router.app.quotes import QuoteAnswer, QuoteOptions, make_quotes, prepare_quotes
from router.app.stored_quotes import NoSuchQuoteError, put_quote
from router.config.book_check import check_limits_against_book
from router.config.job_files import JobText, LoadedJobs, load_jobs, parse_limits
from router.config.plan_files import StoredQuote
from router.controller.history.run_records import read_runs
from router.controller.plans import find_limits, made_limits
from router.jobs.job_json import job_json, read_job
from router.jobs.limits import Limits
from router.jobs.quantities import TOO_FAR, Moment, is_beyond_planning
from router.jobs.spec import Job
from router.planning.document.plan import JobSummary
from router.planning.document.restricted_limits import limits_text, restrict_limits
from router.prices.books import load_book
from router.quotes.quote import LimitsPlan, Quote
from router.quotes.request import QuoteRequest

LAST, NONE, QUOTE = "last", "none", "quote"
SOURCES = (LAST, NONE, QUOTE)
MAX_LIMITS = 100_000


@dataclass(frozen=True, slots=True)
class QuestionLimits:
    """The limits of a question, and the plan that they are of; None where they are of none."""

    limits: Limits
    plan: LimitsPlan | None = None


def find_limits_plan(context: QueryContext) -> LimitsPlan | None:
    """Return the plan whose limits quotes are made under by default: the last night's; None without any."""
    context.identity.require(Permission.MAKE_QUOTES)
    newest = context.store.made_plans.newest(1, name=context.night)
    return LimitsPlan(newest[0].digest, newest[0].as_of) if newest else None


def limits_of_last_plan(context: QueryContext, team: str) -> QuestionLimits:
    """Return what of the last plan's limits concerns a team; no limits where no plan was made."""
    plan = find_limits_plan(context)
    row = None if plan is None else context.store.made_plans.row(plan.digest)
    if plan is None or row is None:
        return QuestionLimits(Limits.none())
    limits = made_limits(context.store, plan.digest)
    return QuestionLimits(restrict_limits(limits, team, {part.team for part in row.teams}), plan)


def limits_of_quote(context: QueryContext, stored: StoredQuote) -> QuestionLimits:
    """Return the limits that a quote was made under. InvalidInputError where they are not stored in this state."""
    own = stored.quote.limits
    if own is None or own.empty:
        return QuestionLimits(Limits.none(), None if own is None else own.plan)
    found = find_limits(context.store, own.digest)
    if found is None:
        what = f"the limits that {stored.name} was made under are not in this state"
        raise InvalidInputError.single(what, field="limits", remedy="write them, or choose others")
    return QuestionLimits(found, own.plan)


def parse_own_limits(text: str, book: PriceBook) -> Limits:
    """Return limits that somebody wrote, checked against the book. InvalidInputError with every problem."""
    if len(text) > MAX_LIMITS:
        what = f"has {len(text):,} characters"
        raise InvalidInputError.single(what, field="limits", remedy=f"write at most {MAX_LIMITS:,}")
    if not text.strip():
        raise InvalidInputError.single("is empty", field="limits", remedy="write limits, or ask for none")
    try:
        text.encode()
        loaded = parse_limits(text)
        # Escapes may write characters that cannot be stored.
        limits_text(loaded.limits).encode()
    except (UnicodeEncodeError, PydanticSerializationError):
        what = "has characters that are no text"
        raise InvalidInputError.single(what, field="limits", remedy="write text") from None
    check_limits_against_book(loaded, book)
    problems = list(limit_references(loaded))
    if problems:
        raise InvalidInputError(problems)
    return loaded.limits


MAX_DOCUMENT = 100_000
_MAX_SHORT = 40
_MOST_DOLLARS = 1e9


# A form of the console makes one without validation (``model_construct``): :func:`check_question` says all at once.
class QuoteAsked(BaseModel):
    """A quote to make: of a job document, of the job of an earlier quote, or of a job that is known by its name."""

    model_config = ConfigDict(extra="forbid")

    document: str = Field(
        default="", max_length=MAX_DOCUMENT, description="One job, as YAML or JSON text. It may name no file or secret."
    )
    again: str = Field(default="", max_length=100, description="Id of a quote whose job is quoted again.")
    job: str = Field(default="", max_length=100, description="Name of a job that was quoted or planned before.")
    by: str = Field(default="", max_length=40, description="2026-11-25T09:00Z or +36h; else the job's own deadline.")
    budget: str = Field(default="", max_length=40, description="Dollars: ask how many steps they pay for.")
    limits: Annotated[str, Field(max_length=MAX_LIMITS)] | dict[str, Any] | None = Field(
        default=None, description="A limits file as YAML or JSON text, or the same as JSON. It may name no file."
    )
    limits_of: Literal["last", "none", "quote"] | None = Field(
        default=None,
        description="Where no `limits` are given: those of the last plan (by default), of the quote `again`, or none.",
    )

    def limits_text(self) -> str:
        """Return the limits that are written as YAML or JSON; "" without any."""
        return json.dumps(self.limits, ensure_ascii=False) if isinstance(self.limits, dict) else self.limits or ""


@dataclass(frozen=True, slots=True)
class CheckedQuestion:
    """A question that can be answered: its job, the moment, the money and the limits."""

    job: Job
    document: str
    by: Moment | None
    budget: Usd | None
    limits: QuestionLimits


@dataclass(frozen=True, slots=True)
class AskedQuote:
    """The answer to a question; ``name`` is the id of the stored quote, "" where the answer is another one."""

    answer: QuoteAnswer
    name: str


def check_question(context: QueryContext, question: QuoteAsked) -> CheckedQuestion:
    """Return the question as values. AccessDeniedError unless who asks may ask for the job's team.

    InvalidInputError has every problem, each with line and field. Nothing that the job names is read.
    """
    context.identity.require(Permission.MAKE_QUOTES)
    now, book = context.clock(), load_book("latest")
    problems: list[Problem] = []

    by: Moment | None = None
    budget: Usd | None = None
    own: Limits | None = None
    document, loaded = "", LoadedJobs((), ())
    with _noting(problems):
        by = _parse_deadline(question.by, now)
    with _noting(problems):
        budget = parse_amount(question.budget, "budget") if question.budget else None
    with _noting(problems):
        own = _own_limits(question, book)
    with _noting(problems):
        document = _document_of(context, question)
        loaded, _ = load_inputs((JobText(document),), None, now, book, own_deadlines=not question.by)
    if problems:
        raise InvalidInputError(problems)
    if len(loaded.jobs) != 1:
        second = loaded.documents[1].where()
        raise InvalidInputError.single("a quote is for one job", where=second, remedy="ask for each on its own")
    (job,) = loaded.jobs
    context.identity.require(Permission.MAKE_QUOTES, job.team)
    # What is in the state was put there by who may refer to files and secrets of this server.
    problems += job_references(loaded) if question.document else ()
    if problems:
        raise InvalidInputError(problems)
    if by is None and job.deadline is None:
        raise InvalidInputError.single("has no deadline to quote for", field="by", remedy="give one, e.g. +36h")
    if by is None and job.deadline is not None and job.deadline.relative is not None:
        by = _planned_deadline(context, job)
    return CheckedQuestion(job, document, by, budget, _limits_of(context, question, own, job.team))


@contextmanager
def _noting(problems: list[Problem]) -> Iterator[None]:
    """Note what is wrong with one part of a question and go on, so that everything is said at once."""
    try:
        yield
    except NoSuchQuoteError:
        raise
    except InvalidInputError as error:
        problems.extend(error.problems)


def _limits_of(context: QueryContext, question: QuoteAsked, stated_limits: Limits | None, team: str) -> QuestionLimits:
    if stated_limits is not None:
        return QuestionLimits(restrict_limits(stated_limits, team))
    if question.limits_of == QUOTE:
        return limits_of_quote(context, find_quote(context, question.again))
    return limits_of_last_plan(context, team)


def _own_limits(question: QuoteAsked, book: PriceBook) -> Limits | None:
    """Return the limits of a question itself; None where those of a plan or quote count. InvalidInputError."""
    limits, limits_of = question.limits_text(), question.limits_of or ""
    if limits_of not in ("", *SOURCES):
        raise InvalidInputError.single("is no choice", field="limits_of", remedy=f"write one of {', '.join(SOURCES)}")
    if limits_of == QUOTE and not question.again:
        raise InvalidInputError.single("needs a quote", field="limits_of", remedy="ask a quote again, or choose others")
    if limits and limits_of:
        what = "does not go with limits that are written"
        raise InvalidInputError.single(what, field="limits_of", remedy="give one of the two")
    if limits:
        return parse_own_limits(limits, book)
    return Limits.none() if limits_of == NONE else None


def _document_of(context: QueryContext, question: QuoteAsked) -> str:
    """Return the job as it was written. InvalidInputError unless exactly one is named."""
    if sum(map(bool, (question.document, question.again, question.job))) != 1:
        raise InvalidInputError.single("one job is needed", field="job", remedy="write it, or name one that is known")
    if question.document:
        _check_text(question.document)
        return question.document
    if question.again:
        stored = find_quote(context, question.again)
        if stored.document is None:
            what = f"the job of {stored.name} is known by its file alone"
            raise InvalidInputError.single(what, field="again", remedy="paste the job")
        return stored.document
    document = find_document(context, question.job)
    if document is None:
        raise InvalidInputError.single(f"no job {question.job[:100]!r} is known", field="job", remedy="paste the job")
    return document


def _check_text(document: str) -> None:
    if len(document) > MAX_DOCUMENT:
        what = f"has {len(document):,} characters"
        raise InvalidInputError.single(what, field="job", remedy=f"write at most {MAX_DOCUMENT:,}")
    try:
        document.encode()
    except UnicodeEncodeError:
        raise InvalidInputError.single("has characters that are no text", field="job", remedy="write text") from None


def ask_quote(context: QueryContext, question: CheckedQuestion, progress: Callable[[str], None]) -> AskedQuote:
    """Make the quote of a question on the latest prices, and store it with its job. InvalidInputError."""
    now = context.clock()
    options = QuoteOptions(
        by=question.by,
        budget=question.budget,
        processes=1,
        runs=runs_of_state(context),
        limits_plan=question.limits.plan,
    )
    progress(f"reading prices for {question.job.name}")
    batch = prepare_quotes((JobText(question.document),), "latest", question.limits.limits, now, options, load_book)
    progress(f"simulating {question.job.name}")
    (answer,) = make_quotes(batch)
    if not isinstance(answer, Quote):
        return AskedQuote(answer, "")
    stated = next((ask.limits for ask in batch.asks if isinstance(ask, QuoteRequest)), None)
    return AskedQuote(answer, put_quote(context.store, answer, question.document, context.identity.name, stated))


def prepare_question(
    context: QueryContext, document: str, by: Moment | None, budget: Usd | None, limits: QuestionLimits
) -> CheckedQuestion:
    """Return a question that was checked before, its job read again. InvalidInputError."""
    jobs = load_jobs((JobText(document),), context.clock(), own_deadlines=by is None).jobs
    return CheckedQuestion(jobs[0], document, by, budget, limits)


def _planned_deadline(context: QueryContext, job: Job) -> Moment | None:
    """Return the deadline that tonight's plan gives this very job; None where it is not in the plan.

    A relative deadline counts from the moment of that plan, not from the question. InvalidInputError where it is over.
    """
    found = next((each for each in _tonights_jobs(context) if each.job_digest == job.digest), None)
    if found is None or found.deadline is None:
        return None
    if found.deadline <= context.clock():
        what = f"the job's own deadline in tonight's plan, {found.deadline:%Y-%m-%d %H:%MZ}, has passed"
        raise InvalidInputError.single(what, field="by", remedy="give a later one, e.g. +36h")
    return Moment(absolute=found.deadline)


def _tonights_jobs(context: QueryContext) -> Sequence[JobSummary]:
    newest = context.store.made_plans.newest(1, name=context.night)
    plan = whole_plan(context.store, newest[0].digest) if newest else None
    return () if plan is None else plan.jobs


def find_document(context: QueryContext, job: str) -> str | None:
    """Return how a job of that name was written that was quoted or planned last; None where none may be seen."""
    for stored in list_quotes(context, job):
        if stored.document is not None:
            return stored.document
    teams = context.identity.require(Permission.MAKE_QUOTES)
    planned = next((each for each in _tonights_jobs(context) if each.job == job), None)
    found = None if planned is None else read_job(context.store.plans.job(planned.job_digest))
    if found is None or not teams.admits(found.team):
        return None
    return job_json(found)


def runs_of_state(context: QueryContext) -> RunReader:
    """Return how to read the earlier runs that the state knows."""
    return lambda book: read_runs(context.store, book, context.clock())


def _parse_deadline(text: str, now: datetime) -> Moment | None:
    if not text:
        return None
    if len(text) > _MAX_SHORT:
        raise InvalidInputError.single("is no time", field="by", remedy="write 2026-11-25T09:00Z or +36h")
    try:
        moment = Moment.parse(text)
        at = moment.at(now)
        is_too_far = is_beyond_planning(at, now)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError.single(str(error), field="by", remedy="write 2026-11-25T09:00Z or +36h") from None
    if at <= now:
        raise InvalidInputError.single(f"{text} has passed", field="by", remedy="give a later one, e.g. +36h")
    if is_too_far:
        raise InvalidInputError.single(TOO_FAR.format(text), field="by", remedy="give an earlier one, e.g. +36h")
    return moment


def parse_amount(text: str, field: str) -> Usd:
    """Return an amount of dollars above 0. InvalidInputError for anything else."""
    remedy = "write e.g. 1250.00"
    try:
        amount = Usd.parse(text.strip().removeprefix("$").replace(",", "")) if len(text) <= _MAX_SHORT else None
    except ValueError:
        amount = None
    if amount is None or amount.dollars() > _MOST_DOLLARS:
        raise InvalidInputError.single("is no amount of dollars", field=field, remedy=remedy)
    if amount.nanos <= 0:
        raise InvalidInputError.single("is not above $0", field=field, remedy=remedy)
    return amount
