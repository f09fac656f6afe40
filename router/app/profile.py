"""Propose points of a job to measure, and write measured ones into its file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from pricing.atomic_file import write_atomic
from pricing.problems import InvalidInputError
from router.app.plan import load_inputs
from router.config.book_check import check_against_book
from router.config.job_files import LoadedJobs, load_jobs
from router.config.job_points import PointFields, insert_points
from router.config.validation import problems_of
from router.config.yamlfile import YamlDocument, parse_documents
from router.jobs.spec import Job
from router.jobs.speed import UnknownSpeed
from router.planning.find.candidates import candidates_for
from router.planning.find.listings import listings_by_accelerator
from router.planning.find.next_points import MeasuringPlan, propose_points
from router.prices.books import load_book


def propose(
    file: Path,
    job_name: str | None,
    book_name: str,
    limits_file: Path | None,
    now: datetime,
    *,
    lasting: timedelta,
    max_points: int,
    advisory: bool,
) -> tuple[str, MeasuringPlan | UnknownSpeed]:
    """Return the name of the job in the file, and the points of it to measure next. InvalidInputError as for a plan."""
    book = load_book(book_name)
    loaded, limits = load_inputs([str(file)], limits_file, now, book, own_deadlines=False)
    job = job_of(loaded, job_name, file)[0]
    candidates, dropped = candidates_for(job, book, limits, now, advisory)
    listings = listings_by_accelerator(book, limits)
    result = propose_points(job, candidates, listings, book.accelerators, lasting=lasting, max_points=max_points)
    if isinstance(result, UnknownSpeed) and dropped:
        result = UnknownSpeed(f"{result.reason}: {dropped[0].listing.name}: {dropped[0].reason}")
    return job.name, result


def add_points(
    file: Path, job_name: str | None, points: Sequence[PointFields], book_name: str, now: datetime
) -> str | None:
    """Write the points into the job's profile and return the job's name; None where the layout cannot be edited.

    The whole profile is checked first: InvalidInputError for points that are refused, and the file is as it was.
    """
    loaded = load_jobs([file], now, own_deadlines=False)
    job, document = job_of(loaded, job_name, file)
    fields = document.plain()
    profile = fields["workload"].get("profile", [])
    profile = list(profile) if isinstance(profile, list) else [profile]
    # Last, so that messages about the points that the file has name them by their position there.
    fields["workload"]["profile"] = [*profile, *(dict(point) for point in points)]
    try:
        changed = Job.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, document, Job)) from None
    check_against_book(LoadedJobs((changed,), (document,)), load_book(book_name))
    text = file.read_bytes().decode("utf-8-sig")
    now_there = next((one for one in parse_documents(text, str(file)) if one == document), None)
    edited = None if now_there is None else insert_points(text, now_there, tuple(points))
    if edited is None:
        return None
    write_atomic(file.resolve(), edited, mode=file.stat().st_mode & 0o777)
    return job.name


def job_of(loaded: LoadedJobs, name: str | None, file: Path) -> tuple[Job, YamlDocument]:
    """Return the job of that name, or the only one of the file; InvalidInputError otherwise."""
    found = [(job, document) for job, document in loaded if name in (None, job.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(job.name for job in loaded.jobs)
    what = f"{file} holds {names}" if name is None else f"{file} holds no job {name!r}, but {names}"
    raise InvalidInputError.single(what, field="--job", remedy="name one of them")
