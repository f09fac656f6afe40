"""Read traces of spot availability as JSON, one zone a file, and prices beside them.

A trace: ``{"metadata": {"gap_seconds": 600, "zone": ..., "spot_price_per_hour": ..., "on_demand_price_per_hour": ...},
"data": [n0, n1, null, ...]}``: machines that could be obtained, tick by tick; null: nobody looked. Prices, in a file of
the same name in another folder: ``{"metadata": {"gap_seconds": ..., "on_demand_price_per_hour": ...}, "changes":
[[tick, dollars_per_hour], ...]}``. All other metadata but ``first_tick`` are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pricing.problems import InvalidInputError
from router.config.trace_table import ZONES, read_table
from router.config.trace_values import Holes, ListPrices, TraceProblems, align_clocks, hold_prices, region_of
from router.spot.simulator.traces import Floats, Series, ZoneSeries


def read_traces(
    path: Path,
    *,
    prices: Path | None = None,
    listed: ListPrices | None = None,
    holes: Holes = Holes.REFUSE,
    tick_s: int | None = None,
) -> Series:
    """Read the zones of a trace file, of a folder of them, or of a folder with ``zones.csv``.

    :mod:`router.config.trace_table` reads the latter. ``prices``: the folder with a price file for each; ``listed``:
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
