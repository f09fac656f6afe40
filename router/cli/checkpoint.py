"""Commands ``stepfare checkpoint push``, ``pull`` and ``copy``: transfer checkpoints to, from and between stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.checkpoint_options import (
    MBPS_HELP,
    PARALLEL_HELP,
    SECONDS_HELP,
    STEP_HELP,
    URL_HELP,
    build_rate_limit,
    describe_transfer,
    report_skipped_step,
    resolve_checkpoint_store,
    translate_storage_errors,
)
from router.cli.console import CommandError, ExitCode
from router.cli.output_options import TableFormat, TableOutput

if TYPE_CHECKING:
    from router.checkpoints.transfer import TransferResult

_PARALLEL = 8
_OR_NEWER_HELP = "URL of a manifest to fetch if it is newer than all checkpoints in the store."

Seconds = Annotated[float | None, typer.Option(metavar="S", help=SECONDS_HELP)]
Mbps = Annotated[float | None, typer.Option("--max-mbps", metavar="N", help=MBPS_HELP)]
Parallel = Annotated[int, typer.Option(min=1, max=64, help=PARALLEL_HELP)]
Step = Annotated[int | None, typer.Option(min=0, metavar="N", help=STEP_HELP)]


def push(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder in which the training saves.")],
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP)],
    step: Step = None,
    every: Annotated[bool, typer.Option("--all", help="Copy all checkpoints, the newest first.")] = False,
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Then delete all but the newest N from the store.")
    ] = None,
    seconds: Seconds = None,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    output: TableOutput = "table",
) -> ExitCode:
    """Copy checkpoints of a folder to durable storage.

    A checkpoint is complete once its manifest, which is written last, is in the store. Files that are there already
    with the same size and digest are not copied again.

    \b
    stepfare checkpoint push /mnt/scratch/run-7 s3://bucket/run-7
    stepfare checkpoint push /mnt/scratch/run-7 gs://bucket/run-7 --seconds 100

    The exit code is 5 if the time ran out.
    """
    from router.checkpoints.checkpoints import CopyJournal, remove_old_checkpoints
    from router.checkpoints.object_store import FolderStore
    from router.checkpoints.transfer import download_checkpoints

    pace, (target, _) = build_rate_limit(seconds, max_mbps), resolve_checkpoint_store(url)
    with translate_storage_errors():
        if not folder.is_dir():
            raise CommandError(f"{folder}: no such folder", ExitCode.INVALID_INPUT)
        journal = CopyJournal(folder.absolute(), target.url)
        moved = _print_transfers(
            download_checkpoints(
                FolderStore(folder),
                target,
                pace,
                step=step,
                parallel=parallel,
                journal=journal,
                passed=report_skipped_step,
            ),
            output,
            every=every,
        )
        if not moved:
            raise CommandError(f"{folder}: no checkpoint was copied")
        for removed_step in (
            remove_old_checkpoints(target, keep, max(one.step for one in moved)) if keep is not None else ()
        ):
            console.note(f"step {removed_step}: removed there")
    return ExitCode.OK


def pull(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP)],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder from which the training resumes.")],
    step: Step = None,
    or_newer: Annotated[str | None, typer.Option("--or-newer", metavar="URL", help=_OR_NEWER_HELP)] = None,
    seconds: Seconds = None,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    output: TableOutput = "table",
) -> ExitCode:
    """Fetch the newest good checkpoint into a folder, verifying every byte against its digest.

    A checkpoint that is incomplete or was changed is skipped in favour of the one before. An empty store is reported
    and is no failure.

    \b
    stepfare checkpoint pull s3://bucket/run-7 /mnt/scratch/run-7
    stepfare checkpoint pull "$STEPFARE_RESUME_MANIFEST" /mnt/scratch/run-7
    """
    from router.checkpoints.checkpoints import list_steps
    from router.checkpoints.object_store import FolderStore
    from router.checkpoints.transfer import download_checkpoints

    pace, (source, named_step) = build_rate_limit(seconds, max_mbps), resolve_checkpoint_store(url)
    wanted_step = named_step if step is None else step
    other, newer = resolve_checkpoint_store(or_newer) if or_newer is not None else (source, None)
    if or_newer is not None and (newer is None or wanted_step is not None):
        raise InvalidInputError.single("is a manifest's URL, for where no step is named", field="--or-newer")
    fetch = partial(
        download_checkpoints, target=FolderStore(folder), pace=pace, parallel=parallel, passed=report_skipped_step
    )
    with translate_storage_errors():
        transfers = fetch(source, step=wanted_step)
        if newer is not None:
            transfers = chain(fetch(source, least=newer), fetch(other, step=newer), transfers)
        moved = _print_transfers(transfers, output, every=False)
        if not moved and (wanted_step is not None or list_steps(source)):
            raise CommandError(f"{url}: no good checkpoint{'' if wanted_step is None else f' of step {wanted_step}'}")
        if not moved:
            console.note(f"{url}: no checkpoint there yet")
            if output == "json":
                console.out(_json([]))
    return ExitCode.OK


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=URL_HELP)],
    target: Annotated[str, typer.Argument(metavar="TO", help="URL of the target, of the same kinds.")],
    step: Step = None,
    seconds: Seconds = None,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    output: TableOutput = "table",
) -> ExitCode:
    """Copy the newest good checkpoint to another region or cloud, through this machine.

    The reported bytes are those that left the source, for which egress is charged.

    \b
    stepfare checkpoint copy s3://east/run-7 s3://west/run-7 --seconds 600

    The exit code is 5 if the time ran out; running it again resumes the copy.
    """
    from router.checkpoints.transfer import download_checkpoints

    pace, (origin, named_step), (destination, _) = (
        build_rate_limit(seconds, max_mbps),
        resolve_checkpoint_store(source),
        resolve_checkpoint_store(target),
    )
    wanted_step = named_step if step is None else step
    with translate_storage_errors():
        moved = _print_transfers(
            download_checkpoints(
                origin, destination, pace, step=wanted_step, parallel=parallel, passed=report_skipped_step
            ),
            output,
            every=False,
        )
        if not moved:
            raise CommandError(f"{source}: no good checkpoint")
    return ExitCode.OK


def _print_transfers(transfers: Iterator[TransferResult], output: TableFormat, *, every: bool) -> list[TransferResult]:
    moved: list[TransferResult] = []
    for one in transfers:
        moved.append(one)
        if output == "table":
            console.out(describe_transfer(one))
        if not every:
            break
    if moved and output == "json":
        console.out(_json(moved))
    return moved


def _json(moved: list[TransferResult]) -> str:
    rows = [{**dataclasses.asdict(one), "seconds": round(one.seconds, 3)} for one in moved]
    return console.as_document({"checkpoints": rows})
