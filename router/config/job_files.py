"""Read jobs and limits from YAML files; everything that is wrong with all of them is raised at once, with its place."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pricing.problems import InvalidInputError, Problem
from router.config.validation import JOIN_LISTS, validate_document, validate_single
from router.config.yamlfile import FieldPath, YamlDocument, parse_documents, read_documents
from router.jobs.fields import nearest_word
from router.jobs.imported_job import foreign_file
from router.jobs.limits import Limits
from router.jobs.quantities import PLANNING_SPAN, TOO_FAR, TOO_FAR_REMEDY, format_duration, is_beyond_planning
from router.jobs.spec import Job

# Files of these names never hold jobs, so that a folder of jobs may carry its limits and settings.
LIMITS_NAMES = frozenset({"limits.yaml", "limits.yml"})
CLOUDS_NAMES = frozenset({"clouds.yaml", "clouds.yml"})
DEPLOY_NAMES = frozenset({"deploy.yaml", "deploy.yml"})


_SUFFIXES = frozenset({".yaml", ".yml"})


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Files by what they hold, each once, in the order of the paths and by name inside a folder."""

    jobs: tuple[Path, ...]
    limits: tuple[Path, ...]
    clouds: tuple[Path, ...]
    deploys: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class JobText:
    """Jobs as text that is in no file; ``name`` is the name that messages show."""

    text: str
    name: str = "job.yaml"


JobSource = Path | str | JobText


def find_files(paths: Sequence[Path | str], *, jobs_required: bool = True) -> FoundFiles:
    """Find files as given, folders with all below them (hidden ones left out), globs (``**`` too).

    InvalidInputError names every path that leads nowhere: no such file, a glob without match, a folder without YAML
    files; and, where ``jobs_required``, other files without a job file.
    """
    by_real_path: dict[Path, Path] = {}
    problems: list[Problem] = []
    for path in paths:
        files = list(_expand(str(path)))
        if not files:
            problems.append(_missing_problem(str(path)))
        for file in files:
            by_real_path.setdefault(file.resolve(), file)
    limits, clouds, deploys = (
        tuple(file for file in by_real_path.values() if file.name in names)
        for names in (LIMITS_NAMES, CLOUDS_NAMES, DEPLOY_NAMES)
    )
    others = {*limits, *clouds, *deploys}
    jobs = tuple(file for file in by_real_path.values() if file not in others)
    if not problems and not jobs and not (others and not jobs_required):
        problems.append(_no_jobs_problem(limits, clouds, deploys))
    if problems:
        raise InvalidInputError(problems)
    return FoundFiles(jobs, limits, clouds, deploys)


def _no_jobs_problem(limits: Sequence[Path], clouds: Sequence[Path], deploys: Sequence[Path]) -> Problem:
    if limits:
        remedy = "give the limits with --limits, and the job files or their folder as PATH"
        return Problem(str(limits[0]), "", "is a limits file, and there is no job file beside it", remedy)
    for files, kind in ((clouds, "clouds"), (deploys, "deploy")):
        if files:
            what = f"is a {kind} file, and there is no job file beside it"
            return Problem(str(files[0]), "", what, "give the job files or their folder as PATH")
    return Problem("", "", "no path is given", "name a job file or a folder of job files")


def _expand(path: str) -> Iterator[Path]:
    if Path(path).is_dir():
        yield from _walk_folder(path)
    elif os.path.lexists(path):
        yield Path(path)
    elif glob.has_magic(path):
        for match in sorted(glob.glob(path, recursive=True)):  # noqa: PTH207  Path.glob refuses absolute patterns
            if not Path(match).is_dir():
                yield Path(match)


def _walk_folder(folder: str) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if Path(name).suffix in _SUFFIXES and not name.startswith("."):
                yield Path(place) / name


def _missing_problem(path: str) -> Problem:
    if Path(path).is_dir():
        return Problem(path, "", "holds no .yaml or .yml file", "put job files there, or name another folder")
    if glob.has_magic(path):
        return Problem(path, "", "matches no file", "check the pattern; ** goes through folders")
    return Problem(path, "", "no such file or folder", "check the path")


