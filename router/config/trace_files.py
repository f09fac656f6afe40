"""Read traces of spot availability, as JSON or as tables, and prices beside them."""

from __future__ import annotations

import csv
import glob
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from math import isfinite, lcm
from pathlib import Path
from typing import Any

import numpy as np

from pricing.problems import InvalidInputError, Problem
from router.spot.simulator.traces import Floats, Ints, Series, ZoneSeries

# us-west-2a and us-central1-a: a region of AWS ends in a digit after a hyphen, one of Google in a digit.
_ZONE = re.compile(r"(?P<region>.+-\d+)[a-z]|(?P<google>.+\d)-[a-z]")
_SHOWN = 5


class Holes(Enum):
    """The count of a tick without an answer: none (the files are refused), no machine, or the count before it."""

    REFUSE = "refuse"
    DOWN = "down"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class ListPrices:
    """Dollars an hour for one machine, where the files name none."""

    spot_usd_per_hour: float
    on_demand_usd_per_hour: float


@dataclass(slots=True)
class TraceProblems:
    """Every problem found so far."""

    problems: list[Problem] = field(default_factory=list)

    def add(self, where: str, name: str, what: str, remedy: str = "") -> None:
        self.problems.append(Problem(where, name, what, remedy))

    def check(self) -> None:
        """Raise InvalidInputError if there is any problem."""
        if self.problems:
            raise InvalidInputError(self.problems)

    def price(self, where: str, name: str, value: object) -> float:
        """Return a price, above zero; NaN and a problem for anything else."""
        number = _number(value)
        if number is None or not isfinite(number) or number <= 0:
            self.add(where, name, f"{value!r} is not a price above zero", "dollars an hour, e.g. 0.918")
            return float("nan")
        return number

    def counts(self, where: str, name: str, values: Sequence[object], holes: Holes) -> Ints:
        """Return whole numbers of machines, at least 0; None and empty text are holes."""
        filled = np.zeros(len(values), dtype=np.int64)
        missing, last = [], 0
        for tick, value in enumerate(values):
            if value is None or value == "":
                missing.append(tick)
                filled[tick] = last if holes is Holes.LAST else 0
                continue
            number = _number(value)
            if number is None or number < 0 or number != int(number):
                self.add(
                    where, f"{name}[{tick}]", f"{value!r} is not a number of machines", "0, 1, 2, ...; none: a hole"
                )
                break
            filled[tick] = last = int(number)
        if missing and holes is Holes.REFUSE:
            self.hole(where, name, missing)
        return filled

    def hole(self, where: str, name: str, ticks: Sequence[int]) -> None:
        """Add a problem for ticks without an answer, where nobody said what a hole counts as."""
        shown = ", ".join(map(str, ticks[:_SHOWN])) + (", ..." if len(ticks) > _SHOWN else "")
        what = f"{len(ticks)} ticks have no answer: {shown}"
        self.add(where, name, what, "--holes says what a hole counts as: down (no machine) or last (as before it)")


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if isfinite(number) else None


def region_of(zone: str) -> str:
    """Return the region of a zone of AWS or Google by its name; a name of another form is its own region."""
    match = _ZONE.fullmatch(zone)
    return zone if match is None else match["region"] or match["google"]


def hold_prices(changes: Iterable[tuple[int, float]], ticks: int) -> Floats:
    """Return [tick]: prices that hold from their tick to the next change; the first one from the beginning."""
    at, prices = zip(*sorted(changes), strict=True)
    return np.array(prices)[np.maximum(np.searchsorted(np.array(at), np.arange(ticks), side="right") - 1, 0)]


