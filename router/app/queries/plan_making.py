"""Make a plan of documents that somebody sent: check who may, and that they name nothing of this server; then plan.

Documents are text, never paths: what is written into a private folder is removed when it was read. References to files
and secrets are refused, since they would be read here.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from pricing.problems import InvalidInputError, Problem
from pricing.units import format_count
from router.access.identity import Permission
from router.app.budgets import BooksFolders, budget_constraints, recent_use
from router.app.plan import PlanOptions, PreparedPlan, plan_request, store_plan_inputs
from router.app.queries.context import QueryContext
from router.config.job_files import LoadedJobs, LoadedLimits, load_jobs, load_limits
from router.controller.history.run_records import read_runs
from router.controller.plans import last_plan
from router.jobs.fields import RefusedError
from router.jobs.limits import Limits
from router.jobs.quantities import parse_duration
from router.jobs.spec import Job
from router.planning.document.plan_json import plan_content, plan_to_json
from router.planning.document.plan_names import parse_plan_name
from router.planning.document.plan_terms import BOOK, GAP, HORIZON, MAX_GAP, MAX_HORIZON, SLOT, TIME_LIMIT, TRIAL
from router.planning.planner import make_plan
from router.prices.data_folders import bills_folder, extract_folder
from router.state.plans import MadePlanEntry
from router.state.store import StateStore

MAX_DOCUMENT = 900_000
MAX_TIME_LIMIT = timedelta(minutes=10)
Reading = Literal["latest", "none"]
Document = dict[str, Any]
_LENGTH_CHARACTERS = 20
_JOBS, _LIMITS = "jobs.yaml", "limits.yaml"
_REMOTE = re.compile(r"(?:https|ssh|git)://[^/]|[\w.-]+@[\w.-]+:(?!//)", re.ASCII)


class PlanAsked(BaseModel):
    """A plan to make. Documents are text, or the same as JSON; they may name no file and no secret."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jobs: Annotated[str, Field(max_length=MAX_DOCUMENT)] | list[Document] = Field(
        description="Job documents as YAML, with a line --- between them, or a list of jobs."
    )
    limits: Annotated[str, Field(max_length=MAX_DOCUMENT)] | Document | None = None
    book: Literal["latest", "embedded", "sandbox"] = BOOK
    horizon: str = Field(default=HORIZON.text, max_length=_LENGTH_CHARACTERS)
    slot: str = Field(default=SLOT.text, max_length=_LENGTH_CHARACTERS)
    gap: float = Field(default=GAP, ge=0, le=MAX_GAP)
    time_limit: str = Field(default=TIME_LIMIT.text, max_length=_LENGTH_CHARACTERS)
    max_age: str | None = Field(
        default=None, max_length=_LENGTH_CHARACTERS, description="Leave out prices older than this."
    )
    quotas: Reading | None = Field(default=None, description="The reading of quotas to take.")
    advisory: bool = False
    name: str = Field(default=TRIAL, max_length=63, description="Plans of one name follow each other.")
    keep_last: bool = Field(default=False, description="Keep to the last plan of the name, as `--since last` does.")

    def jobs_text(self) -> str:
        """Return the jobs as YAML."""
        return self.jobs if isinstance(self.jobs, str) else "".join(f"---\n{_text(job)}\n" for job in self.jobs)

    def limits_text(self) -> str:
        """Return the limits as YAML, "" without any."""
        return self.limits if isinstance(self.limits, str) else "" if self.limits is None else _text(self.limits)


def _text(document: Document) -> str:
    return json.dumps(document, ensure_ascii=False)


def check_plan_question(context: QueryContext, question: PlanAsked) -> str | None:
    """Return the one team of the jobs, None where they are several teams'. InvalidInputError with every problem.

    Who asks needs the permission to make plans for all teams: its plan may become that of the night for everybody.
    """
    context.identity.require(Permission.MAKE_PLANS)
    context.identity.require_for_all(Permission.MAKE_PLANS)
    _options_of(question)
    with _written(question) as (jobs_file, limits_file):
        problems: list[Problem] = []
        jobs: tuple[Job, ...] = ()
        try:
            loaded = load_jobs([jobs_file], context.clock())
            jobs = loaded.jobs
            problems += job_references(loaded)
        except InvalidInputError as error:
            problems += error.problems
        try:
            if limits_file is not None:
                problems += limit_references(load_limits(limits_file))
        except InvalidInputError as error:
            problems += error.problems
        if problems:
            raise InvalidInputError(problems)
    teams = {job.team for job in jobs}
    return teams.pop() if len(teams) == 1 else None


