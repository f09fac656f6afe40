"""Command ``stepfare profile``: propose which speeds of a job to measure, measure here, write results into its file."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.options import parse_duration_option, parse_now
from router.cli.output_options import TableFormat, TableOutput
from router.cli.planning_options import AdvisoryOption, BookOption
from router.planning.document.plan_terms import BOOK

if TYPE_CHECKING:
    from router.config.job_points import PointFields


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
        return _add(file, job, add, book, moment)
    from router.app.profile import propose
    from router.jobs.speed import UnknownSpeed
    from router.render import profile_text

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
    from router.app.measure import load_measured_job, measure_job, open_device
    from router.jobs.step_measurement import MeasurementError
    from router.prices.books import load_book
    from router.render import profile_text

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


def _add(file: Path, job: str | None, add: list[str], book: str, moment: datetime) -> ExitCode:
    from router.config.job_points import parse_point

    return _write(_existing(file), job, tuple(parse_point(text) for text in add), book, moment)


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