@dataclass(frozen=True)
class LoadedJobs:
    """Jobs in the order they were found; ``documents[i]`` is where ``jobs[i]`` was written."""

    jobs: tuple[Job, ...]
    documents: tuple[YamlDocument, ...]

    def __iter__(self) -> Iterator[tuple[Job, YamlDocument]]:
        return zip(self.jobs, self.documents, strict=True)

    def where(self, name: str, path: FieldPath = ()) -> str:
        """Return ``file:line:column`` of a field of the job of that name; KeyError for another name."""
        for job, document in self:
            if job.name == name:
                return document.where(path)
        raise KeyError(name)


def load_jobs(sources: Sequence[JobSource], now: datetime, *, own_deadlines: bool = True) -> LoadedJobs:
    """Load the jobs of all files, folders (recursive), globs and texts, each with its place.

    A file may hold several documents; a file named limits.yaml holds none. InvalidInputError carries every problem of
    every file: no such file, not YAML, what the model refuses, two jobs of one name, a deadline that has passed at
    ``now`` (of a job that may not be late) or that lies before the earliest start, a time that is more than a year
    away. Not ``own_deadlines``: deadlines are not checked, since another one counts.
    """
    paths = [source for source in sources if not isinstance(source, JobText)]
    texts = [source for source in sources if isinstance(source, JobText)]
    problems: list[Problem] = []
    loaded: list[tuple[Job, YamlDocument]] = []
    files: list[Path | JobText] = [*(find_files(paths).jobs if paths or not texts else ()), *texts]
    for file in files:
        try:
            documents = parse_documents(file.text, file.name) if isinstance(file, JobText) else read_documents(file)
        except InvalidInputError as error:
            problems += error.problems
            continue
        if not documents:
            remedy = "write a job into it, or remove it; `stepfare schema job` lists the fields"
            name = file.name if isinstance(file, JobText) else str(file)
            problems.append(Problem(name, "", "holds no job", remedy))
        for document in documents:
            try:
                loaded.append((_read_job(document), document))
            except InvalidInputError as error:
                problems += error.problems
    problems += _deadline_problems(loaded, now) if own_deadlines else ()
    problems += _horizon_problems(loaded, now, own_deadlines=own_deadlines)
    problems += _name_problems(loaded)
    if problems:
        raise InvalidInputError(problems)
    return LoadedJobs(tuple(job for job, _ in loaded), tuple(document for _, document in loaded))


def _read_job(document: YamlDocument) -> Job:
    fields: Any = document.plain()
    if not isinstance(fields, dict):
        what = "a job is a mapping of fields" + (", not a list" if isinstance(fields, list) else "")
        remedy = "write jobs one after the other, with a line --- between them"
        raise InvalidInputError.single(what, where=document.where(), remedy=remedy)
    if foreign := _foreign_problem(fields, document):
        raise InvalidInputError([foreign])
    return validate_document(document, Job)


def _foreign_problem(fields: dict[str, Any], document: YamlDocument) -> Problem | None:
    """Return one problem instead of twenty for a file that is something else."""
    if (foreign := foreign_file(fields, document.file)) is not None:
        return Problem(document.where(), "", f"looks like {foreign.words}, not a job", foreign.remedy)
    if fields and set(fields) <= set(Limits.model_fields):
        remedy = "name it limits.yaml, beside the jobs; commands that plan take any name with --limits"
        return Problem(document.where(), "", "looks like a limits file, not a job", remedy)
    return None


def _deadline_problems(loaded: Sequence[tuple[Job, YamlDocument]], now: datetime) -> Iterator[Problem]:
    for job, document in loaded:
        if job.deadline is None:
            continue
        deadline = job.deadline.at(now)
        start = None if job.earliest_start is None else job.earliest_start.at(now)
        what = ""
        if deadline <= now and job.may_be_late:
            continue
        if deadline <= now:
            what = f"has passed: {_utc(deadline)} is {format_duration(now - deadline)} before now, {_utc(now)}"
        elif start is not None and deadline <= start:
            what = f"{_utc(deadline)} lies before the earliest start, {_utc(start)}"
        if what:
            remedy = "give a later one, or +18h for so long after planning; `late: allowed` runs it all the same"
            yield Problem(document.where(("deadline",)), "deadline", what, remedy)


