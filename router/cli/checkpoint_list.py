"""``stepfare checkpoint list | verify``: what lies on durable storage, and whether it is as it was written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.checkpoint import Mbps, Output, Parallel, Seconds
from router.cli.checkpoint_options import STEP_HELP, URL_HELP, Format, pace_of, place, said, size
from router.cli.console import CommandError, ExitCode
from router.render.tables import columns

if TYPE_CHECKING:
    from router.checkpoints.manifest import Manifest

SCHEMA_VERSION = 1
_PARALLEL = 8
_HEADER = ("STEP", "ATTEMPT", "CREATED", "FILES", "SIZE", "")
Row = tuple[int, "Manifest | None", str]


def list_checkpoints(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP)],
    output: Output = Format.TABLE,
) -> ExitCode:
    """The checkpoints of a place, the newest first, and whether all their files are there with their sizes.

    \b
    stepfare checkpoint list s3://bucket/run-7
    """
    from router.checkpoints.checkpoints import good, manifest_at, steps

    depot, _ = place(url)
    with said():
        why: dict[int, str] = {}
        whole = {manifest.step for manifest in good(depot, why.__setitem__)}
        rows = [
            (step, manifest_at(depot, step), "" if step in whole else why.get(step, "gone")) for step in steps(depot)
        ]
    _show(rows, output, "whole")
    return ExitCode.OK


def verify(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP)],
    step: Annotated[int | None, typer.Option(min=0, metavar="N", help=STEP_HELP.replace("the newest", "each"))] = None,
    seconds: Seconds = None,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    output: Output = Format.TABLE,
) -> ExitCode:
    """Read every byte of the checkpoints of a place and hold it against the manifest.

    \b
    stepfare checkpoint verify s3://bucket/run-7
    stepfare checkpoint verify s3://bucket/run-7 --step 1200

    Exit code 1 when one is not as it was written, 5 when the time was over before all were read.
    """
    from router.checkpoints.checkpoints import manifest_at, steps
    from router.checkpoints.errors import NotWholeError
    from router.checkpoints.transfer import verify as read

    pace, (depot, named) = pace_of(seconds, max_mbps), place(url)
    wanted = named if step is None else step
    rows: list[Row] = []
    with said():
        for at in steps(depot) if wanted is None else [wanted]:
            manifest, why = manifest_at(depot, at), ""
            try:
                if manifest is None:
                    raise NotWholeError("its manifest cannot be read")
                read(depot, manifest, pace, parallel=parallel)
            except NotWholeError as error:
                why = str(error)
            rows.append((at, manifest, why))
    if not rows:
        raise CommandError(f"{url}: no checkpoint there")
    _show(rows, output, "as it was written")
    return ExitCode.FAILURE if any(why for _, _, why in rows) else ExitCode.OK


def _show(rows: list[Row], output: Format, fine: str) -> None:
    if output is Format.JSON:
        found = [
            {
                "step": step,
                "attempt": m.attempt if m else None,
                "created": m.created if m else None,
                "files": len(m.files) if m else None,
                "bytes": m.bytes if m else None,
                "good": not why,
                "why": why or None,
            }
            for step, m, why in rows
        ]
        console.out(json.dumps({"schema_version": SCHEMA_VERSION, "checkpoints": found}, indent=2))
        return
    table = [
        (
            str(step),
            m.attempt if m else "",
            m.created if m else "",
            str(len(m.files)) if m else "",
            size(m.bytes) if m else "",
            why or fine,
        )
        for step, m, why in rows
    ]
    console.out(columns(_HEADER, table, frozenset({"STEP", "FILES", "SIZE"}), {"ATTEMPT": 24}) if rows else "none")
