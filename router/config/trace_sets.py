"""Read several sets of traces as they are named on a command line: files, folders, globs."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pricing.problems import InvalidInputError, Problem
from router.config.trace_files import read_traces
from router.config.trace_values import Holes, ListPrices
from router.spot.simulator.traces import Series


@dataclass(frozen=True, eq=False, slots=True)
class TraceSet:
    """One set: zones on one clock.

    ``alike``: several files are of one zone, as of two types of machine there, so that their zones, which are then
    named after the files, cannot be used together.
    """

    name: str
    series: Series
    alike: bool


def read_trace_sets(
    paths: Sequence[str],
    *,
    prices: Path | None = None,
    listed: ListPrices | None = None,
    holes: Holes = Holes.REFUSE,
    tick_s: int | None = None,
) -> tuple[TraceSet, ...]:
    """Read a set for each path.

    A file or a folder is read as :func:`router.config.trace_files.read_traces` does, files of a glob one by one.
    InvalidInputError carries all that is wrong with all of them.
    """
    problems: list[Problem] = []
    sets = []
    for path in paths:
        matches = [] if Path(path).exists() else [Path(file) for file in sorted(glob.glob(path))]  # noqa: PTH207
        parts = []
        for file in matches or [Path(path)]:
            try:
                parts.append((file, read_traces(file, prices=prices, listed=listed, holes=holes, tick_s=tick_s)))
            except InvalidInputError as error:
                problems += error.problems
        if parts and not problems:
            try:
                sets.append(_join_series(path, parts))
            except InvalidInputError as error:
                problems += error.problems
    if problems:
        raise InvalidInputError(problems)
    return tuple(sets)


def _join_series(path: str, parts: Sequence[tuple[Path, Series]]) -> TraceSet:
    first, series = parts[0]
    for file, other in parts:
        if (other.tick_s, other.ticks) != (series.tick_s, series.ticks):
            raise InvalidInputError.single(
                f"{other.ticks} ticks of {other.tick_s} s, but {first} has {series.ticks} of {series.tick_s} s",
                where=str(file),
                field="data",
                remedy="name them one by one, each with its own --traces",
            )
    zones = [(file, zone) for file, part in parts for zone in part.zones]
    alike = max(Counter(zone.zone for _, zone in zones).values()) > 1
    named_zones = tuple(replace(zone, zone=file.stem) if alike else zone for file, zone in zones)
    name = Path(path).stem if len(parts) == 1 else path
    return TraceSet(name, Series(series.tick_s, named_zones), alike)
