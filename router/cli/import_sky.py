"""Command ``stepfare import sky``: convert a SkyPilot task to a job file and list what could not be converted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from pricing.book_file import embedded_book
from pricing.problems import InvalidInputError
from router.cli.console import note, write
from router.config.yamlfile import YamlDocument, read_documents
from router.jobs.skypilot import from_skypilot

_HINT = "# yaml-language-server: $schema=docs/schema/job.json\n"


def import_sky(
    task: Annotated[Path, typer.Argument(metavar="TASK", help="A SkyPilot task, e.g. task.yaml.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the job to this file.")] = None,
) -> None:
    """Convert a SkyPilot task into a job. Settings without a counterpart are listed on stderr.

    A task does not say how many steps there are or how fast they run. Such fields hold `FILL IN`, and every command
    refuses the job until you have filled them in.

    \b
    Examples:
      stepfare import sky task.yaml --out job.yaml
      stepfare import sky task.yaml | less
    """
    documents = read_documents(task)
    if not documents:
        raise InvalidInputError.single("is empty", where=str(task), remedy="name a SkyPilot task")
    if len(documents) > 1:
        raise InvalidInputError.single(
            "is a pipeline of several tasks; here the second document begins",
            where=documents[1].where(),
            remedy="give each task a file of its own",
        )
    try:
        book = embedded_book()
        imported = from_skypilot(_as_skypilot_reads(task, documents[0]), book.machines, book.regions)
    except InvalidInputError as error:
        places = [(problem, documents[0].where()) for problem in error.problems]
        raise InvalidInputError(
            type(problem)(problem.where or where, problem.field, problem.what, problem.remedy)
            for problem, where in places
        ) from None
    write(_HINT + _as_yaml(imported.job_yaml), out)
    for heading, lines in (
        ("not carried over", imported.not_carried),
        ("to be filled in", imported.to_fill),
    ):
        if lines:
            note("\n".join([f"{heading}:", *(f"  {line}" for line in lines)]))


def _as_skypilot_reads(task: Path, document: YamlDocument) -> Any:
    """Return the task with the values of ``envs`` as SkyPilot's own reader has them: 1e-6 is text, ``on`` is true."""
    plain = document.plain()
    again = yaml.safe_load(task.read_text(encoding="utf-8-sig"))
    if isinstance(plain, dict) and isinstance(again, dict) and isinstance(again.get("envs"), dict):
        return {**plain, "envs": again["envs"]}
    return plain


class _Dumper(yaml.SafeDumper):
    """YAML dumper that writes text of several lines as a block, and values of the environment in quotes."""


class _Quoted(str):
    __slots__ = ()


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


def _quoted(dumper: yaml.SafeDumper, value: _Quoted) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style='"')


_Dumper.add_representer(str, _text)
_Dumper.add_representer(_Quoted, _quoted)


def _as_yaml(job: dict[str, Any]) -> str:
    run = job.get("run", {})
    if "env" in run:
        job = {**job, "run": {**run, "env": {name: _Quoted(value) for name, value in run["env"].items()}}}
    return yaml.dump(job, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
