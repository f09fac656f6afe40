"""Commands ``stepfare import``: convert files of other tools to job files and list what could not be converted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pricing.book_file import embedded_book
from pricing.problems import InvalidInputError
from router.cli.console import note, write
from router.cli.options import option_error
from router.config.imported_files import ImportedFile, read_batch_script, read_kubernetes, read_skypilot

_FILES = frozenset({".yaml", ".yml"})
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write the job to this file, several jobs to this folder."),
]


def import_sky(
    task: Annotated[Path, typer.Argument(metavar="TASK", help="A SkyPilot task, e.g. task.yaml.")],
    out: OutOption = None,
) -> None:
    """Convert a SkyPilot task into a job. Settings without a counterpart are listed on stderr.

    A task does not say how many steps there are or how fast they run. Such fields hold `FILL IN`, and every command
    refuses the job until you have filled them in. A pipeline or a job group becomes a job for each task.

    \b
    Examples:
      stepfare import sky task.yaml --out job.yaml
      stepfare import sky pipeline.yaml --out jobs/
      stepfare import sky task.yaml | less
    """
    _write(task, read_skypilot(task, embedded_book()), out)


def import_slurm(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A script for sbatch, e.g. train.sbatch.")],
    out: OutOption = None,
) -> None:
    """Convert a batch script of Slurm into a job. Settings without a counterpart are listed on stderr.

    Each machine runs the script; `srun` starts the tasks of that machine. Steps and speed hold `FILL IN`, and every
    command refuses the job until you have filled them in. An array of jobs is refused.

    \b
    Examples:
      stepfare import slurm train.sbatch --out job.yaml
      stepfare import slurm train.sbatch | less
    """
    _write(script, read_batch_script(script, embedded_book()), out)


def import_k8s(
    manifest: Annotated[Path, typer.Argument(metavar="FILE", help="YAML with a PyTorchJob or a JobSet.")],
    out: OutOption = None,
) -> None:
    """Convert a PyTorchJob or a JobSet of Kubernetes into a job. Settings without a counterpart are listed on stderr.

    Each pod becomes a machine of the gang. Steps and speed hold `FILL IN`, and every command refuses the job until you
    have filled them in. Other objects in the file are listed.

    \b
    Examples:
      stepfare import k8s pytorchjob.yaml --out job.yaml
      stepfare import k8s manifests.yaml --out jobs/
    """
    _write(manifest, read_kubernetes(manifest, embedded_book()), out)


def _write(file: Path, imported: Sequence[ImportedFile], out: Path | None) -> None:
    names = [each.name(number) for number, each in enumerate(imported, start=1)]
    if len(imported) > 1 and out is not None:
        if out.suffix in _FILES:
            what = f"{file} holds {len(imported)} jobs"
            raise option_error("--out", what, "name a folder: each gets a file of its own")
        if len(set(names)) < len(names):
            raise InvalidInputError.single("holds two jobs of one name", where=str(file), remedy="give each its own")
        out.mkdir(parents=True, exist_ok=True)
        for name, each in zip(names, imported, strict=True):
            write(each.text, out / f"{name}.yaml")
    else:
        write("---\n".join(each.text for each in imported), out)
    for name, each in zip(names, imported, strict=True):
        beginning = f"{name}: " if len(imported) > 1 else ""
        for heading, lines in (("not carried over", each.job.not_carried), ("to be filled in", each.job.to_fill)):
            if lines:
                note("\n".join([f"{beginning}{heading}:", *(f"  {line}" for line in lines)]))
