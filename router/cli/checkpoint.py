"""``stepfare checkpoint push | pull | copy``: checkpoints to durable storage, from it, and to another region."""

from __future__ import annotations

import dataclasses
import json
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
    Format,
    line,
    pace_of,
    passed,
    place,
    said,
)
from router.cli.console import CommandError, ExitCode

if TYPE_CHECKING:
    from router.checkpoints.transfer import Moved

SCHEMA_VERSION = 1
_PARALLEL = 8
_OR_NEWER_HELP = "The URL of a manifest: that one, where it is newer than all that are there."

Seconds = Annotated[float | None, typer.Option(metavar="S", help=SECONDS_HELP)]
Mbps = Annotated[float | None, typer.Option("--max-mbps", metavar="N", help=MBPS_HELP)]
Parallel = Annotated[int, typer.Option(min=1, max=64, help=PARALLEL_HELP)]
Step = Annotated[int | None, typer.Option(min=0, metavar="N", help=STEP_HELP)]
Output = Annotated[Format, typer.Option("--output", "-o", help="Format.")]


def push(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the training saves.")],
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP)],
    step: Step = None,
    every: Annotated[bool, typer.Option("--all", help="All of them, the newest first.")] = False,
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Then remove all but the newest N there.")
    ] = None,
    seconds: Seconds = None,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    output: Output = Format.TABLE,
) -> ExitCode:
    """Copy checkpoints of a folder to durable storage. One counts when its manifest is there, which comes last; what is
    there already with the same size and digest is not copied again.

    \b
    stepfare checkpoint push /mnt/scratch/run-7 s3://bucket/run-7
    stepfare checkpoint push /mnt/scratch/run-7 gs://bucket/run-7 --seconds 100

    Exit code 5 when the time was over.
    """
    from router.checkpoints.checkpoints import Journal, retire
    from router.checkpoints.download import bring
    from router.checkpoints.object_store import Folder

    pace, (target, _) = pace_of(seconds, max_mbps), place(url)
    with said():
        if not folder.is_dir():
            raise CommandError(f"{folder}: no such folder", ExitCode.INVALID_INPUT)
        journal = Journal(folder.absolute(), target.url)
        moved = _shown(
            bring(Folder(folder), target, pace, step=step, parallel=parallel, journal=journal, passed=passed),
            output,
            every=every,
        )
        if not moved:
            raise CommandError(f"{folder}: no checkpoint was copied")
        for gone in retire(target, keep, max(one.step for one in moved)) if keep is not None else ():
            console.note(f"step {gone}: removed there")
    return ExitCode.OK


def pull(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP)],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the training looks for its newest.")],
    step: Step = None,
    or_newer: Annotated[str | None, typer.Option("--or-newer", metavar="URL", help=_OR_NEWER_HELP)] = None,
    seconds: Seconds = None,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    output: Output = Format.TABLE,
) -> ExitCode:
    """Fetch the newest good checkpoint into a folder, every byte held against its digest; what is torn or was changed
    is passed over for the one before. Where there is none at all yet, that is said, and is no failure.

    \b
    stepfare checkpoint pull s3://bucket/run-7 /mnt/scratch/run-7
    stepfare checkpoint pull "$STEPFARE_RESUME_MANIFEST" /mnt/scratch/run-7
    """
    from router.checkpoints.checkpoints import steps
    from router.checkpoints.download import bring
    from router.checkpoints.object_store import Folder

    pace, (source, named) = pace_of(seconds, max_mbps), place(url)
    wanted = named if step is None else step
    other, newer = place(or_newer) if or_newer is not None else (source, None)
    if or_newer is not None and (newer is None or wanted is not None):
        raise InvalidInputError.single("is a manifest's URL, for where no step is named", field="--or-newer")
    fetch = partial(bring, target=Folder(folder), pace=pace, parallel=parallel, passed=passed)
    with said():
        found = fetch(source, step=wanted)
        if newer is not None:
            found = chain(fetch(source, least=newer), fetch(other, step=newer), found)
        moved = _shown(found, output, every=False)
        if not moved and (wanted is not None or steps(source)):
            raise CommandError(f"{url}: no good checkpoint{'' if wanted is None else f' of step {wanted}'}")
        if not moved:
            console.note(f"{url}: no checkpoint there yet")
            if output is Format.JSON:
                console.out(_json([]))
    return ExitCode.OK


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=URL_HELP)],
    target: Annotated[str, typer.Argument(metavar="TO", help="Another such URL.")],
    step: Step = None,
    seconds: Seconds = None,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    output: Output = Format.TABLE,
) -> ExitCode:
    """Copy the newest good checkpoint to another region or cloud, through this machine. The bytes that it reports are
    those that left the source: what egress costs.

    \b
    stepfare checkpoint copy s3://east/run-7 s3://west/run-7 --seconds 600

    Exit code 5 when the time was over; again goes on from there.
    """
    from router.checkpoints.download import bring

    pace, (opened, named), (goal, _) = pace_of(seconds, max_mbps), place(source), place(target)
    wanted = named if step is None else step
    with said():
        moved = _shown(bring(opened, goal, pace, step=wanted, parallel=parallel, passed=passed), output, every=False)
        if not moved:
            raise CommandError(f"{source}: no good checkpoint")
    return ExitCode.OK


def _shown(found: Iterator[Moved], output: Format, *, every: bool) -> list[Moved]:
    moved: list[Moved] = []
    for one in found:
        moved.append(one)
        if output is Format.TABLE:
            console.out(line(one))
        if not every:
            break
    if moved and output is Format.JSON:
        console.out(_json(moved))
    return moved


def _json(moved: list[Moved]) -> str:
    rows = [{**dataclasses.asdict(one), "seconds": round(one.seconds, 3)} for one in moved]
    return json.dumps({"schema_version": SCHEMA_VERSION, "checkpoints": rows}, indent=2)
