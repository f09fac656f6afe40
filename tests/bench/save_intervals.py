"""Play saves over recorded lives of spot gangs, and compare their useful share with the best fixed interval there is.

    python -m tests.bench.save_intervals [--pools]

A life is a time in which a recorded gang was up, in the second half of its recording; one that crosses the half goes on
at its age. When between two probes a loss fell is not known: each is played at eight moments, evenly between them. A
life begins with a billed restart of ten minutes; then it trains and stops for a save of a stated length again and
again, and a loss costs what no ended save holds. A life that the recording does not see end keeps its work. Useful
share: useful by billed hours.

Four ways to save meet the same lives:

- **by age**: as a running gang is told, looked at every five minutes at the rate of its present age;
- **plan's**: the interval at the rate of a typical life, which the plan counts with, for all lives;
- **first half's**: the one interval that would have been best in the first half of the recording;
- **best**: the one interval that is best in the second half, searched for after the fact.

The risk is the product's, from the first halves: of all recordings, and with every recording of the pool left out. The
gap is the share of the best less that of a way, in points; a pool's is the mean of its recordings. That of the first
half's interval says how much of a gap is hindsight. Pools with few lives weigh as much as others, though nearly any
interval can be the best of one life.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Final

import numpy as np

from pricing.hazard import Hazard
from pricing.risk import TOLD_HOURS
from pricing.units import hours
from router.controller.supervise.replanner import TICK
from router.controller.supervise.save_intervals import best_interval_s, is_worth_changing
from router.jobs.spec import Checkpoint
from router.spot.simulator.traces import Floats
from tests.bench.interruption_rates import DATA
from tests.bench.interruption_rules import Recording, RuleOfProduct, read_recordings

STALLS: Final = {"30 s": 30 / 3600, "2 min": 2 / 60, "10 min": 10 / 60}
RESTART_H: Final = 10 / 60  # the default `startup` of a job
MOST_POINTS: Final = 3.0
_MOMENTS: Final = 8
_TICK_H: Final = hours(TICK)
FIXED_H: Final[Floats] = np.geomspace(1 / 60, 240.0, 400)
WAYS: Final = {"by_age": "by age", "planned": "plan's", "first_half": "first half's"}


@dataclass(frozen=True, slots=True)
class RecordedLife:
    """One life: its age when it comes into view, its age at its end, and whether it was lost then."""

    begin_h: float
    end_h: float
    is_lost: bool


@dataclass(frozen=True, slots=True)
class SavedWork:
    """The useful and the billed hours of some lives."""

    useful: float
    billed: float

    @property
    def share(self) -> float:
        """Return the useful share of the billed hours, in percent."""
        return 100 * self.useful / self.billed


@dataclass(frozen=True, slots=True)
class JudgedRecording:
    """The useful shares of one recording at one stall, in percent."""

    recording: Recording
    lives: int
    by_age: float
    planned: float
    first_half: float
    best: float
    best_h: float

    def gap(self, way: str) -> float:
        """Return how many points a way of saving is behind the best in hindsight."""
        return float(self.best - getattr(self, way))


def find_lives(recording: Recording, first: int, last: int) -> list[RecordedLife]:
    """Return the lives in the intervals from ``first`` to before ``last``, each at every moment of its possible end."""
    lives, tick = [], recording.tick_h
    begin: float | None = None
    for i in range(first, last):
        if not recording.up[i]:
            continue
        age, is_lost = float(recording.age_h[i]), bool(recording.lost[i])
        begin = age if begin is None else begin
        if is_lost or i + 1 == last or not recording.up[i + 1]:
            ends = [age + tick * (k + 0.5) / _MOMENTS if is_lost else age + tick for k in range(_MOMENTS)]
            lives += [RecordedLife(begin, end, is_lost) for end in ends]
            begin = None
    return lives


def tell_intervals(hazard: Hazard, checkpoint: Checkpoint, most_h: float) -> Floats:
    """Return how many hours apart a gang saves in each tick of its life, as the controller tells it."""
    told, own = [], 0.0
    for tick in range(int(most_h / _TICK_H) + 2):
        best = best_interval_s(checkpoint, hazard.rate_at(tick * _TICK_H), None) / 3600
        if own == 0.0 or is_worth_changing(own, best):
            own = best
        told.append(own)
    return np.array(told)


def play_lives(lives: Sequence[RecordedLife], intervals: Floats, stall_h: float) -> SavedWork:
    """Return the hours of lives that save after the interval of their age: the last one holds at all later ages."""
    return SavedWork(
        sum(useful_hours(life, intervals, stall_h) for life in lives), sum(life.end_h - life.begin_h for life in lives)
    )


def useful_hours(life: RecordedLife, intervals: Floats, stall_h: float) -> float:
    """Return the hours of work of one life that a save holds, or that nothing destroyed."""
    # A life that crosses the half has started long ago, and saved as it comes into view.
    clock = life.begin_h if life.begin_h > 0 else RESTART_H
    kept = 0.0
    while clock < life.end_h:
        due = _next_save(clock, intervals)
        if due + stall_h > life.end_h:
            return kept if life.is_lost else kept + min(due, life.end_h) - clock
        kept += due - clock
        clock = due + stall_h
    return kept


def _next_save(saved: float, intervals: Floats) -> float:
    """Return the age at the next save: the first at which the last one is as old as the interval of that age."""
    last = len(intervals) - 1
    tick = min(int(saved / _TICK_H), last)
    while True:
        due = max(saved + float(intervals[tick]), tick * _TICK_H)
        if tick == last or due < (tick + 1) * _TICK_H:
            return due
        tick += 1


def fixed_shares(lives: Sequence[RecordedLife], stall_h: float) -> Floats:
    """Return the useful share in percent by each of the fixed intervals that are tried."""
    begins = np.array([life.begin_h if life.begin_h > 0 else RESTART_H for life in lives])
    lasted = np.maximum(np.array([life.end_h for life in lives]) - begins, 0.0)
    lost = np.array([life.is_lost for life in lives])
    billed = sum(life.end_h - life.begin_h for life in lives)
    cycles = (FIXED_H + stall_h)[:, None]
    saves = np.floor(lasted / cycles + 1e-12)
    rest = np.minimum(lasted - saves * cycles, FIXED_H[:, None])
    useful: Floats = (saves * FIXED_H[:, None] + np.where(lost, 0.0, rest)).sum(axis=1)
    return 100 * useful / billed


def judge_recording(recording: Recording, hazard: Hazard, stall_h: float) -> JudgedRecording | None:
    """Return the shares of one recording; None where no gang was up in one of its halves."""
    before, lives = (
        find_lives(recording, *half) for half in ((0, recording.half), (recording.half, recording.up.size))
    )
    if not before or not lives:
        return None
    checkpoint = saves_of(stall_h)
    by_age = tell_intervals(hazard, checkpoint, max(life.end_h for life in lives))
    planned = best_interval_s(checkpoint, hazard.rate_over(TOLD_HOURS), None) / 3600
    shares = fixed_shares(lives, stall_h)
    return JudgedRecording(
        recording,
        len(lives) // _MOMENTS,
        play_lives(lives, by_age, stall_h).share,
        play_lives(lives, np.array([planned]), stall_h).share,
        float(shares[np.argmax(fixed_shares(before, stall_h))]),
        float(shares.max()),
        float(FIXED_H[np.argmax(shares)]),
    )


def saves_of(stall_h: float) -> Checkpoint:
    """Return checkpoints that stop the training for so long."""
    return Checkpoint(size_gib=stall_h * 3600, write_gib_per_s=1.0)


def judge_pools(recordings: Sequence[Recording], stall_h: float, *, known: bool) -> list[list[JudgedRecording]]:
    """Return by pool its recordings, judged with the risk that the first halves tell of it, or of others alone."""
    rule = RuleOfProduct(recordings)
    pools = []
    for pool in dict.fromkeys(recording.pool for recording in recordings):
        used = rule if known else RuleOfProduct([r for r in recordings if r.pool != pool])
        judged = [judge_recording(r, used.gang(r), stall_h) for r in recordings if r.pool == pool]
        found = [one for one in judged if one is not None]
        if found:
            pools.append(found)
    return pools


def report(recordings: Sequence[Recording], *, each_pool: bool) -> Iterator[str]:
    """Yield the tables: gaps by stall, and where asked for those of each recording."""
    yield f"SAVE INTERVALS: median gap to the best fixed interval in hindsight, points; at most {MOST_POINTS:g} wanted"
    yield f"  risk      stall   best     {''.join(f'{name:14}' for name in WAYS.values())}within {MOST_POINTS:g} by age"
    for known in (True, False):
        for stall, stall_h in STALLS.items():
            pools = judge_pools(recordings, stall_h, known=known)
            gaps = {way: [mean(one.gap(way) for one in pool) for pool in pools] for way in WAYS}
            best = median(mean(one.best for one in pool) for pool in pools)
            within = sum(gap <= MOST_POINTS for gap in gaps["by_age"])
            yield (
                f"  {'known' if known else 'left out':10}{stall:8}{best:5.1f} %  "
                f"{''.join(f'{median(gaps[way]):<14.1f}' for way in WAYS)}{within} of {len(pools)} pools"
                f"{'' if median(gaps['by_age']) <= MOST_POINTS else '  BEHIND'}"
            )
            if each_pool:
                yield from _recording_lines(one for pool in pools for one in pool)


def _recording_lines(judged: Iterable[JudgedRecording]) -> Iterator[str]:
    for one in judged:
        gaps = ", ".join(f"{name} {one.gap(way):+.1f}" for way, name in WAYS.items())
        yield (
            f"      {'/'.join(one.recording.pool):36}{one.recording.folder:40}{one.lives:4} lives; "
            f"best {one.best:.1f} %, every {60 * one.best_h:,.0f} min; {gaps}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare saves by age with the best fixed interval in hindsight.")
    parser.add_argument("--pools", action="store_true", help="print each recording too")
    options = parser.parse_args()
    if not DATA.is_dir():
        print("SAVE INTERVALS: skipped, the shared data are not here")
        return
    for line in report(read_recordings(DATA), each_pool=options.pools):
        print(line, flush=True)


if __name__ == "__main__":
    main()
