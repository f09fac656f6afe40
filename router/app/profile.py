"""Propose points of a job to measure, time steps of its shape on the accelerator at hand, and write points down."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from pydantic import ValidationError

from pricing.atomic_file import write_atomic
from pricing.book import PriceBook
from pricing.machines import Accelerator
from pricing.problems import InvalidInputError
from providers.neoclouds.parse.accelerators import NO_MEMORY, AcceleratorIndex
from router.app.plan import load_inputs
from router.config.book_check import check_against_book
from router.config.job_files import LoadedJobs, load_jobs
from router.config.job_points import PointFields, insert_points
from router.config.validation import problems_of
from router.config.yamlfile import YamlDocument, parse_documents
from router.jobs.spec import Job
from router.jobs.speed import UnknownSpeed, memory_need_gib, usable_memory_gib
from router.jobs.step_measurement import (
    DeviceFullError,
    DeviceMeasurement,
    MeasuredPoint,
    MeasuredShape,
    MeasurementError,
    ScaledStep,
    StepTimings,
    UnsoundScale,
    choose_batches,
    choose_depths,
    find_shape_refusal,
    fits_whole,
    fitting_layers,
    point_fields,
    scale_step,
    shape_of,
)
from router.jobs.workload import Transformer
from router.planning.find.candidates import candidates_for
from router.planning.find.listings import listings_by_accelerator
from router.planning.find.next_points import MeasuringPlan, propose_points
from router.prices.books import load_book


def propose(
    file: Path,
    job_name: str | None,
    book_name: str,
    limits_file: Path | None,
    now: datetime,
    *,
    lasting: timedelta,
    max_points: int,
    advisory: bool,
) -> tuple[str, MeasuringPlan | UnknownSpeed]:
    """Return the name of the job in the file, and the points of it to measure next. InvalidInputError as for a plan."""
    book = load_book(book_name)
    loaded, limits = load_inputs([str(file)], limits_file, now, book, own_deadlines=False)
    job = job_of(loaded, job_name, file)[0]
    candidates, dropped = candidates_for(job, book, limits, now, advisory)
    listings = listings_by_accelerator(book, limits)
    result = propose_points(job, candidates, listings, book.accelerators, lasting=lasting, max_points=max_points)
    if isinstance(result, UnknownSpeed) and dropped:
        result = UnknownSpeed(f"{result.reason}: {dropped[0].listing.name}: {dropped[0].reason}")
    return job.name, result


def add_points(
    file: Path, job_name: str | None, points: Sequence[PointFields], book_name: str, now: datetime
) -> str | None:
    """Write the points into the job's profile and return the job's name; None where the layout cannot be edited.

    The whole profile is checked first: InvalidInputError for points that are refused, and the file is as it was.
    """
    loaded = load_jobs([file], now, own_deadlines=False)
    job, document = job_of(loaded, job_name, file)
    fields = document.plain()
    profile = fields["workload"].get("profile", [])
    profile = list(profile) if isinstance(profile, list) else [profile]
    # Last, so that messages about the points that the file has name them by their position there.
    fields["workload"]["profile"] = [*profile, *(dict(point) for point in points)]
    try:
        changed = Job.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, document, Job)) from None
    check_against_book(LoadedJobs((changed,), (document,)), load_book(book_name))
    text = file.read_bytes().decode("utf-8-sig")
    now_there = next((one for one in parse_documents(text, str(file)) if one == document), None)
    edited = None if now_there is None else insert_points(text, now_there, tuple(points))
    if edited is None:
        return None
    write_atomic(file.resolve(), edited, mode=file.stat().st_mode & 0o777)
    return job.name


def job_of(loaded: LoadedJobs, name: str | None, file: Path) -> tuple[Job, YamlDocument]:
    """Return the job of that name, or the only one of the file; InvalidInputError otherwise."""
    found = [(job, document) for job, document in loaded if name in (None, job.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(job.name for job in loaded.jobs)
    what = f"{file} holds {names}" if name is None else f"{file} holds no job {name!r}, but {names}"
    raise InvalidInputError.single(what, field="--job", remedy="name one of them")


WARM_UP: Final = 3
MOST_STEPS: Final = 20
LEAST_STEPS: Final = 5
INSTALL: Final = "pip install 'stepfare[measure]'"


class StepTooSlowError(Exception):
    """The steps of a shape take longer than the time that is left for it."""


class StepDevice(Protocol):
    """A device that trains single steps. PyTorch's is in ``router.app.torch_device``."""

    @property
    def name(self) -> str:
        """Return the device's name as its driver states it."""

    @property
    def memory_gib(self) -> float:
        """Return the memory that a training may use at most."""

    def prepare(self, shape: MeasuredShape) -> Callable[[], None]:
        """Return a function that trains one step and returns when it is done. DeviceFullError, MeasurementError."""

    def release(self) -> None:
        """Free what the last shape held."""


