"""Build the cells of a back-test from jobs, deadlines, traces and zones, and play them on several processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from pricing.book import PriceBook
from pricing.book_check import did_you_mean
from pricing.machines import Machine
from pricing.problems import InvalidInputError, Problem
from pricing.units import format_count
from router.app.parallel import Advance, Engine, run_tasks
from router.backtest.windows import (
    BacktestCell,
    BacktestPart,
    BacktestSite,
    CheckpointMove,
    WindowLayout,
    list_backtest_parts,
    play_part,
)
from router.config.job_files import load_jobs
from router.config.trace_files import TraceSet
from router.config.yamlfile import YamlDocument
from router.jobs.gang import parse_accelerators
from router.jobs.quantities import format_duration
from router.jobs.spec import Job
from router.jobs.speed import Speed, gang_speed
from router.prices.books import load_book
from router.spot.simulator.inputs import Task
from router.spot.simulator.simulation import WindowOutcomes
from router.spot.simulator.traces import Floats, Series

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
        if job.deadline is not None and job.deadline.at(now) <= now:
            problems.append(Problem(document.where(("deadline",)), "deadline", "has passed", "give a later one"))
            continue
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
    stated = "" if job.gang.machines is None else f" on {format_count(job.gang.machines, 'machine')}"
    why = "gang", f"no gang of its is a multiple of {machine.accelerator_count} {machine.accelerator}{stated}"
    for option in options:
        size, rest = divmod(option.count, machine.accelerator_count)
        if rest or not size or not job.gang.asks_for(size):
            continue
        speed = gang_speed(job.workload, machine, size, kind, book.accelerators)
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
    launch = job.start_time
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


EACH, ALL, GROW = "each", "all", "grow"


_FEW = 4  # the most zones that a label names


def cells_of(
    works: Sequence[BacktestJob],
    deadlines_s: Sequence[int],
    ratios: Sequence[float],
    sets: Sequence[TraceSet],
    zones: Sequence[str],
    move: CheckpointMove,
    gb_per_s: float | None,
    windows: WindowLayout,
) -> tuple[BacktestCell, ...]:
    """Return every job with every deadline (its own, if none is given) in every choice of zones.

    Choices are ``each`` alone, ``all`` joined, ``grow`` (the dearest alone, then with the next, ...), or names with
    commas. InvalidInputError: a deadline that on-demand from the start would miss, a window that no scored block holds,
    a gang that never could start, zones that do not exist or cannot be joined.
    """
    problems: list[Problem] = []
    cells = []
    places = [place for choice in zones for place in _places(choice, sets, problems)]
    for work in works:
        work_deadlines_s = [*deadlines_s, *(round(work.work_s * ratio) for ratio in ratios)]
        if not work_deadlines_s and work.deadline_s is not None:
            work_deadlines_s = [work.deadline_s]
        if not work_deadlines_s:
            what = f"{work.name} has no deadline"
            problems.append(
                Problem("", "--deadline", what, "say --deadline 60h, or --ratio 1.25 for 1.25 times its work")
            )
        for deadline_s in work_deadlines_s:
            task = Task(work.work_s, deadline_s, work.changeover_s, work.size)
            seconds = 0 if gb_per_s is None else round(work.checkpoint_gb / gb_per_s)
            job_move = CheckpointMove(work.checkpoint_gb, move.usd_per_gb, seconds)
            problems += _impossible(work.name, task, sets, windows)
            cells += [BacktestCell(work.name, name, joined, task, job_move, sites) for name, joined, sites in places]
    if problems:
        raise InvalidInputError(dict.fromkeys(problems))
    return tuple(cells)


def _places(
    choice: str, sets: Sequence[TraceSet], problems: list[Problem]
) -> Iterator[tuple[str, int, tuple[BacktestSite, ...]]]:
    """Yield label, number of zones joined, and sites."""
    if choice == EACH:
        sites = tuple(_site(s, n, [zone.zone]) for n, s in enumerate(sets) for zone in s.series.zones)
        yield f"each of {len(sites)} zones" if len(sites) > 1 else sites[0].name, 1, sites
        return
    for number, traces in enumerate(sets):
        known = [zone.zone for zone in traces.series.zones]
        names = known if choice == ALL else _dearest_first(traces.series) if choice == GROW else choice.split(",")
        names = [name.strip() for name in names]
        missing = [name for name in names if name not in known]
        for name in missing:
            near = did_you_mean(name, known) or f"it has {', '.join(known)}"
            problems.append(Problem(traces.name, "--zones", f"there is no zone {name!r}", near))
        if len(names) > len(set(names)):
            problems.append(Problem("", "--zones", f"{choice!r} names a zone twice", "name each once"))
        elif traces.alike and len(names) > 1:
            remedy = "use --zones each, or name files of one kind of machine"
            problems.append(Problem(traces.name, "--zones", "has several traces of one zone", remedy))
        elif not missing:
            counts = range(1, len(names) + 1) if choice == GROW else [len(names)]
            for count in counts:
                site = _site(traces, number, names[:count])
                label = site.name if count == 1 else f"{count} zones"
                if choice not in (ALL, GROW) and 1 < count <= _FEW:
                    label = " + ".join(names)
                yield label if len(sets) == 1 else f"{label} of {traces.name}", count, (site,)


def _site(traces: TraceSet, number: int, names: Sequence[str]) -> BacktestSite:
    label = names[0] if len(names) == 1 else f"{len(names)} zones of {traces.name}"
    return BacktestSite(label, traces.series.only(names), traces.series, number)


def _dearest_first(series: Series) -> list[str]:
    return [z.zone for z in sorted(series.zones, key=lambda z: -float(np.mean(z.spot_usd_per_hour)))]


def _impossible(name: str, task: Task, sets: Sequence[TraceSet], windows: WindowLayout) -> Iterator[Problem]:
    work, deadline = (_length(seconds) for seconds in (task.work_s, task.deadline_s))
    for traces in sets:
        series = traces.series
        tick_s = series.tick_s
        if not task.on_demand_is_in_time(tick_s):
            least = -(-(task.work_s + task.changeover_s) // tick_s) * tick_s
            whose = "" if name.endswith(" of work") else f" of {name}"
            launch = _length(task.changeover_s)
            what = f"{deadline} is too short for the {work} of work{whose} and a launch of {launch}"
            yield Problem("", "--deadline", what, f"from {_length(least)} on, at ticks of {tick_s} s")
            continue
        if not int(series.up(task.size).sum()):
            most = max(int(zone.counts.max()) for zone in series.zones)
            what = f"{name} needs {task.size} machines at once, and there were never more than {most}"
            yield Problem(traces.name, "--gang", what, "make the gang smaller, or name other traces")
        site = BacktestSite("", series, series, 0)
        if not any(windows.starts(site, task, block).size for block in windows.scored):
            begins = int(windows.edges(series)[windows.scored[0]])
            lasts = _length((series.ticks - begins) * tick_s)
            what = (
                f"a window of {deadline} is longer than the {lasts} that are scored of {_length(series.ticks * tick_s)}"
            )
            yield Problem(traces.name, "--deadline", what, "a shorter deadline, longer traces, or other --blocks")


def _length(seconds: int) -> str:
    return format_duration(timedelta(seconds=seconds))


_Inputs = tuple[Sequence[BacktestCell], WindowLayout, bool]


def run_backtest(
    cells: Sequence[BacktestCell],
    windows: WindowLayout,
    policies: Sequence[str],
    *,
    paid: bool,
    processes: int,
    advance: Advance,
) -> Mapping[BacktestPart, WindowOutcomes | Floats]:
    """Play all parts and return the results in the order of :func:`router.backtest.windows.list_backtest_parts`.

    ``advance`` is called with the number of parts that are done. Processes are used as by
    :func:`router.app.parallel.run_tasks`.
    """
    parts = list(list_backtest_parts(cells, windows, policies))
    results = run_tasks(_play, (cells, windows, paid), parts, Engine(None, processes), advance)
    return dict(zip(parts, results, strict=True))


def _play(inputs: _Inputs, part: BacktestPart) -> WindowOutcomes | Floats:
    cells, windows, paid = inputs
    return play_part(cells, windows, part, paid=paid)
