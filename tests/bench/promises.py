"""Judge what plan and quote promise of recorded spot pools: promised after a pool's first half, played on its second.

    python -m tests.bench.promises [--jobs shapes|examples] [--most N] [--only NAME] [--draws 1000] [--starts 24]

A job may run on one recorded pool, or on demand beside it. The product's own code plans and quotes it, once with the
pool's first half as its record (*known*) and once with what all other pools showed (*unknown*: the pool is left out of
every campaign). Both promise what one policy does: the quoted one, which runs the job. It is played on the second half,
from evenly spread starts, in the simulator of back-tests under its exact guard. A run begins whether the pool has
machines or not: then it waits.

What is judged is the risk of the pool. So speeds are known exactly, hardware does not fail, prices stay, and the quote
does not know whether the pool has machines at its start. An on-demand fallback is refused as often as the product
says; a refused run is late, and costs as if it had not been refused. A job that is longer than a second half is left
out there. Where the plan itself takes a job on demand, its promise is the on-demand cost, and kept; it counts where
plans are compared: with all on spot under the guard, as plans at advisor bands were, and with spot alone where that is
as sure as the job asks, else on demand.

Costs are shares of the job's cost on demand, so that all jobs weigh alike. Where many scenarios cost the same, a share
of more than nine in ten holds even of a perfect quote; "ties in part" counts such an outcome in part, so that a perfect
quote holds nine times in ten. Intervals hold 95 %: recordings are drawn with replacement, and in each of them blocks of
three days; a ratio compares the same runs.

The jobs are six made-up shapes, or the example jobs as their plans on the embedded book find them: the work, time and
price ratio of the cheapest guarded spot gang. Jobs with no deadline or checkpoint, or bound to a market, are left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np

import tests.support.made_up_book  # noqa: F401  (its machines have images)
from pricing.hazard import HIGH
from router.quotes.statistics import quantiles
from router.spot.availability.calibration import PitIntervals
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.simulation import SPOT, FullInfoPolicy, FullView, GuardMode, simulate
from router.spot.simulator.traces import Bools, Floats, Ints
from tests.bench.example_shapes import find_example_shapes
from tests.bench.interruption_rates import DATA
from tests.bench.interruption_rules import Recording, read_recordings
from tests.bench.pool_promises import UP_TO, JobShape, PoolPromises, Promise, availability, tick_hours, zone_name

BLOCK_H: Final = 72.0
INTERVAL: Final = 0.95
SURE: Final = 0.95  # the deadlines judged
LEAST_KEPT, LEAST_HELD, MOST_HELD = 0.90, 0.85, 0.95
COST_WITHIN: Final = 0.10  # of the played mean, asked of promised costs
MOST_OVER_SPOT: Final = 1.01  # asked of the upper end of an interval
_SEED: Final = 31
_NEAR: Final = 1 + 1e-9

SHAPES: Final = (
    JobShape(8.0, 1.1, 3.0),
    JobShape(8.0, 1.25, 5.0),
    JobShape(24.0, 1.25, 3.0),
    JobShape(24.0, 1.6, 5.0),
    JobShape(48.0, 1.1, 5.0),
    JobShape(48.0, 1.6, 3.0),
)


# Playing on the recording.


@dataclass(frozen=True, eq=False, slots=True)
class PlayedRuns:
    """Runs by start: their cost, whether the guard was late, whether they ended on demand, and when."""

    usd: Floats
    late: Bools
    fell_back: Bools
    finish_h: Floats

    def part(self, which: slice | Bools) -> PlayedRuns:
        return PlayedRuns(self.usd[which], self.late[which], self.fell_back[which], self.finish_h[which])


def play_runs(inputs: SimulationInputs, policy: FullInfoPolicy, lost_usd: float) -> PlayedRuns:
    """Return the runs of a policy under the guard.

    Every launch on spot is billed, in advance, the work that it may lose; a run that ends there did not lose it.
    """
    last = np.zeros(inputs.starts.size, dtype=np.int8)

    def watch(now: FullView) -> None:
        last[now.window] = now.kind

    outcome = simulate(inputs, policy, GuardMode.EXACT, None, watch)
    on_spot = (last == SPOT) & ~outcome.late
    usd = outcome.usd - outcome.spare_usd - np.where(on_spot, lost_usd, 0.0)
    finish_h = (outcome.finish_tick * inputs.tick_s - outcome.spare_s) / HOUR_S
    return PlayedRuns(usd, outcome.late, ~on_spot, finish_h)


def real_inputs(promise: Promise, recording: Recording, starts: Ints) -> SimulationInputs:
    """Return the inputs of a promise with the recorded availability from these ticks on."""
    like, seen = promise.like, availability(recording)
    sold = np.isfinite(like.on_demand_usd)
    up = np.where(sold[:, None], False, seen[None])
    prices = like.spot_usd[:, :1].repeat(seen.size, axis=1)
    return replace(like, up=up, spot_usd=prices, starts=starts)


def spread_starts(first: int, after: int, ticks: int, count: int) -> Ints:
    """Return at most ``count`` evenly spread starts of runs that lie within these ticks; none where they do not fit."""
    room = after - first - ticks
    if room < 0:
        return np.zeros(0, dtype=np.int64)
    found: Ints = np.unique(np.round(np.linspace(first, first + room, min(count, room + 1))).astype(np.int64))
    return found


def list_returns(recording: Recording, first: int, after: int, count: int) -> Ints:
    """Return at most ``count`` of the ticks, evenly spread, at which the pool comes back."""
    up = availability(recording)
    back = np.flatnonzero(up[1:] & ~up[:-1]) + 1
    back = back[(back >= first) & (back < after)]
    return back[np.unique(np.round(np.linspace(0, back.size - 1, min(count, back.size))).astype(np.int64))]


@dataclass(frozen=True, eq=False, slots=True)
class PlayedCell:
    """A promise with its runs; ``block`` is by start, and so is ``up``, whether the pool has machines then.

    ``fresh`` are runs that begin when the pool comes back, in blocks ``fresh_block``; perhaps none. ``refused`` says of
    which runs the fallback would be refused. ``own_up_to`` is the empirical quantile of runs in the first half, None
    where that is too short or not known.
    """

    recording: str
    shape: JobShape
    promise: Promise
    runs: PlayedRuns
    block: Ints
    up: Bools
    refused: Bools
    own_up_to: float | None
    fresh: PlayedRuns
    fresh_block: Ints


def play_cell(
    promise: Promise, recording: Recording, shape: JobShape, starts: int, *, known: bool, seed: int = _SEED
) -> PlayedCell | None:
    """Return a promise as played on the second half; None where that is too short."""
    tick_h, ticks = tick_hours(recording), promise.like.ticks
    half, end = round(recording.half * recording.tick_h / tick_h), availability(recording).size
    at = spread_starts(half, end, ticks, starts)
    if not at.size:
        return None
    before = spread_starts(0, half, ticks, starts) if known else at[:0]
    returns = list_returns(recording, half, end - ticks + 1, starts)
    inputs = real_inputs(promise, recording, np.concatenate((at, returns, before)))
    played = play_runs(inputs, promise.quoted_policy, promise.lost_usd)
    past = played.usd[at.size + returns.size :]

    def block(ticks_of_starts: Ints) -> Ints:
        return ((ticks_of_starts - half) * tick_h // BLOCK_H).astype(np.int64)

    return PlayedCell(
        recording=zone_name(recording),
        shape=shape,
        promise=promise,
        runs=played.part(slice(at.size)),
        block=block(at),
        up=availability(recording)[at],
        refused=np.random.default_rng(seed).random(at.size) < promise.refusal,
        own_up_to=float(quantiles(past, (UP_TO,))[0]) if past.size else None,
        fresh=played.part(slice(at.size, at.size + returns.size)),
        fresh_block=block(returns),
    )


# Judging.

Measure = Callable[[PlayedCell], tuple[Floats, Floats] | None]
"""Returns by start what is summed, over what; None where a cell does not count."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio of sums with its interval, over ``runs`` runs.

    ``floor`` and ``ceiling`` are what is asked of it, ``most_high`` what is asked of the interval's upper end.
    """

    value: float
    low: float
    high: float
    runs: int
    floor: float | None = None
    ceiling: float | None = None
    most_high: float | None = None

    @property
    def missed(self) -> bool:
        """Return whether it lies outside what is asked."""
        return (
            (self.floor is not None and self.value < self.floor)
            or (self.ceiling is not None and self.value > self.ceiling)
            or (self.most_high is not None and self.high > self.most_high)
        )


def measure_ratio(
    cells: Iterable[PlayedCell],
    measure: Measure,
    draws: int,
    floor: float | None = None,
    ceiling: float | None = None,
    most_high: float | None = None,
) -> Figure | None:
    """Return the ratio of the sums over all runs, with recordings and blocks drawn anew; None over nothing."""
    sums: dict[str, dict[int, Floats]] = {}
    runs = 0
    for cell in cells:
        found = measure(cell)
        if found is None or not cell.block.size:
            continue
        runs += cell.block.size
        rows = sums.setdefault(cell.recording, {})
        for block in np.unique(cell.block).tolist():
            which = cell.block == block
            part = np.array([found[0][which].sum(), found[1][which].sum()])
            rows[block] = rows.get(block, np.zeros(2)) + part
    blocks = [np.array(list(rows.values())) for rows in sums.values()]
    over, under = np.concatenate(blocks).sum(axis=0) if blocks else np.zeros(2)
    if not under:
        return None
    rng, drawn = np.random.default_rng(_SEED), []
    for _ in range(draws):
        total = np.zeros(2)
        for i in rng.integers(0, len(blocks), len(blocks)).tolist():
            total += blocks[i][rng.integers(0, len(blocks[i]), len(blocks[i]))].sum(axis=0)
        if total[1]:
            drawn.append(total[0] / total[1])
    low, high = np.quantile(drawn, ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2))
    return Figure(float(over / under), float(low), float(high), runs, floor, ceiling, most_high)


def _each(cell: PlayedCell, values: Floats | Bools | float) -> tuple[Floats, Floats]:
    """Return the values of a mean over runs."""
    ones = np.ones(cell.block.size)
    return ones * np.asarray(values, dtype=np.float64), ones


def kept(runs: PlayedRuns, refused: Bools) -> Bools:
    """Return which runs were in time: the guard was not late, and its fallback was not refused."""
    found: Bools = ~runs.late & ~(runs.fell_back & refused)
    return found


def plan_kept(cell: PlayedCell) -> tuple[Floats, Floats] | None:
    """Measure deadlines kept, of plans at least as sure as is judged."""
    return _each(cell, kept(cell.runs, cell.refused)) if cell.promise.plan_on_time >= SURE else None


def quote_kept(cell: PlayedCell) -> tuple[Floats, Floats] | None:
    """Measure deadlines kept, of quotes at least as sure as is judged."""
    return _each(cell, kept(cell.runs, cell.refused)) if cell.promise.quote_on_time >= SURE else None


def plan_cost(cell: PlayedCell) -> tuple[Floats, Floats]:
    """Measure the promised over the played cost of plans."""
    demand = cell.promise.demand_usd
    return np.full(cell.block.size, cell.promise.plan_usd / demand), cell.runs.usd / demand


def quote_cost(cell: PlayedCell) -> tuple[Floats, Floats]:
    """Measure the promised over the played cost of quotes."""
    demand = cell.promise.demand_usd
    return np.full(cell.block.size, float(cell.promise.quote_usd.mean()) / demand), cell.runs.usd / demand


def calm_cost(cell: PlayedCell) -> tuple[Floats, Floats]:
    """Measure the cost without an interruption over the played cost."""
    demand = cell.promise.demand_usd
    return np.full(cell.block.size, cell.promise.calm_usd / demand), cell.runs.usd / demand


def plan_over_spot(cell: PlayedCell) -> tuple[Floats, Floats]:
    """Measure the played cost of plans over that of all on spot under the guard."""
    demand = cell.promise.demand_usd
    spot = cell.runs.usd / demand
    return spot if cell.promise.on_spot else np.ones_like(spot), spot


def plan_over_alone(cell: PlayedCell) -> tuple[Floats, Floats]:
    """Measure the same over spot where it is sure enough alone, and on demand elsewhere."""
    planned, spot = plan_over_spot(cell)
    return planned, spot if cell.promise.alone else np.ones_like(spot)


def up_to_held(cell: PlayedCell) -> tuple[Floats, Floats]:
    """Measure the runs that cost no more than "nine in ten up to"."""
    return _each(cell, cell.runs.usd <= cell.promise.up_to * _NEAR)


def up_to_held_in_part(cell: PlayedCell) -> tuple[Floats, Floats]:
    return _each(cell, PitIntervals.of(cell.promise.quote_usd, cell.runs.usd).within(UP_TO))


def pinball(outcomes: Floats, up_to: float) -> Floats:
    """Return the pinball loss of a quantile at the level of "up to": less is better."""
    over = outcomes - up_to
    return np.asarray(np.maximum(UP_TO * over, (UP_TO - 1) * over))


def pinball_quoted(cell: PlayedCell) -> tuple[Floats, Floats] | None:
    """Measure the pinball loss of the quote, where the pool's own quantile is known."""
    if cell.own_up_to is None:
        return None
    return _each(cell, pinball(cell.runs.usd, cell.promise.up_to) / cell.promise.demand_usd)