def open_device(kind: str) -> StepDevice:
    """Return the accelerator at hand (``auto``), or the one of that kind; MeasurementError without it or PyTorch."""
    try:
        from router.app import torch_device
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MeasurementError("measuring needs PyTorch, which is not installed", INSTALL) from None
    except (ImportError, OSError) as error:
        raise MeasurementError(f"PyTorch cannot be loaded: {error}", f"install it anew: {INSTALL}") from None
    device: StepDevice | None = torch_device.find_device(kind)
    if device is None:
        what = "no accelerator is at hand" if kind == "auto" else f"no {kind} accelerator is at hand"
        remedy = "run this on a machine that has one and whose PyTorch sees it; --measure cpu measures the processor"
        raise MeasurementError(what, remedy)
    return device


def load_measured_job(file: Path, name: str | None, now: datetime) -> tuple[Job, Transformer]:
    """Return the job of the file and its shape; InvalidInputError where it has none that can be measured."""
    loaded = load_jobs([file], now, own_deadlines=False)
    found = [(job, document) for job, document in loaded if name in (None, job.name)]
    if len(found) != 1:
        names = ", ".join(job.name for job in loaded.jobs)
        raise InvalidInputError.single(f"{file} holds {names}", field="--job", remedy="name one of them")
    job, document = found[0]
    model = job.workload.transformer
    if model is None:
        raise InvalidInputError.single(
            f"{job.name} has no transformer whose steps could be timed",
            where=document.where(("workload",)),
            field="workload.transformer",
            remedy="state the shape, or measure your own training and use --add",
        )
    refused = find_shape_refusal(model)
    if refused is not None:
        raise InvalidInputError.single(
            refused,
            where=document.where(("workload", "transformer")),
            field="workload.transformer",
            remedy="measure your own training and write its speed with --add",
        )
    return job, model


def measure_job(
    job: Job,
    model: Transformer,
    device: StepDevice,
    book: PriceBook,
    now: datetime,
    *,
    clock: Callable[[], float],
    lasting: timedelta,
    max_points: int,
) -> DeviceMeasurement:
    """Return up to ``max_points`` points of one accelerator, each of another batch, each timed for at most ``lasting``.

    MeasurementError where no batch could be measured, or a scaled point would hide that a gang is too small.
    """
    found = find_accelerator(book, device)
    name = found.name if isinstance(found, Accelerator) else device.name
    if isinstance(found, Accelerator) and not fits_whole(model, device.memory_gib):
        _refuse_small_gangs(job, model, book)
    points: list[MeasuredPoint] = []
    failed: list[tuple[int, str]] = []
    date = now.date().isoformat()
    for batch in choose_batches(model, (option.count for option in job.gang.options)):
        if len(points) == max_points:
            break
        step = _measure_batch(model, batch, device, clock, lasting / timedelta(seconds=1))
        if isinstance(step, UnsoundScale):
            failed.append((batch, step.reason))
        else:
            points.append(MeasuredPoint(step, point_fields(step, name, device.name, date)))
    if not points:
        reasons = "; ".join(f"batch {batch}: {reason}" for batch, reason in failed)
        raise MeasurementError(
            f"nothing could be measured on {device.name}: {reasons}",
            "use a larger accelerator with nothing else on it, or more time (--lasting)",
        )
    unlisted = "" if isinstance(found, Accelerator) else found
    return DeviceMeasurement(job.name, device.name, tuple(points), tuple(failed), unlisted)


