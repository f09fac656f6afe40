"""Command ``stepfare validate``: check job and limits files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated

import typer

from pricing.book import PriceBook
from pricing.problems import InvalidInputError, Problem
from pricing.units import format_count
from router.cli.completion import complete_paths
from router.cli.console import ExitCode, note, out, show_problems
from router.cli.options import TableOutput, parse_now
from router.config.book_check import check_against_book, check_limits_against_book
from router.config.job_files import FoundFiles, LoadedJobs, find_files, load_jobs, load_limits, teams_without_jobs
from router.config.settings_files import load_clouds, load_deploy
from router.jobs.spec import find_literal_secrets
from router.prices.books import load_book
from router.render.record_table import json_document

_SHORT_NOTICE = timedelta(hours=1)


def validate(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", autocompletion=complete_paths, help="Files, folders or globs of YAML."),
    ],
    book: Annotated[
        str, typer.Option(help="Book to look names up in: latest, sandbox, embedded, a file, or none.")
    ] = "latest",
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Moment at which deadlines are checked.")] = None,
    output: TableOutput = "table",
) -> ExitCode:
    """Check job files and the limits.yaml, clouds.yaml and deploy.yaml beside them, without planning anything.

    All errors are shown at once with file, line and column. Regions, accelerators, machines and gang sizes are looked
    up in a price book as well. The exit code is 2 if there are errors.

    Values of `env` are named that look like secrets written out: the name ends with TOKEN, SECRET, PASSWORD, API_KEY,
    ACCESS_KEY, PRIVATE_KEY or CREDENTIALS, or the value is like a key of AWS, Google, GitHub, GitLab, Hugging Face,
    OpenAI or Slack, a private key in PEM, or a URL with a password.

    \b
    Examples:
      stepfare validate jobs/
      stepfare validate 'jobs/**/*.yaml' --book embedded
      stepfare validate job.yaml --now 2026-11-21T18:00Z -o json
    """
    moment = parse_now(now)
    found = find_files(paths, jobs_required=False)
    prices = None if book == "none" else load_book(book)
    jobs, problems = _check(found, prices, moment)
    notes = (*_notes(jobs, moment), *_idle_teams(found, jobs, problems))
    if output == "json":
        out(_as_json(jobs, problems, notes))
    elif not problems:
        out("\n".join([*map(_as_line, notes), _summary(jobs, found, prices)]))
    if not problems:
        return ExitCode.OK
    if output == "table":
        show_problems(InvalidInputError(problems))
    else:
        note(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
    return ExitCode.INVALID_INPUT


def _check(input_files: FoundFiles, prices: PriceBook | None, now: datetime) -> tuple[LoadedJobs, tuple[Problem, ...]]:
    jobs, problems = LoadedJobs((), ()), list[Problem]()
    try:
        if input_files.jobs:
            jobs = load_jobs(input_files.jobs, now)
            if prices is not None:
                check_against_book(jobs, prices)
    except InvalidInputError as error:
        problems += error.problems
    for file in input_files.limits:
        try:
            limits = load_limits(file)
            if prices is not None:
                check_limits_against_book(limits, prices)
        except InvalidInputError as error:
            problems += error.problems
    for read, files in ((load_clouds, input_files.clouds), (load_deploy, input_files.deploys)):
        for file in files:
            try:
                read(file, named=True)
            except InvalidInputError as error:
                problems += error.problems
    return jobs, tuple(problems)


def _notes(jobs: LoadedJobs, now: datetime) -> Iterator[Problem]:
    """Yield settings that are allowed but probably mistakes."""
    for job, document in jobs:
        if job.checkpoint is None:
            what = f"{job.name} has no checkpoint: interrupted, it starts over"
            yield Problem(document.where(("checkpoint",)), "checkpoint", what, "add `checkpoint: {size_gib: ...}`")
        for name in find_literal_secrets(job.run.env if job.run else ()):
            what = f"{job.name} seems to hold a secret itself: the state keeps it, and its backups"
            yield Problem(document.where(("run", "env", name)), f"run.env.{name}", what, "write secret:env:NAME")
        if job.steps_left == 0:
            yield Problem(document.where(("status", "steps_done")), "status", f"{job.name} has no step left to do")
        if job.deadline is not None and job.deadline.at(now) - now < _SHORT_NOTICE:
            passed = job.deadline.at(now) <= now  # which only a job that may be late is allowed
            what = f"{job.name} is late already" if passed else f"{job.name} must be done within the hour"
            yield Problem(document.where(("deadline",)), "deadline", what)


def _idle_teams(input_files: FoundFiles, jobs: LoadedJobs, problems: tuple[Problem, ...]) -> Iterator[Problem]:
    if not problems:
        for file in input_files.limits:
            yield from teams_without_jobs(load_limits(file), {job.team for job in jobs.jobs})


def _as_line(note_: Problem) -> str:
    return f"{note_.where}: note: {note_.what}" + (f"\n    {note_.remedy}" if note_.remedy else "")


def _summary(jobs: LoadedJobs, input_files: FoundFiles, prices: PriceBook | None) -> str:
    files = len({document.file for document in jobs.documents})
    text = f"{format_count(len(jobs.jobs), 'job')} in {format_count(files, 'file')}"
    beside = (
        (input_files.limits, "limits file"),
        (input_files.clouds, "clouds file"),
        (input_files.deploys, "deploy file"),
    )
    text += "".join(f", {format_count(len(paths), noun)}" for paths, noun in beside if paths)
    checked = "names not looked up" if prices is None else f"names as in the book of {prices.as_of:%Y-%m-%d}"
    return f"{text}: valid ({checked})"


def _as_json(jobs: LoadedJobs, problems: tuple[Problem, ...], notes: tuple[Problem, ...]) -> str:
    document = {
        "valid": not problems,
        "jobs": [
            {"job": job.name, "team": job.team, "job_digest": job.digest, "where": place.where()} for job, place in jobs
        ],
        "problems": [asdict(problem) for problem in problems],
        "notes": [asdict(problem) for problem in notes],
    }
    return json_document(document, ascii_only=False)
