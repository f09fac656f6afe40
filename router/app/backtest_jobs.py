"""Derive a back-test's work from a job: hours on one kind of machine, deadline, launch and move costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pricing.book import PriceBook
from pricing.book_check import did_you_mean
from pricing.machines import Machine
from pricing.problems import InvalidInputError, Problem
from router.config.job_files import load_jobs
from router.config.yamlfile import YamlDocument
from router.jobs.gang import parse_accelerators
from router.jobs.spec import Job
from router.jobs.speed import Speed, gang_speed
from router.prices.books import load_book

DEFAULT_CHANGEOVER = timedelta(minutes=12)  # as in the published figures
GB_PER_GIB = 2**30 / 10**9


@dataclass(frozen=True, slots=True)
class BacktestJob:
    """One job, in seconds, on ``size`` machines of the traces' kind.

    ``deadline_s`` is None when the job has none. ``notes`` explain the assumptions.
    """

    name: str
    work_s: int
    changeover_s: int
    checkpoint_gb: float
    size: int = 1
    deadline_s: int | None = None
    notes: tuple[str, ...] = ()


def backtest_jobs_of(
    paths: Sequence[str], now: datetime, book_name: str, accelerator: str, changeover: timedelta | None
) -> tuple[BacktestJob, ...]:
    """Return the jobs of the files on machines with ``accelerator`` (``V100-16GB``, ``H100:8``).

    InvalidInputError: problems of reading them, an accelerator that no machine of the book has, jobs that cannot be
    played.
    """
    book = load_book(book_name)
    loaded = load_jobs(paths, now)
    machine = _machine(book, accelerator)
    problems: list[Problem] = []
    works = []
    for job, document in loaded:
        problems += _refusals(job, document)
        result = _work(job, machine, book, now, changeover)
        if isinstance(result, BacktestJob):
            works.append(result)
        else:
            field, why = result
            remedy = f"--accelerator says {accelerator}: is that what it runs on?"
            problems.append(Problem(document.where((field,)), field, why, remedy))
    if problems:
        raise InvalidInputError(problems)
    return tuple(works)


def _machine(book: PriceBook, accelerator: str) -> Machine:
    """Return the machine with this number of accelerators whose network is the fastest."""
    try:
        options = list(parse_accelerators(accelerator))
    except ValueError as error:
        raise InvalidInputError.single(
            str(error), field="--accelerator", remedy="of one machine, e.g. H100:8"
        ) from None
    option = options[0]
    names = {machine.accelerator for machine in book.machines}
    of_kind = [m for m in book.machines if m.accelerator.lower() == option.accelerator.lower()]
    if not of_kind:
        longer = sorted(name for name in names if name.lower().startswith(option.accelerator.lower()))
        remedy = f"it has {', '.join(longer)}" if longer else did_you_mean(option.accelerator, names)
        what = f"no machine of the book has {option.accelerator}"
        raise InvalidInputError.single(what, field="--accelerator", remedy=remedy)
    fitting = [machine for machine in of_kind if machine.accelerator_count == option.count]
    if not fitting:
        counts = sorted({machine.accelerator_count for machine in of_kind})
        raise InvalidInputError.single(
            f"no machine of the book has {option.count} {option.accelerator}",
            field="--accelerator",
            remedy=f"machines have {', '.join(map(str, counts))} of them",
        )
    return max(fitting, key=lambda m: (m.has_rdma, m.inter_node_gbps or 0.0, m.cloud, m.instance_type))


def _refusals(job: Job, document: YamlDocument) -> Iterator[Problem]:
    if job.steps_left == 0:
        yield Problem(document.where(("status",)), "status", "has no steps left", "leave the job out")
    if job.checkpoint is None:
        what = "without a checkpoint nothing of a run is left when spot is lost"
        yield Problem(document.where(), "checkpoint", what, "add `checkpoint: {size_gib: ...}`")
    if job.market.spot != "allowed":
        what = f"spot is {job.market.spot!r}, so there is nothing to choose between"
        yield Problem(document.where(("market",)), "market.spot", what, "write `spot: allowed`, or leave the job out")
    if job.gang.on_demand_share > 0:
        what = "gangs of both markets cannot be played"
        yield Problem(document.where(("gang", "on_demand_share")), "gang.on_demand_share", what, "leave it out")


def _work(
    job: Job, machine: Machine, book: PriceBook, now: datetime, changeover: timedelta | None
) -> BacktestJob | tuple[str, str]:
    """Return the job's work, or a field and what is wrong there.

    Of several gangs the smallest that has a speed is taken.
    """
    kind = book.accelerator(machine.accelerator)
    options = [o for o in job.gang.options if o.accelerator == machine.accelerator]
    if kind is None or not options:
        return "gang", f"its gang may not be of {machine.accelerator}"
    why = "gang", f"no gang of its is a multiple of {machine.accelerator_count} {machine.accelerator}"
    for option in options:
        size, rest = divmod(option.count, machine.accelerator_count)
        if rest or not size:
            continue
        speed = gang_speed(job.workload, machine, size, kind)
        if isinstance(speed, Speed):
            return _played(job, machine, size, speed, now, changeover)
        why = "workload", speed.reason
    return why


def _played(
    job: Job, machine: Machine, size: int, speed: Speed, now: datetime, changeover: timedelta | None
) -> BacktestJob:
    hours = job.steps_left / speed.steps_per_hour
    notes = [f"{job.name}: {hours:.1f} h of work on {size} {machine.cloud} {machine.instance_type}, {speed.basis}"]
    saved = job.checkpoint
    launch = job.startup
    if changeover is not None:
        launch = changeover
    elif saved is not None and saved.interval is not None:
        launch += saved.interval / 2
        notes.append(f"{job.name}: a launch is its start-up and half of what lies between two checkpoints")
    else:
        notes.append(f"{job.name}: a launch is its start-up alone; --changeover may add the work that is lost")
    begins = now if job.earliest_start is None else max(now, job.earliest_start.at(now))
    deadline = None if job.deadline is None else round((job.deadline.at(now) - begins).total_seconds())
    return BacktestJob(
        name=job.name,
        work_s=max(1, round(hours * 3600)),
        changeover_s=round(launch.total_seconds()),
        checkpoint_gb=0.0 if saved is None else saved.size_gib * GB_PER_GIB,
        size=size,
        deadline_s=deadline,
        notes=tuple(notes),
    )
