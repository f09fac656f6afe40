"""Commands ``stepfare checkpoint list`` and ``verify``: list stored checkpoints and check that they are intact."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.checkpoint import Mbps, Parallel, Seconds
from router.cli.checkpoint_options import (
    URL_HELP,
    build_rate_limit,
    format_bytes,
    resolve_checkpoint_store,
    translate_storage_errors,
)
from router.cli.console import CommandError, ExitCode
from router.cli.output_options import TableFormat, TableOutput
from router.render.record_table import RecordTable, TableColumn

if TYPE_CHECKING:
    from router.checkpoints.manifest import CheckpointManifest

_PARALLEL = 8
Row = tuple[int, "CheckpointManifest | None", str]


def list_checkpoints(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP)],
    output: TableOutput = "table",
) -> ExitCode:
    """List the checkpoints of a store, the newest first, and whether all files exist with the right size.

    \b
    stepfare checkpoint list s3://bucket/run-7
    """
    from router.checkpoints.checkpoints import find_complete_checkpoints, list_steps, read_manifest

    store, _ = resolve_checkpoint_store(url)
    with translate_storage_errors():
        faults: dict[int, str] = {}
        complete = {manifest.step for manifest in find_complete_checkpoints(store, faults.__setitem__)}
        rows = [
            (step, read_manifest(store, step), "" if step in complete else faults.get(step, "gone"))
            for step in list_steps(store)
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
    output: TableOutput = "table",
) -> ExitCode:
    """Read every byte of the checkpoints of a store and verify it against the manifest.

    \b
    stepfare checkpoint verify s3://bucket/run-7
    stepfare checkpoint verify s3://bucket/run-7 --step 1200

    Exit codes: 1 a checkpoint was changed or is incomplete; 5 the time ran out before all were read.
    """
    from router.checkpoints.checkpoints import list_steps, read_manifest
    from router.checkpoints.errors import IncompleteCheckpointError
    from router.checkpoints.transfer import verify_checkpoint as read

    pace, (store, named_step) = build_rate_limit(seconds, max_mbps), resolve_checkpoint_store(url)
    wanted_step = named_step if step is None else step
    rows: list[Row] = []
    with translate_storage_errors():
        for number in list_steps(store) if wanted_step is None else [wanted_step]:
            manifest, fault = read_manifest(store, number), ""
            try:
                if manifest is None:
                    raise IncompleteCheckpointError("its manifest cannot be read")
                read(store, manifest, pace, parallel=parallel)
            except IncompleteCheckpointError as error:
                fault = str(error)
            rows.append((number, manifest, fault))
    if not rows:
        raise CommandError(f"{url}: no checkpoint there")
    _show(rows, output, "as it was written")
    return ExitCode.FAILURE if any(fault for _, _, fault in rows) else ExitCode.OK


def _show(rows: list[Row], output: TableFormat, intact: str) -> None:
    console.print_table(output, "checkpoints", _checkpoint_table(intact), rows, "none")


def _checkpoint_table(intact: str) -> RecordTable[Row]:
    def stated(take: Callable[[CheckpointManifest], object]) -> Callable[[Row], object]:
        return lambda row: None if row[1] is None else take(row[1])

    return RecordTable(
        (
            TableColumn("step", lambda row: row[0], "STEP", right=True),
            TableColumn("attempt", stated(lambda manifest: manifest.attempt), "ATTEMPT", width=24),
            TableColumn("created", stated(lambda manifest: manifest.created), "CREATED"),
            TableColumn("files", stated(lambda manifest: len(manifest.files)), "FILES", right=True),
            TableColumn("bytes", stated(lambda manifest: manifest.bytes), "SIZE", format_bytes, right=True),
            TableColumn("good", lambda row: not row[2]),
            TableColumn("why", lambda row: row[2] or None),
            TableColumn("", lambda row: row[2] or intact, ""),
        )
    )