def _horizon_problems(
    loaded: Sequence[tuple[Job, YamlDocument]], now: datetime, *, own_deadlines: bool
) -> Iterator[Problem]:
    """Yield a problem for each time beyond what is planned: with them a plan would have slots without end."""
    for job, document in loaded:
        for field, moment in (("earliest_start", job.earliest_start), ("deadline", job.deadline)):
            if moment is None or (field == "deadline" and not own_deadlines):
                continue
            if is_beyond_planning(moment.at(now), now):
                yield Problem(document.where((field,)), field, TOO_FAR.format(_utc(moment.at(now))), TOO_FAR_REMEDY)
        if own_deadlines and job.deadline is None and job.max_wait > PLANNING_SPAN:
            what = f"{format_duration(job.max_wait)} is more than {PLANNING_SPAN.days} days"
            yield Problem(document.where(("max_wait",)), "max_wait", what, f"write {PLANNING_SPAN.days}d or less")


def _name_problems(loaded: Sequence[tuple[Job, YamlDocument]]) -> Iterator[Problem]:
    first: dict[str, YamlDocument] = {}
    for job, document in loaded:
        if job.name in first:
            what = f"{job.name!r} is the name of another job, at {first[job.name].where(('name',))}"
            yield Problem(document.where(("name",)), "name", what, "names are unique among the jobs of a plan")
        first.setdefault(job.name, document)


def _utc(moment: datetime) -> str:
    return moment.isoformat(timespec="minutes").replace("+00:00", "Z")


@dataclass(frozen=True)
class LoadedLimits:
    """Limits and where they were written; ``document`` is None for an empty file."""

    limits: Limits
    document: YamlDocument | None


def read_limits(path: Path) -> Limits:
    """Return the limits of a file; :func:`load_limits` without the places."""
    return load_limits(path).limits


def load_limits(path: Path) -> LoadedLimits:
    """Load the limits of a file of one document; an empty file limits nothing.

    InvalidInputError carries everything that is wrong: no such file, not YAML, a second document, what the model
    refuses.
    """
    return _limits_of(read_documents(path))


def parse_limits(text: str) -> LoadedLimits:
    """Load limits of text as :func:`load_limits` does; messages name it limits.yaml."""
    return _limits_of(parse_documents(text, "limits.yaml"))


def _limits_of(documents: Sequence[YamlDocument]) -> LoadedLimits:
    shape = (", not a list", "put the list under `limits:`")
    limits = validate_single(documents, Limits, "limits", second=JOIN_LISTS, shape=shape)
    return LoadedLimits(Limits.none(), None) if limits is None else LoadedLimits(limits, documents[0])


def teams_without_jobs(loaded: LoadedLimits, teams: Collection[str]) -> tuple[Problem, ...]:
    """Return problems for the budgets of teams without a job: they limit nothing, and a name may be misspelt.

    A team whose name is near to one of ``teams`` without a budget has a problem of its own; the others share one, since
    a file of limits may serve other nights.
    """
    document = loaded.document
    if document is None or not teams:
        return ()
    budgeted = {entry.team for entry in loaded.limits.teams}
    problems: list[Problem] = []
    unknown: list[tuple[int, str]] = []
    for index, entry in enumerate(loaded.limits.teams):
        if entry.team in teams:
            continue
        near = nearest_word(entry.team, set(teams) - budgeted)
        if near is None:
            unknown.append((index, entry.team))
            continue
        what = f"no job here is of team {entry.team!r}: its budget limits nothing"
        problems.append(
            Problem(document.where(("teams", index, "team")), f"teams[{index}].team", what, f"did you mean {near}?")
        )
    if unknown:
        names = ", ".join(name for _, name in unknown)
        what = f"no job here is of {'team' if len(unknown) == 1 else 'the teams'} {names}: nothing is limited by that"
        problems.append(Problem(document.where(("teams", unknown[0][0], "team")), "teams", what, ""))
    return tuple(problems)