def pinball_gap(cell: PlayedCell) -> tuple[Floats, Floats] | None:
    """Measure by how much the quote's pinball loss exceeds that of the pool's own empirical quantile."""
    if cell.own_up_to is None:
        return None
    own = pinball(cell.runs.usd, cell.own_up_to)
    return _each(cell, (pinball(cell.runs.usd, cell.promise.up_to) - own) / cell.promise.demand_usd)


def quoted_width(cell: PlayedCell) -> tuple[Floats, Floats]:
    """Measure the width of the middle 80 % of the quote."""
    low, high = quantiles(cell.promise.quote_usd, (1 - HIGH, HIGH))
    return _each(cell, float(high - low) / cell.promise.demand_usd)


def report(cells: Sequence[PlayedCell], draws: int, *, known: bool) -> Iterator[tuple[str, Figure | None]]:
    """Yield what is judged of these cells, then what stands beside it, each with its words."""

    def figure(measure: Measure, floor: float | None = None, ceiling: float | None = None) -> Figure | None:
        return measure_ratio(cells, measure, draws, floor, ceiling)

    spot = [cell for cell in cells if cell.promise.on_spot]
    fresh = [replace(cell, runs=cell.fresh, block=cell.fresh_block) for cell in spot]
    floor, ceiling = (LEAST_HELD, MOST_HELD) if known else (None, None)
    yield f"plan: deadlines kept of those promised at {SURE:.0%}", measure_ratio(spot, plan_kept, draws, LEAST_KEPT)
    yield f"quote: deadlines kept of those promised at {SURE:.0%}", figure(quote_kept, LEAST_KEPT)
    yield "late while the guard could pay", figure(lambda c: _each(c, c.runs.late), None, 0.0)
    yield "quote: within '9 of 10 up to'", figure(up_to_held, LEAST_HELD)
    yield "quote: the same, ties in part", figure(up_to_held_in_part, floor, ceiling)
    if known:
        yield f"quote: pinball loss at {UP_TO:.0%} less the pool's own quantile's", figure(pinball_gap, None, 0.0)
        yield f"quote: pinball loss at {UP_TO:.0%}", figure(pinball_quoted)
    yield "quote: width of its middle 80 %", figure(quoted_width)
    close = (1 - COST_WITHIN, 1 + COST_WITHIN)
    yield "plan: mean promised cost over mean played cost", measure_ratio(spot, plan_cost, draws, *close)
    yield "plan: the same of runs that begin when the pool comes back", measure_ratio(fresh, plan_cost, draws)
    for words, up in (("has machines", True), ("has none", False)):
        begun = [replace(c, runs=c.runs.part(c.up == up), block=c.block[c.up == up]) for c in spot]
        yield f"plan: the same of runs that begin while the pool {words}", measure_ratio(begun, plan_cost, draws)
    yield "quote: mean promised cost over mean played cost", figure(quote_cost)
    yield "cost without an interruption over mean played cost", figure(calm_cost)
    yield "mean played cost", figure(lambda c: _each(c, c.runs.usd / c.promise.demand_usd))
    over_spot = measure_ratio(cells, plan_over_spot, draws, most_high=MOST_OVER_SPOT)
    yield "plan: played cost over all on spot under the guard", over_spot
    over_alone = measure_ratio(cells, plan_over_alone, draws, most_high=1.0)
    yield "plan: played cost over spot where it is sure alone, else on demand", over_alone
    yield "plan: fallbacks refused", figure(fallbacks_refused)