def find_accelerator(book: PriceBook, device: StepDevice) -> Accelerator | str:
    """Return the book's accelerator of the device's name, or why there is none.

    The memory decides only where the name leaves it open: drivers report up to a tenth less than a data sheet.
    """
    index = AcceleratorIndex(book.accelerators)
    # Without the digit of the socket, which would run into the memory: A100-SXM4-80GB.
    name = re.sub(r"SXM\d", "SXM", device.name)
    found = index.find(name, None)
    return index.find(name, device.memory_gib) if found == NO_MEMORY else found


def _refuse_small_gangs(job: Job, model: Transformer, book: PriceBook) -> None:
    """Refuse a job that lists a gang too small for it: measured points would let a plan use that gang.

    A measured speed is believed where the memory of the gang does not bear it, as only what ran is measured; a step
    that was scaled from fewer layers did not run.
    """
    for option in job.gang.options:
        accelerator = book.accelerator(option.accelerator)
        if accelerator is None:
            continue
        need, room = memory_need_gib(model, option.count), usable_memory_gib(accelerator)
        if need > room:
            raise MeasurementError(
                f"the gang lists {option}, on which the job does not fit ({need:.0f} GiB each, {room:.0f} usable), and "
                "a speed scaled from fewer layers would hide that",
                f"take {option} out of gang.accelerators",
            )


def _measure_batch(
    model: Transformer, batch: int, device: StepDevice, clock: Callable[[], float], seconds: float
) -> ScaledStep | UnsoundScale:
    """Return the step of one batch, within about ``seconds``.

    A depth that is too large or too slow is halved until two layers are left.
    """
    until = clock() + seconds
    top, reason = fitting_layers(model, batch, device.memory_gib), "two layers do not fit into its memory"
    while depths := choose_depths(top, model.layers):
        try:
            timings = tuple(_measure_depths(model, depths, batch, device, clock, until))
        except DeviceFullError:
            reason = "two layers do not fit into its memory"
        except StepTooSlowError:
            reason = f"its steps are too slow for {seconds:,.0f} s"
        else:
            return scale_step(timings, model.layers)
        top = depths[0] // 2
    return UnsoundScale(reason)


def _measure_depths(
    model: Transformer,
    depths: tuple[int, ...],
    batch: int,
    device: StepDevice,
    clock: Callable[[], float],
    until: float,
) -> Iterator[StepTimings]:
    for position, depth in enumerate(depths):
        left = (until - clock()) / (len(depths) - position)
        if left <= 0:
            raise StepTooSlowError
        yield measure_steps(device, shape_of(model, depth, batch), clock, left)


def measure_steps(device: StepDevice, shape: MeasuredShape, clock: Callable[[], float], seconds: float) -> StepTimings:
    """Return the times of up to 20 steps after three of warm-up, within about ``seconds``.

    StepTooSlowError where the second step tells that five more would take longer, or the first alone takes half of it.
    """
    try:
        step = device.prepare(shape)
        start = clock()
        for index in range(WARM_UP):
            before = clock()
            step()
            taken = clock() - before
            if not index and taken > seconds / 2:
                raise StepTooSlowError
            if index and clock() - start + (WARM_UP - 1 - index + LEAST_STEPS) * taken > seconds:
                raise StepTooSlowError
        times: list[float] = []
        while len(times) < LEAST_STEPS or (len(times) < MOST_STEPS and clock() - start + times[-1] < seconds):
            before = clock()
            step()
            times.append(clock() - before)
        return StepTimings(shape, tuple(times))
    finally:
        device.release()
