"""Read files of other tools as jobs, with what their texts mean to those tools, and check what they became."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from pricing.book import PriceBook
from pricing.problems import InvalidInputError, Problem
from providers.neoclouds.parse.accelerators import AcceleratorIndex
from router.config.book_check import check_against_book
from router.config.job_files import JobText, load_jobs
from router.config.yamlfile import YamlDocument, parse_documents, plain_scalar, read_text
from router.jobs.imported_job import ImportedJob, SoldMachines, foreign_file, is_script, without_marks
from router.jobs.kubernetes import from_kubernetes
from router.jobs.skypilot import from_skypilot_file
from router.jobs.slurm import from_batch_script

_HINT = "# yaml-language-server: $schema=docs/schema/job.json\n"


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A job that was imported, and the text of its job file."""

    job: ImportedJob
    text: str

    def name(self, number: int) -> str:
        """Return the job's name, or one by its number where a user has yet to give one."""
        name = self.job.job_yaml["name"]
        return name if isinstance(name, str) else f"job-{number}"


def sold_machines(book: PriceBook) -> SoldMachines:
    """Return what an import understands names by: machines, regions and accelerators of a book."""
    by_type = {machine.instance_type: machine for machine in book.machines}
    return SoldMachines(by_type, tuple(book.regions), AcceleratorIndex(book.accelerators))


def read_skypilot(task: Path, book: PriceBook) -> list[ImportedFile]:
    """Return the jobs of a SkyPilot task, pipeline or job group. InvalidInputError for what is none."""
    documents = _documents(task)
    _refuse_foreign(task, documents, "a SkyPilot task")
    return _imported(task, book, lambda sold: from_skypilot_file(_as_skypilot_reads(task, documents), sold), documents)


def read_batch_script(script: Path, book: PriceBook) -> list[ImportedFile]:
    """Return the job of a script for sbatch. InvalidInputError for what is none."""
    text = read_text(script)
    if not is_script(text):
        _refuse_foreign(script, _yaml_in(text, script), "a script for sbatch")
    return _imported(script, book, lambda sold: [from_batch_script(text, sold, script.stem)], ())


def read_kubernetes(manifest: Path, book: PriceBook) -> list[ImportedFile]:
    """Return the jobs of the PyTorchJobs and JobSets in a file. InvalidInputError for a file without one."""
    documents = _documents(manifest)
    _refuse_foreign(manifest, documents, "of Kubernetes")
    return _imported(
        manifest, book, lambda sold: from_kubernetes([each.plain() for each in documents], sold), documents
    )


def _documents(file: Path) -> tuple[YamlDocument, ...]:
    text = read_text(file)
    if is_script(text):
        remedy = f"turn it into a job: stepfare import slurm {file}"
        raise InvalidInputError.single("is a Slurm script", where=str(file), remedy=remedy)
    documents = parse_documents(text, str(file))
    if not documents:
        raise InvalidInputError.single("is empty", where=str(file), remedy="name the file that is to become a job")
    return documents


def _yaml_in(text: str, file: Path) -> tuple[YamlDocument, ...]:
    try:
        return parse_documents(text, str(file))
    except InvalidInputError:
        return ()


def _refuse_foreign(file: Path, documents: Iterable[YamlDocument], file_kind: str) -> None:
    """Raise InvalidInputError that names the tool whose file it is; return where it may be of the right kind."""
    for document in documents:
        foreign = foreign_file(document.plain(), str(file))
        if foreign is not None and not foreign.words.endswith(file_kind):
            what = f"is {foreign.words}, not {file_kind.removeprefix('of ')}"
            raise InvalidInputError.single(what, where=document.where(), remedy=foreign.remedy)


def _imported(
    file: Path,
    book: PriceBook,
    convert: Callable[[SoldMachines], list[ImportedJob]],
    documents: Sequence[YamlDocument],
) -> list[ImportedFile]:
    try:
        jobs = convert(sold_machines(book))
    except InvalidInputError as error:
        raise InvalidInputError(_placed(problem, file, documents) for problem in error.problems) from None
    for job in jobs:
        _check(job, file, book)
    return [ImportedFile(job, _HINT + _as_yaml(job.job_yaml)) for job in jobs]


def _placed(problem: Problem, file: Path, documents: Sequence[YamlDocument]) -> Problem:
    """Return the problem at its place in the file: ``where`` is the number of a document, or a line of a script."""
    number = problem.where if problem.where.isdecimal() else "0" if documents else "1"
    at = documents[int(number)].where(problem.field.split(".")) if documents else f"{file}:{number}"
    return type(problem)(at, problem.field, problem.what, problem.remedy)


def _check(job: ImportedJob, file: Path, book: PriceBook) -> None:
    """Read the job back as ``stepfare validate`` does, with values in place of its marks.

    InvalidInputError for what would be refused: the file says something that no job can have.
    """
    machine, machines = book.machines[0], job.job_yaml["gang"]["machines"]
    gang = f"{machine.accelerator}:{machine.accelerator_count * machines}"
    region = book.regions[0].id
    values: dict[str, Any] = {"team": "x", "name": "x", "steps": 1, "seconds_per_step": 1, "accelerators": gang}
    values |= {"workload": {"profile": {"accelerators": gang, "seconds_per_step": 1}}, "ref": "main", "at": str(region)}
    values |= {"gib": 1, "size_gib": 1, "allow": [region.cloud], "command": "true"}
    text = _as_yaml(without_marks(job.job_yaml, values))
    try:
        check_against_book(load_jobs([JobText(text)], datetime.fromtimestamp(0, UTC)), book)
    except InvalidInputError as error:
        raise InvalidInputError(
            Problem(str(file), each.field, f"would make a job that is refused: {each.what}", each.remedy)
            for each in error.problems
        ) from None


def _as_skypilot_reads(task: Path, documents: Iterable[YamlDocument]) -> list[Any]:
    """Return the tasks with the values of ``envs`` as SkyPilot's own reader has them: 1e-6 is text, ``on`` is true."""
    again = [each for each in yaml.safe_load_all(read_text(task)) if each is not None]
    plain = [document.plain() for document in documents]
    for fields, other in zip(plain, again, strict=False):
        if isinstance(fields, dict) and isinstance(other, dict) and isinstance(other.get("envs"), dict):
            fields["envs"] = other["envs"]
    return plain


class _Dumper(yaml.SafeDumper):
    """YAML dumper that writes text of several lines as a block, and values of the environment in quotes."""


class _Quoted(str):
    __slots__ = ()


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Quote what our own reader would take for a number; PyYAML quotes what is one in YAML 1.1."""
    style = "|" if "\n" in value else None if _stays_text(value) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _stays_text(value: str) -> bool:
    try:
        return plain_scalar(value) == value
    except ValueError:
        return False


def _quoted(dumper: yaml.SafeDumper, value: _Quoted) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style='"')


_Dumper.add_representer(str, _text)
_Dumper.add_representer(_Quoted, _quoted)


def _as_yaml(job: dict[str, Any]) -> str:
    run = job.get("run", {})
    if "env" in run:
        job = {
            **job,
            "run": {
                **run,
                "env": {
                    name: _Quoted(value) if isinstance(value, str) else value for name, value in run["env"].items()
                },
            },
        }
    return yaml.dump(job, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