def align_clocks(parts: Sequence[tuple[str, int, ZoneSeries]], tick_s: int | None) -> Series:
    """Return the series on one clock. With ``tick_s`` a faster clock is read at every N-th tick.

    ``parts`` has file, seconds of its tick, and series. InvalidInputError: ticks that are not the same, or do not
    divide ``tick_s``; different lengths; a zone twice.
    """
    problems, zones, seen = TraceProblems(), [], dict[str, str]()
    ticks = sorted({tick for _, tick, _ in parts})
    if tick_s is None and len(ticks) > 1:
        shown = ", ".join(f"{where} ({tick} s)" for where, tick, _ in parts[:_SHOWN])
        problems.add("", "gap_seconds", f"different ticks: {shown}", f"ask for a common one, e.g. {lcm(*ticks)} s")
        problems.check()
    target = tick_s or ticks[0]
    for where, tick, zone in parts:
        if target % tick:
            problems.add(
                where, "gap_seconds", f"a tick of {tick} s does not divide {target} s", f"ask for {lcm(*ticks)} s"
            )
        elif zone.zone in seen:
            problems.add(where, "zone", f"{zone.zone} is in {seen[zone.zone]} too", "read one of them")
        else:
            seen[zone.zone] = where
            zones.append((where, Series(tick, (zone,)).every(target // tick).zones[0]))
    for where, zone in zones[1:]:
        if zone.counts.size != (size := zones[0][1].counts.size):
            problems.add(
                where, "data", f"{zone.counts.size} ticks, but {zones[0][0]} has {size}", "cut them to the same time"
            )
    problems.check()
    return Series(target, tuple(zone for _, zone in zones))


ZONES = "zones.csv"
_CHANGES = "spot_price_changes.csv"
TableRow = dict[str, str]


def read_table(folder: Path, *, holes: Holes, listed: ListPrices | None) -> list[tuple[str, int, ZoneSeries]]:
    """Return file, seconds of a tick and series of each zone of ``zones.csv``, in its order.

    InvalidInputError as :func:`router.config.trace_files.read_traces` says.
    """
    problems = TraceProblems()
    zones = _rows(folder / ZONES, ("zone", "region", "on_demand_usd_per_hour"))
    tables = [p for p in sorted(folder.glob("*.csv")) if p.name not in (ZONES, _CHANGES)]
    if len(tables) != 1:
        raise InvalidInputError.single(
            f"{len(tables)} tables of counts", where=str(folder), remedy=f"one, beside {ZONES} and {_CHANGES}"
        )
    where = str(tables[0])
    rows = _rows(tables[0], ("tick", "time_utc", *(z["zone"] for z in zones)))
    tick_s, rows = _clock(where, rows, holes, problems)
    problems.check()
    changes = _read_changes(folder / _CHANGES, problems)
    parts = []
    for line, zone in enumerate(zones, start=2):
        name, at = zone["zone"], f"{folder / ZONES}:{line}"
        counts = problems.counts(where, name, [row.get(name) for row in rows], holes)
        demand = problems.price(at, "on_demand_usd_per_hour", zone["on_demand_usd_per_hour"])
        if name in changes:
            spot = hold_prices(changes[name], len(rows))
        elif zone.get("spot_usd_per_hour"):
            spot = np.full(len(rows), problems.price(at, "spot_usd_per_hour", zone["spot_usd_per_hour"]))
        elif listed is not None:
            spot = np.full(len(rows), problems.price("", "spot price", listed.spot_usd_per_hour))
        else:
            problems.add(at, "spot_usd_per_hour", "is missing", f"add the column, or rows in {_CHANGES}")
            continue
        if not problems.problems:
            parts.append((where, tick_s, ZoneSeries(name, zone["region"], counts, spot, demand)))
    problems.check()
    return parts


def _rows(path: Path, required: tuple[str, ...]) -> list[TableRow]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows, names = list(reader), reader.fieldnames or []
    except (OSError, ValueError, csv.Error) as error:
        raise InvalidInputError.single(f"cannot be read: {error}", where=str(path)) from None
    if missing := [name for name in required if name not in names]:
        raise InvalidInputError.single(
            f"has no column {missing[0]}", where=str(path), remedy=f"it has {', '.join(names)}"
        )
    if not rows:
        raise InvalidInputError.single("has no rows", where=str(path))
    return rows


def _clock(where: str, rows: list[TableRow], holes: Holes, problems: TraceProblems) -> tuple[int, list[TableRow]]:
    """Return the seconds of a tick, and a row for each tick from the first: missing ones are holes."""
    by_tick: dict[int, TableRow] = {}
    for line, row in enumerate(rows, start=2):
        try:
            tick = int(row["tick"])
        except (TypeError, ValueError):
            problems.add(f"{where}:{line}", "tick", f"{row['tick']!r} is not a whole number")
            continue
        if tick in by_tick:
            problems.add(f"{where}:{line}", "tick", f"{tick} is there twice", "remove one of the rows")
        by_tick[tick] = row
    if len(by_tick) < 2:
        problems.add(where, "tick", "fewer than two ticks do not tell how long one is")
        return 1, rows
    first, last = min(by_tick), max(by_tick)
    missing = [tick - first for tick in range(first, last + 1) if tick not in by_tick]
    if missing and holes is Holes.REFUSE:
        problems.hole(where, "tick", missing)
    try:
        begin, end = (datetime.fromisoformat(by_tick[tick]["time_utc"]) for tick in (first, last))
        seconds = (end - begin).total_seconds() / (last - first)
    except (TypeError, ValueError):
        problems.add(where, "time_utc", "is not a time as 2025-10-04T00:10:00Z at the first or the last tick")
        return 1, rows
    if seconds < 1:
        problems.add(where, "time_utc", "does not go on from tick to tick by a second or more")
        return 1, rows
    return round(seconds), [by_tick.get(tick, {}) for tick in range(first, last + 1)]


def _read_changes(path: Path, problems: TraceProblems) -> dict[str, list[tuple[int, float]]]:
    changes: dict[str, list[tuple[int, float]]] = {}
    if not path.is_file():
        return changes
    for line, row in enumerate(_rows(path, ("zone", "tick", "spot_usd_per_hour")), start=2):
        usd = problems.price(f"{path}:{line}", "spot_usd_per_hour", row["spot_usd_per_hour"])
        if not row["tick"].isdecimal():
            problems.add(f"{path}:{line}", "tick", f"{row['tick']!r} is not a tick", "0, 1, 2, ...")
            continue
        changes.setdefault(row["zone"], []).append((int(row["tick"]), usd))
    return changes


def read_traces(
    path: Path,
    *,
    prices: Path | None = None,
    listed: ListPrices | None = None,
    holes: Holes = Holes.REFUSE,
    tick_s: int | None = None,
) -> Series:
    """Read the zones of a trace file, of a folder of them, or of a folder with ``zones.csv``.

    :mod:`router.config.trace_files` reads the latter. ``prices``: the folder with a price file for each; ``listed``:
    for zones that have no price anywhere. InvalidInputError carries all that is wrong: no file, not JSON, fields that
    are missing or not what they should be, prices that are not above zero, holes unless ``holes`` says what they count
    as, clocks that do not agree.
    """
    if (path / ZONES).is_file():
        return align_clocks(read_table(path, holes=holes, listed=listed), tick_s)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise InvalidInputError.single(
            "there is no trace", where=str(path), remedy=f"a folder with *.json, or with {ZONES} and tables"
        )
    problems, parts, first = TraceProblems(), [], dict[str, int]()
    for file in files:
        content = _read(file, problems)
        priced = prices / file.name if prices is not None else None
        part = None if content is None else _zone(file, content, priced, listed, holes, problems)
        if part is not None and content is not None:
            parts.append((str(file), *part))
            first[str(file)] = content["metadata"].get("first_tick", 0)
    for name, tick in first.items():
        if tick != (other := next(iter(first.values()))):
            problems.add(
                name, "metadata.first_tick", f"begins at tick {tick}, others at {other}", "cut them to one time"
            )
    problems.check()
    return align_clocks(parts, tick_s)


def _read(file: Path, problems: TraceProblems) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        problems.add(str(file), "", f"cannot be read: {error.strerror}")
        return None
    except json.JSONDecodeError as error:
        problems.add(f"{file}:{error.lineno}:{error.colno}", "", f"is not JSON: {error.msg}", "is it whole?")
        return None
    except ValueError as error:
        problems.add(str(file), "", f"is not JSON: {error}")
        return None
    if not isinstance(content, dict) or not isinstance(content.get("metadata"), dict):
        problems.add(str(file), "metadata", "is missing", 'e.g. {"metadata": {"gap_seconds": 600}, "data": [1, 0]}')
        return None
    return content


def _zone(
    file: Path,
    content: dict[str, Any],
    priced: Path | None,
    listed: ListPrices | None,
    holes: Holes,
    problems: TraceProblems,
) -> tuple[int, ZoneSeries] | None:
    where, metadata, before = str(file), content["metadata"], len(problems.problems)
    tick = _tick(where, metadata, problems)
    data = content.get("data")
    if not isinstance(data, list) or not data:
        problems.add(
            where, "data", "is missing or empty", "a list of how many machines could be obtained, tick by tick"
        )
        return None
    counts = problems.counts(where, "data", data, holes)
    name = str(metadata.get("zone") or file.stem.split("_")[0])
    spot, demand = _prices(where, metadata, priced, listed, counts.size, tick, problems)
    if len(problems.problems) > before:
        return None
    return tick, ZoneSeries(name, region_of(name), counts, spot, demand)


def _tick(where: str, metadata: Mapping[str, Any], problems: TraceProblems) -> int:
    value = metadata.get("gap_seconds")
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1 or value != int(value):
        problems.add(where, "metadata.gap_seconds", f"{value!r} is not a whole number of seconds", "e.g. 600")
        return 1
    return int(value)


def _prices(
    where: str,
    metadata: Mapping[str, Any],
    priced: Path | None,
    listed: ListPrices | None,
    ticks: int,
    tick: int,
    problems: TraceProblems,
) -> tuple[Floats, float]:
    no_prices = np.full(ticks, np.nan), float("nan")
    if priced is not None:
        content = _read(priced, problems)
        return no_prices if content is None else _changes(str(priced), content, ticks, tick, problems)
    if "spot_price_per_hour" in metadata or "on_demand_price_per_hour" in metadata:
        names = ("spot_price_per_hour", "on_demand_price_per_hour")
        spot, demand = (problems.price(where, f"metadata.{name}", metadata.get(name)) for name in names)
        return np.full(ticks, spot), demand
    if listed is None:
        problems.add(
            where, "metadata.spot_price_per_hour", "is missing", "name a folder of price files, or list prices"
        )
        return no_prices
    spot = problems.price("", "spot price", listed.spot_usd_per_hour)
    return np.full(ticks, spot), problems.price("", "on-demand price", listed.on_demand_usd_per_hour)


def _changes(
    where: str, content: dict[str, Any], ticks: int, tick: int, problems: TraceProblems
) -> tuple[Floats, float]:
    metadata, changes = content["metadata"], content.get("changes")
    demand = problems.price(where, "metadata.on_demand_price_per_hour", metadata.get("on_demand_price_per_hour"))
    if (own_tick := _tick(where, metadata, problems)) != tick:
        problems.add(
            where, "metadata.gap_seconds", f"{own_tick} s, but the trace has {tick} s", "prices on the trace's clock"
        )
    if not isinstance(changes, list) or not changes or not all(_is_change(c) for c in changes):
        problems.add(where, "changes", "is not a list of [tick, dollars an hour]", "e.g. [[0, 0.918], [599, 0.9184]]")
        return np.full(ticks, np.nan), demand
    pairs = [(int(at), problems.price(where, f"changes[{i}]", usd)) for i, (at, usd) in enumerate(changes)]
    return hold_prices(pairs, ticks), demand


def _is_change(entry: object) -> bool:
    return isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[0], int) and entry[0] >= 0


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