def make_asked_plan(
    store: StateStore, question: PlanAsked, now: datetime, made_by: str, progress: Callable[[str], None]
) -> tuple[dict[str, Any], MadePlanEntry]:
    """Make the plan of a question that was checked; return what it came to, and the plan to store. InvalidInputError.

    What the plan was made of is stored here, under digests, so that repeating it is harmless.
    """
    progress("reading prices")
    budgets = budget_constraints(store, now, BooksFolders(extract_folder(), bills_folder()))

    def add_state(limits: Limits) -> Limits:
        known = budgets.limits(limits)
        return known if known.fair_share is None else recent_use(store, known, now)

    options = replace(_options_of(question), runs=lambda book: read_runs(store, book, now))
    with _written(question) as (jobs_file, limits_file):
        known = store.shortages.of_places(now), add_state, store.data_copies.usable(now)
        prepared = plan_request([str(jobs_file)], question.book, limits_file, now, options, *known)
    request = prepared.request
    if question.keep_last:
        request = replace(request, previous=last_plan(store, question.name, now))
    progress(f"planning {format_count(len(request.jobs), 'job')} over {len(request.book.offers):,} offers")
    plan = replace(make_plan(request, began=time.monotonic(), progress=progress), name=question.name)
    text, digest = plan_to_json(plan), str(plan_content(plan)["digest"])
    store_plan_inputs(store, request.jobs, digest, prepared.file_limits, now)
    result = {
        "digest": digest,
        "plan_id": f"plan-{digest[:12]}",
        "url": f"/api/v1/plans/{digest}",
        "page": f"/plans/{digest}",
        "jobs": len(plan.jobs),
        "unplaced": [job.job for job in plan.unplaced],
        "cost_usd": str(plan.cost_usd),
        "notes": list(_notes(prepared, question)),
    }
    return result, MadePlanEntry.of(digest, text, now, now, made_by, plan.name)


def _options_of(question: PlanAsked) -> PlanOptions:
    """Return the options. InvalidInputError for what the command would refuse as well."""
    horizon = _duration("horizon", question.horizon, HORIZON.least, MAX_HORIZON)
    slot = _duration("slot", question.slot, SLOT.least, horizon)
    limit = _duration("time_limit", question.time_limit, TIME_LIMIT.least, MAX_TIME_LIMIT)
    max_age = None
    if question.max_age is not None:
        max_age = _duration("max_age", question.max_age, timedelta(days=1), timedelta(days=3650))
    try:
        parse_plan_name(question.name)
    except RefusedError as error:
        raise InvalidInputError.single(error.what, field="name", remedy=error.remedy) from None
    return PlanOptions(
        horizon=horizon,
        slot=slot,
        gap=question.gap,
        time_limit=limit,
        advisory=question.advisory,
        max_age=max_age,
        quotas=question.quotas,
    )


def _duration(field: str, text: str, least: timedelta, longest: timedelta) -> timedelta:
    try:
        duration = parse_duration(text) if len(text) <= _LENGTH_CHARACTERS else None
    except (ValueError, OverflowError):
        duration = None
    if duration is None or not least <= duration <= longest:
        what = f"is no length from {_words(least)} to {_words(longest)}"
        raise InvalidInputError.single(what, field=field, remedy="write e.g. 90m, 24h or 3d")
    return duration


def _words(length: timedelta) -> str:
    for name, unit in (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1))):
        if length >= unit:
            return f"{length / unit:g}{name}"
    return f"{length.total_seconds():g}s"


@contextmanager
def _written(question: PlanAsked) -> Iterator[tuple[Path, Path | None]]:
    """Write the documents into a private folder while the block runs; messages do not name it."""
    with tempfile.TemporaryDirectory(prefix="stepfare-plan-") as name:
        folder = Path(name)
        jobs, limits = folder / _JOBS, folder / _LIMITS
        try:
            jobs.write_text(question.jobs_text(), encoding="utf-8", newline="")
            limits.write_text(question.limits_text(), encoding="utf-8", newline="")
        except UnicodeEncodeError:
            raise InvalidInputError.single("a document has characters that are no text", remedy="send UTF-8") from None
        try:
            yield jobs, limits if question.limits_text().strip() else None
        except InvalidInputError as error:
            raise InvalidInputError([_without_folder(problem, f"{name}/") for problem in error.problems]) from None


def _without_folder(problem: Problem, folder: str) -> Problem:
    return Problem(*(part.replace(folder, "") for part in (problem.where, problem.field, problem.what, problem.remedy)))


def job_references(loaded: LoadedJobs) -> Iterator[Problem]:
    """Yield a problem for each file or secret of this server that a job refers to."""
    for job, document in loaded:
        if job.data is not None and job.data.uri.lower().startswith("file:"):
            yield Problem(document.where(("data", "uri")), "data.uri", "is a file of this server", "name a bucket")
        run = job.run
        if run is None:
            continue
        for name, value in run.env:
            if value.startswith("secret:"):
                where, field = document.where(("run", "env", name)), f"run.env.{name}"
                yield Problem(where, field, "refers to a secret", "plan such jobs by `stepfare plan`, or leave it out")
        code = run.code
        sources = () if code is None else (("git", code.git), ("archive", code.archive))
        for name, address in sources:
            if address is not None and not _REMOTE.match(address) and not address.startswith("http://"):
                where, field = document.where(("run", "code", name)), f"run.code.{name}"
                yield Problem(where, field, "is a file of this server", "give an https URL")


def limit_references(loaded: LoadedLimits) -> Iterator[Problem]:
    """Yield a problem where the limits name a file of this server."""
    name = loaded.limits.quotas
    if name is not None and name not in get_args(Reading) and loaded.document is not None:
        where = loaded.document.where(("quotas",))
        yield Problem(where, "quotas", "names a file of this server", "write latest or none")


def _notes(prepared: PreparedPlan, question: PlanAsked) -> Iterator[str]:
    if prepared.offers_too_old:
        count = format_count(prepared.offers_too_old, "offer")
        yield f"left out: {count} older than {question.max_age} or undated"
    for name in prepared.finished:
        yield f"{name} has no steps left and is left out"
    yield from prepared.doubts
    yield from (problem.what for problem in prepared.idle)
