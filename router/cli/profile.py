"""Commands ``stepfare profile``, ``list``, ``show`` and ``forget``: speeds to measure, and what runs taught."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pricing.book_check import did_you_mean
from pricing.money import ZERO
from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.completion import complete_books
from router.cli.console import CommandError, ExitCode
from router.cli.options import ListOutput, TableFormat, TableOutput, parse_duration_option, parse_now
from router.cli.planning_options import AdvisoryOption, BookOption
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, acting_user, open_state_store
from router.controller.history.run_records import (
    ForgottenRuns,
    forget_runs,
    forgotten_runs,
    pool_name,
    read_runs,
    recall_runs,
)
from router.planning.document.plan_terms import BOOK
from router.render import profile_text
from router.render.record_table import RecordTable, TableColumn
from router.render.tables import format_timestamp

if TYPE_CHECKING:
    from router.config.job_points import PointFields
    from router.jobs.experience import PoolRun, RunRecords, SpeedRun
    from router.jobs.measured_speed import FabricRun
    from router.state.store import StateStore

#: Device that ``--measure`` runs on; auto takes any accelerator, and never the processor.
DeviceKind = Literal["auto", "cuda", "rocm", "mps", "cpu"]


def profile(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file.")],
    device: Annotated[
        DeviceKind | None, typer.Argument(metavar="DEVICE", help="With --measure: auto, cuda, rocm, mps, cpu.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time steps of the job's shape on the accelerator here; write points.")
    ] = False,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="POINT", help="Write this measured point into the file; repeatable. Fields as there."),
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="The job, where the file holds several.")] = None,
    max_points: Annotated[int, typer.Option("--points", min=1, max=10, metavar="N", help="The most points.")] = 3,
    lasting: Annotated[
        str, typer.Option("--lasting", metavar="DURATION", help="How long one is measured; its start comes on top.")
    ] = "15m",
    book: BookOption = BOOK,
    limits: Annotated[Path | None, typer.Option(metavar="FILE", help="Quotas, stock, reservations, discounts.")] = None,
    advisory: AdvisoryOption = False,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Present moment (ISO, with zone).")] = None,
    output: TableOutput = "table",
) -> ExitCode:
    """Propose which speeds of a job to measure next, for the least money; measure here.

    The gang that costs least for the whole job is looked at. Each point is a gang of its accelerator in the regions
    where the job may run, no larger, at the cheapest price, for --lasting and the job's start-up. The point comes
    first that narrows the error of that gang's speed most for a dollar; the next is chosen as if that were measured.
    Nothing is started.

    With --measure a transformer of the job's widths is trained for a few steps on one accelerator of this machine, by
    PyTorch (the extra "measure"), in up to --points batches, each for at most --lasting. Where memory is short it has
    fewer layers, and the step is scaled back. The points are printed and written into the file.

    \b
    stepfare profile job.yaml
    stepfare profile job.yaml --points 2 -o json
    stepfare profile job.yaml --add accelerators=H100:8,seconds_per_step=2.1
    stepfare profile job.yaml --measure
    stepfare profile job.yaml --measure cpu --points 1

    Exit codes: 1 a result cannot be written into the file's layout, and is printed to paste, or nothing can be measured
    (no accelerator or PyTorch here, or no sound result), and nothing is written; 3 no gang can run the job.
    """
    moment = parse_now(now)
    if device is not None and not measure:
        raise InvalidInputError.single(f"{device} is for --measure", field="DEVICE", remedy="add --measure, or drop it")
    if measure and add:
        raise InvalidInputError.single("--measure and --add are both given", field="--add", remedy="keep one of them")
    if measure:
        within = parse_duration_option("--lasting", lasting)
        assert within is not None
        return _measure(file, job, device or "auto", max_points, within, book, moment, output)
    if add:
        from router.config.job_points import parse_point

        return _write(_existing(file), job, tuple(parse_point(text) for text in add), book, moment)
    from router.app.profile import propose
    from router.jobs.speed import UnknownSpeed

    duration = parse_duration_option("--lasting", lasting)
    assert duration is not None
    name, result = propose(file, job, book, limits, moment, lasting=duration, max_points=max_points, advisory=advisory)
    if output == "json":
        console.write(profile_text.as_json(name, result), None)
    else:
        console.write(profile_text.table(name, result, str(file), console.screen()), None)
    return ExitCode.UNPLACED if isinstance(result, UnknownSpeed) else ExitCode.OK


def _measure(
    file: Path,
    job: str | None,
    device: DeviceKind,
    max_points: int,
    lasting: timedelta,
    book: str,
    moment: datetime,
    output: TableFormat,
) -> ExitCode:
    from router.app.profile import load_measured_job, measure_job, open_device
    from router.jobs.step_measurement import MeasurementError
    from router.prices.books import load_book

    loaded = load_measured_job(_existing(file), job, moment)
    try:
        opened = open_device(device)
        clock = time.perf_counter
        result = measure_job(
            *loaded, opened, load_book(book), moment, clock=clock, lasting=lasting, max_points=max_points
        )
    except MeasurementError as error:
        raise CommandError(error.what, remedy=error.remedy) from None
    if output == "json":
        console.write(profile_text.measurement_json(result), None)
    else:
        console.write(profile_text.measurement_table(result, console.screen()), None)
    if result.unlisted:
        console.note(f"{file} is as it was: {result.device}: {result.unlisted}", "warning")
        return ExitCode.OK
    return _write(file, job, tuple(point.fields for point in result.points), book, moment)


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise InvalidInputError.single("no such file", where=str(file), remedy="name one job file")
    return file


def _write(file: Path, job: str | None, points: tuple[PointFields, ...], book: str, moment: datetime) -> ExitCode:
    from router.app.profile import add_points
    from router.config.job_points import point_block

    name = add_points(file, job, points, book, moment)
    if name is None:
        console.note(f"{file} is laid out so that it is not edited; paste this under `workload`", "warning")
        console.out(point_block(points))
        return ExitCode.FAILURE
    console.note(f"{file}: {len(points)} point{'s' if len(points) > 1 else ''} added to {name}")
    return ExitCode.OK


Book = Annotated[
    str, typer.Option(metavar="BOOK", autocompletion=complete_books, help="Price book with the machine types.")
]

Now = Annotated[str | None, typer.Option(metavar="TIME", help="Runs up to this moment (ISO, with zone).")]


def list_runs(
    book: Book = "latest",
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Now = None,
    output: ListOutput = "table",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write all runs (JSON) for --learned FILE.")
    ] = None,
) -> None:
    """List the jobs and pools that plans learn from, with the number of runs and the date of the last.

    Older runs count less, half after 30 days, and none after 180.

    \b
    stepfare profile list
    stepfare profile list -o json
    stepfare profile list --out runs.json
    stepfare plan jobs/ --learned runs.json
    """
    from router.app.learned import runs_to_json

    moment = parse_now(now)
    with open_state_store(settings_files, makes=False) as (_, store):
        records = _read(store, book, moment)
        for mark in _forgotten(store):
            console.note(mark)
    if out is not None:
        console.write(runs_to_json(records), out)
        return
    rows = [*_job_rows(records), *_pool_rows(records), *_fabric_rows(records)]
    console.print_table(output, "learned", _LEARNED, rows, "nothing was measured yet")


def show(
    name: Annotated[str, typer.Argument(metavar="JOB|POOL", help="Name as `profile list` prints it.")],
    book: Book = "latest",
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Now = None,
    output: ListOutput = "table",
) -> None:
    """Show each run of a job, with its measured speed, or of a pool, with the hours it was held.

    \b
    stepfare profile show llama2-7b-sft-chat
    stepfare profile show aws/us-east-1a/p5.48xlarge/spot -o csv
    """
    moment = parse_now(now)
    with open_state_store(settings_files, makes=False) as (_, store):
        records = _read(store, book, moment)
    speeds = sorted((run for run in records.speeds if run.job == name), key=lambda run: run.at)
    pools = sorted((run for run in records.pools if pool_name(run) == name), key=lambda run: run.at)
    if speeds:
        console.print_table(output, "runs", _SPEED_RUNS, speeds, "")
    elif pools:
        console.print_table(output, "runs", _POOL_RUNS, pools, "")
    elif fabrics := [run for run in records.fabrics if pool_name(run) == name]:
        console.print_table(output, "runs", _FABRIC_RUNS, fabrics, "")
    else:
        raise _unknown(name, records)


_SPEED_RUNS: RecordTable[SpeedRun] = RecordTable(
    (
        TableColumn("attempt", lambda run: run.attempt, "ATTEMPT"),
        TableColumn("on", lambda run: _gang(run), "ON"),
        TableColumn("steps_per_hour", lambda run: f"{run.steps_per_hour:.6g}", "STEPS PER HOUR", right=True),
        TableColumn("ended", lambda run: run.at, "ENDED", format_timestamp),
        TableColumn("signature", lambda run: run.signature[:12], "SIGNATURE"),
    )
)
_POOL_RUNS: RecordTable[PoolRun] = RecordTable(
    (
        TableColumn("attempt", lambda run: run.attempt, "ATTEMPT"),
        TableColumn("machines", lambda run: run.machines, "MACHINES", right=True),
        TableColumn("hours", lambda run: f"{run.hours:.2f}", "HOURS", right=True),
        TableColumn("interrupted", lambda run: "yes" if run.interrupted else "no", "INTERRUPTED"),
        TableColumn("ended", lambda run: run.at, "ENDED", format_timestamp),
    )
)
_FABRIC_RUNS: RecordTable[FabricRun] = RecordTable(
    (
        TableColumn("attempt", lambda run: run.attempt, "ATTEMPT"),
        TableColumn("machines", lambda run: run.machines, "MACHINES", right=True),
        TableColumn("gb_per_s", lambda run: f"{run.gb_per_s:.3g}", "GB/S", right=True),
        TableColumn("assumed_gb_per_s", lambda run: run.assumed_gb_per_s, "ASSUMED", "{:.3g}".format, right=True),
        TableColumn("at", lambda run: run.at, "MEASURED", format_timestamp),
    )
)


def forget(
    name: Annotated[str, typer.Argument(metavar="JOB|POOL|ATTEMPT", help="Whose runs do not count any more.")],
    undo: Annotated[bool, typer.Option("--undo", help="Make them count again.")] = False,
    book: Book = "latest",
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Now = None,
) -> None:
    """Ignore the runs up to now of a job, a pool or one attempt; later runs count.

    Nothing is deleted, and --undo makes them count again. The audit log records both.

    \b
    stepfare profile forget llama2-7b-sft-chat
    stepfare profile forget llama2-7b-sft-chat --undo
    stepfare profile forget llama2-7b-sft-chat-1a2b3c4d5e
    """
    moment = parse_now(now)
    with open_state_store(settings_files, makes=False) as (_, store):
        if undo:
            if not recall_runs(store, name):
                raise CommandError(f"runs of {name} are not ignored", remedy="`stepfare profile list` says which are")
            store.audit.add(acting_user(), "runs recalled", "", ZERO, moment, name=name)
            console.note(f"runs of {name} count again")
            return
        records = _read(store, book, moment)
        found = {run.attempt for run in records.speeds if name in (run.job, run.attempt)}
        runs: list[PoolRun | FabricRun] = [*records.pools, *records.fabrics]
        found |= {run.attempt for run in runs if name in (pool_name(run), run.attempt)}
        if not found:
            raise _unknown(name, records)
        forget_runs(store, ForgottenRuns(name, moment, acting_user()))
        store.audit.add(acting_user(), "runs forgotten", "", ZERO, moment, name=name, runs=len(found))
    console.note(f"runs of {name} up to now are ignored: {len(found)}; `stepfare profile forget {name} --undo`")


def _read(store: StateStore, book: str, moment: datetime) -> RunRecords:
    from router.prices.books import load_book

    return read_runs(store, load_book(book), moment)


def _forgotten(store: StateStore) -> list[str]:
    return [
        f"runs of {mark.name} up to {format_timestamp(mark.before)} are ignored ({mark.who})"
        for mark in forgotten_runs(store)
    ]


@dataclass(frozen=True, slots=True)
class _LearnedRow:
    """A row of what plans learn: a job's gang or a pool, the number of runs, what they say, the day of the last."""

    what: str
    runs: int
    measured: str
    last: datetime


