"""Read traces of spot availability as tables.

A folder holds ``zones.csv``, one wide table of counts, and perhaps prices:

* ``zones.csv``: zone, region, on_demand_usd_per_hour, perhaps spot_usd_per_hour (constant).
* one other table whose columns are tick, time_utc and the zones: machines that could be obtained; empty: nobody looked.
* ``spot_price_changes.csv``, perhaps: zone, tick, spot_usd_per_hour; a price holds until the zone's next row.
"""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

import numpy as np

from pricing.problems import InvalidInputError
from router.config.trace_values import Holes, ListPrices, TraceProblems, hold_prices
from router.spot.simulator.traces import ZoneSeries

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
