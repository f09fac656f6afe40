"""Build the cells of a back-test from jobs, deadlines, traces and choices of zones; refuse them with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import numpy as np

from pricing.book_check import did_you_mean
from pricing.problems import InvalidInputError, Problem
from router.app.backtest_jobs import BacktestJob
from router.backtest.windows import BacktestCell, BacktestSite, CheckpointMove, WindowLayout
from router.config.trace_sets import TraceSet
from router.jobs.quantities import format_duration
from router.spot.simulator.inputs import Task
from router.spot.simulator.traces import Series

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