def report_by_job(cells: Sequence[PlayedCell], draws: int) -> Iterator[str]:
    """Yield a line a job: its costs as promised, as played and as compared."""
    measures: tuple[Measure, ...] = (plan_cost, calm_cost, plan_over_spot, plan_over_alone)
    yield f"  {'':60}{'promised':>21}{'uninterrupted':>21}{'over spot guarded':>21}{'over spot alone':>21}"
    for name, group in groupby(sorted(cells, key=lambda c: c.shape.name), key=lambda c: c.shape.name):
        own = list(group)
        figures = [measure_ratio(own, measure, draws) for measure in measures]
        words = (
            "none" if found is None else f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})" for found in figures
        )
        yield f"  {name:52}{len(own):3} pools" + "".join(f"{word:>21}" for word in words)


def fallbacks_refused(cell: PlayedCell) -> tuple[Floats, Floats]:
    """Measure how many of the runs that end on demand are refused it."""
    fell_back = cell.runs.fell_back.astype(np.float64)
    return fell_back * cell.refused, fell_back


def play_all(
    recordings: Sequence[Recording], shapes: Sequence[JobShape], only: str, starts: int, *, known: bool
) -> tuple[list[PlayedCell], int, int]:
    """Return the cells of the recordings that ``only`` names, how many jobs have no spot in time, how many no room."""
    cells: list[PlayedCell] = []
    without_spot = too_long = 0
    everything = PoolPromises(recordings)
    for number, recording in enumerate(recordings):
        if only not in zone_name(recording):
            continue
        others = [r for r in recordings if r.pool != recording.pool]
        promises = everything if known else PoolPromises(others)
        for size, shape in enumerate(shapes):
            room_h = (recording.counts.size - recording.half) * recording.tick_h
            if shape.work_h * shape.slack > room_h:
                too_long += 1
                continue
            promise = promises.promise(recording, shape)
            if promise is None:
                without_spot += 1
                continue
            cell = play_cell(promise, recording, shape, starts, known=known, seed=_SEED + 100 * number + size)
            if cell is None:
                too_long += 1
            else:
                cells.append(cell)
    return cells, without_spot, too_long


