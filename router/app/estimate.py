"""Estimate a job on several gangs: read the job file and the book, and ask the pure core. Nothing is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pricing.places import Market
from pricing.problems import InvalidInputError, Problem
from router.app.learned import RunReader
from router.app.plan import load_inputs
from router.app.profile import job_of
from router.jobs.experience import Experience, learn
from router.jobs.fields import RefusedError
from router.jobs.gang import GangOption, parse_accelerators
from router.jobs.spec import Job
from router.jobs.workload import Layout
from router.planning.estimate.gang_estimates import EstimateInputs, JobEstimate, estimate_gangs
from router.prices.books import load_book


@dataclass(frozen=True, slots=True)
class EstimateQuestion:
    """The question as on the command line: which job, gangs and markets, by which book and runs.

    Without ``gangs`` those of the job file are meant; ``any_layout`` lets the fastest layout be chosen whatever the
    job file states.
    """

    file: Path
    job: str | None
    gangs: tuple[GangOption, ...]
    markets: tuple[Market, ...]
    book: str
    now: datetime
    runs: RunReader
    advisory: bool = False
    any_layout: bool = False


def parse_gangs(words: Sequence[str]) -> tuple[GangOption, ...]:
    """Return the gangs of ``--on``, each once, in their order. InvalidInputError names every word that is none."""
    found: dict[GangOption, None] = {}
    problems: list[Problem] = []
    for word in (part for each in words for part in each.split(",")):
        try:
            found.update(dict.fromkeys(parse_accelerators(word)))
        except RefusedError:
            what = f"{word.strip()!r} is no accelerator with a count"
            problems.append(Problem("", "--on", what, "write NAME:COUNT, several with commas: H100:8,H200:8"))
    if problems:
        raise InvalidInputError(problems)
    return tuple(found)


def estimate_job(question: EstimateQuestion) -> tuple[JobEstimate, Experience | None]:
    """Return the estimate, and what was learned from earlier runs for it. InvalidInputError as for a plan."""
    book = load_book(question.book)
    loaded, _ = load_inputs([str(question.file)], None, question.now, book, own_deadlines=False)
    job = job_of(loaded, question.job, question.file)[0]
    if job.steps_left == 0:
        what = f"{job.name} has no steps left"
        raise InvalidInputError.single(what, where=str(question.file), field="status.steps_done")
    job = _with_any_layout(job, question.file) if question.any_layout else job
    gangs = question.gangs or job.gang.options
    asked = job.model_copy(update={"gang": job.gang.model_copy(update={"options": gangs})})
    experience = learn(question.runs(book), (asked,), book, question.now)
    inputs = EstimateInputs(book, question.now, question.advisory, experience or Experience())
    return estimate_gangs(job, gangs, question.markets, inputs), experience


def _with_any_layout(job: Job, file: Path) -> Job:
    """Return the job with ``layout: auto``. InvalidInputError for a job without the shape of a transformer."""
    shape = job.workload.transformer
    if shape is None:
        raise InvalidInputError.single(
            f"{job.name} has no `transformer`, whose layout could be chosen", where=str(file), field="--layout"
        )
    workload = job.workload.model_copy(update={"transformer": shape.model_copy(update={"layout": Layout()})})
    return job.model_copy(update={"workload": workload})
