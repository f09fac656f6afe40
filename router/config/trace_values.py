"""Share what trace files of every form need: numbers checked, holes filled or refused, clocks aligned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import isfinite, lcm

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
        """Add one problem."""
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
