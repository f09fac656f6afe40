"""Commands ``stepfare checkpoint list`` and ``verify``: list stored checkpoints and check that they are intact."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.checkpoint import Mbps, Output, Parallel, Seconds
from router.cli.checkpoint_options import URL_HELP, Format, pace_of, place, said, size
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
    """List the checkpoints of a store, the newest first, and whether all files exist with the right size.

    \b
    stepfare checkpoint list s3://bucket/run-7
    """
    from router.checkpoints.checkpoints import good, manifest_at, steps

    store, _ = place(url)
    with said():
        faults: dict[int, str] = {}
        complete = {manifest.step for manifest in good(store, faults.__setitem__)}
        rows = [
            (step, manifest_at(store, step), "" if step in complete else faults.get(step, "gone"))
            for step in steps(store)
        ]
    _show(rows, output, "whole")
    return ExitCode.OK


def verify(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP)],
    step: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Step of the checkpoint; default: every step.")
    ] = None,
    seconds: Seconds = None,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    output: Output = Format.TABLE,
) -> ExitCode:
    """Read every byte of the checkpoints of a store and verify it against the manifest.

    \b
    stepfare checkpoint verify s3://bucket/run-7
    stepfare checkpoint verify s3://bucket/run-7 --step 1200

    Exit codes: 1 a checkpoint was changed or is incomplete; 5 the time ran out before all were read.
    """
    from router.checkpoints.checkpoints import manifest_at, steps
    from router.checkpoints.errors import NotWholeError
    from router.checkpoints.transfer import verify as read

    pace, (store, named_step) = pace_of(seconds, max_mbps), place(url)
    wanted_step = named_step if step is None else step
    rows: list[Row] = []
    with said():
        for number in steps(store) if wanted_step is None else [wanted_step]:
            manifest, fault = manifest_at(store, number), ""
            try:
                if manifest is None:
                    raise NotWholeError("its manifest cannot be read")
                read(store, manifest, pace, parallel=parallel)
            except NotWholeError as error:
                fault = str(error)
            rows.append((number, manifest, fault))
    if not rows:
        raise CommandError(f"{url}: no checkpoint there")
    _show(rows, output, "as it was written")
    return ExitCode.FAILURE if any(fault for _, _, fault in rows) else ExitCode.OK


def _show(rows: list[Row], output: Format, intact: str) -> None:
    if output is Format.JSON:
        checkpoints = [
            {
                "step": step,
                "attempt": m.attempt if m else None,
                "created": m.created if m else None,
                "files": len(m.files) if m else None,
                "bytes": m.bytes if m else None,
                "good": not fault,
                "why": fault or None,
            }
            for step, m, fault in rows
        ]
        console.out(json.dumps({"schema_version": SCHEMA_VERSION, "checkpoints": checkpoints}, indent=2))
        return
    table = [
        (
            str(step),
            m.attempt if m else "",
            m.created if m else "",
            str(len(m.files)) if m else "",
            size(m.bytes) if m else "",
            fault or intact,
        )
        for step, m, fault in rows
    ]
    console.out(columns(_HEADER, table, frozenset({"STEP", "FILES", "SIZE"}), {"ATTEMPT": 24}) if rows else "none")