_LEARNED: RecordTable[_LearnedRow] = RecordTable(
    (
        TableColumn("what", lambda row: row.what, "WHAT"),
        TableColumn("runs", lambda row: row.runs, "RUNS", right=True),
        TableColumn("measured", lambda row: row.measured, "MEASURED"),
        TableColumn("last", lambda row: f"{row.last:%Y-%m-%d}", "LAST"),
    )
)


def _job_rows(records: RunRecords) -> list[_LearnedRow]:
    """Return a row for each job and gang that was measured."""
    groups: dict[tuple[str, str], list[SpeedRun]] = {}
    for run in records.speeds:
        groups.setdefault((run.job, _gang(run)), []).append(run)
    rows = []
    for (job, gang), runs in sorted(groups.items()):
        speeds = [run.steps_per_hour for run in runs]
        span = f"{min(speeds):,.5g}" if len(runs) == 1 else f"{min(speeds):,.5g} to {max(speeds):,.5g}"
        rows.append(_LearnedRow(job, len(runs), f"{span} steps/h on {gang}", max(run.at for run in runs)))
    return rows


def _pool_rows(records: RunRecords) -> list[_LearnedRow]:
    groups: dict[str, list[PoolRun]] = {}
    for run in records.pools:
        groups.setdefault(pool_name(run), []).append(run)
    rows = []
    for name, runs in sorted(groups.items()):
        hits, hours = sum(run.interrupted for run in runs), sum(run.hours for run in runs)
        rows.append(
            _LearnedRow(name, len(runs), f"{hits} interruptions in {hours:,.1f} h", max(run.at for run in runs))
        )
    return rows


def _fabric_rows(records: RunRecords) -> list[_LearnedRow]:
    """Return a row for each place and machine type where gangs measured an all-reduce: its last figure."""
    groups: dict[str, list[FabricRun]] = {}
    for run in records.fabrics:
        groups.setdefault(pool_name(run), []).append(run)
    return [
        _LearnedRow(name, len(runs), f"all-reduce {last.gb_per_s:.3g} GB/s over {last.machines} machines", last.at)
        for name, runs in sorted(groups.items())
        for last in (max(runs, key=lambda run: run.at),)
    ]


def _gang(run: SpeedRun) -> str:
    return f"{run.accelerators} {run.accelerator}" + (
        f" in {run.machines} machines, {run.fabric}" if run.fabric else ""
    )


def _unknown(name: str, records: RunRecords) -> InvalidInputError:
    pools: list[PoolRun | FabricRun] = [*records.pools, *records.fabrics]
    known = sorted({run.job for run in records.speeds} | {pool_name(run) for run in pools})
    remedy = did_you_mean(name, known) or "see `stepfare profile list`"
    return InvalidInputError.single(f"no run of {name!r} is known", field="NAME", remedy=remedy)