def format_figure(figure: Figure | None) -> str:
    """Return a figure with its interval, and whether it misses what is asked."""
    if figure is None:
        return "none"
    missed = "  MISSED" if figure.missed else ""
    return f"{figure.value:7.3f} ({figure.low:.3f} to {figure.high:.3f}) of {figure.runs:,} runs{missed}"


def report_promises(shapes: Sequence[JobShape], only: str, draws: int, starts: int) -> Iterator[str]:
    recordings = read_recordings(DATA)
    pools = len({r.pool for r in recordings})
    yield f"PROMISES: {len(recordings)} recordings of {pools} pools, {len(shapes)} jobs each"
    for known, name in ((True, "the pool's past is known"), (False, "the pool is unknown")):
        cells, without_spot, too_long = play_all(recordings, shapes, only, starts, known=known)
        on_demand = sum(not cell.promise.on_spot for cell in cells)
        yield (
            f"{name}: {len(cells)} jobs, {on_demand} planned on demand; left out {without_spot} that no spot can do in "
            f"time, {too_long} longer than the recording"
        )
        for words, figure in report(cells, draws, known=known):
            yield f"  {words:67}{format_figure(figure)}"
        yield from report_by_job(cells, draws)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Judge what plan and quote promise of recorded spot pools.")
    parser.add_argument(
        "--jobs", choices=("shapes", "examples"), default="shapes", help="six made-up jobs (the default), or examples"
    )
    parser.add_argument("--most", type=int, help="at most so many of the jobs")
    parser.add_argument("--only", default="", help="recordings whose folder and name have this")
    parser.add_argument("--draws", type=int, default=1000, help="draws of the intervals (default 1000)")
    parser.add_argument("--starts", type=int, default=24, help="starts of each job in a recording (default 24)")
    options = parser.parse_args(arguments)
    if not DATA.is_dir():
        print("PROMISES: skipped, the shared data are not here")
        return
    began = time.perf_counter()
    shapes, left_out = (SHAPES, {}) if options.jobs == "shapes" else find_example_shapes()
    for name, reason in left_out.items():
        print(f"left out {name}: {reason}")
    for shape in shapes[: options.most]:
        print(f"{shape.name}: {shape.work_h:.1f} h of work, deadline {shape.slack:.2f}, price {shape.price_ratio:.2f}")
    for line in report_promises(shapes[: options.most], options.only, options.draws, options.starts):
        print(line, flush=True)
    print(f"{time.perf_counter() - began:.0f} s, {time.process_time():.0f} s of processor time")


if __name__ == "__main__":
    main()
