"""A job on a few venues in made-up weather: what a policy makes of it, deadline by deadline, in the same weather.

What a quote adds to :mod:`router.spot.simulator.simulation`: venues that share a pool share its weather; how fast the
job
is is known only to the error of its speed; bringing the data to the first region costs money; nothing is paid for the
rest of the last tick. Coming back to a region counts as bringing the data there again, and every spot launch loses the
work of half a checkpoint interval at once, whether it is lost later or not: both err to the dear side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pricing.places import RegionId
from router.jobs.goodput import run_share
from router.jobs.spec import Job
from router.planning.candidates import Candidate
from router.spot.availability.forecast import windows
from router.spot.availability.hazard_model import Outlook
from router.spot.availability.observed import Weather
from router.spot.options import TRANSFER_GIB_PER_S
from router.spot.simulator.inputs import HOUR_S, Scene, Task, Ways
from router.spot.simulator.simulation import IDLE, NOWHERE, SPOT, Net, Now, Outcome, VectorPolicy, simulate
from router.spot.simulator.traces import Bools, Floats, Ints, Series, ZoneSeries
from router.spot.venues import Venue

MoveUsd = Callable[[RegionId, RegionId], float]
PolicyFor = Callable[[Outlook, Scene], VectorPolicy]
_STRATA: Final = 100  # parts of the distribution of a speed's error, one draw in each
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Clock:
    """Ticks of ``tick_s`` seconds, ``ticks`` of them at most."""

    tick_s: int
    ticks: int


@dataclass(frozen=True, eq=False, slots=True)
class Played:
    """One entry a draw. ``usd``: all; ``egress_usd`` (data and checkpoints) and ``spot_usd`` among it. ``finish_s``:
    from the start, by the clock; infinite where it is never done. ``slow``: the draw's work over what is expected.
    ``first``: the venue where it began; ``course`` [draw, tick]: where it ran, ``NOWHERE`` while it waits."""

    usd: Floats
    egress_usd: Floats
    spot_usd: Floats
    finish_s: Floats
    late: Bools
    spot_ticks: Ints
    on_demand_ticks: Ints
    launches: Ints
    slow: Floats
    first: Ints
    course: NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Case:
    """A deadline after so many ticks, for the first ``draws`` windows; ``steps``: None: all of them."""

    ticks: int
    draws: int
    steps: float | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Ticks ``first`` to ``after - 1`` of one window, all on one venue; ``venue`` ``NOWHERE``: it waits."""

    first: int
    after: int
    venue: int


class Stage:
    """Venues with ``draws`` windows of weather of ``clock``; ``steps`` to do. The first venue's speed is the measure of
    work. ``move_usd``: for one move of the checkpoint, region to region. The same seed, the same weather.
    ``policy_for``: asked once, with this scene; what it makes goes by the time that is left, not by what has passed."""

    def __init__(
        self,
        job: Job,
        steps: int,
        venues: Sequence[Venue],
        weather: Weather,
        clock: Clock,
        draws: int,
        seed: int,
        move_usd: MoveUsd,
        policy_for: PolicyFor,
    ) -> None:
        self.job, self.steps, self.venues, self.clock = job, steps, tuple(venues), clock
        self.weather = weather
        self.startup_s = round(venues[0].startup_hours * HOUR_S)
        self.like = self._scene(_ways(job, venues, move_usd))
        self.scene = self._weather(draws, seed)
        self.slow = self._slow(draws, np.random.default_rng((seed, 1)))
        self.policy = policy_for(weather.outlook, self.like)

    def work_s(self, steps: float) -> int:
        """Seconds of the first venue's time."""
        return max(1, round(steps / self.venues[0].steps_per_hour * HOUR_S))

    def play(self, ticks: int, steps: float | None = None) -> Played:
        """With a deadline after so many ticks."""
        return self.plays([Case(ticks, self.slow.size, steps)])[0]

    def plays(self, cases: Sequence[Case]) -> list[Played]:
        """All of these, at once: each in the same weather, from its first window on."""
        most, tick_s = max(case.ticks for case in cases), self.clock.tick_s
        expected = [self.work_s(self.steps if case.steps is None else case.steps) for case in cases]
        slow = np.concatenate([self.slow[: case.draws] for case in cases])
        count = [case.draws for case in cases]
        begins = np.repeat([most - case.ticks for case in cases], count)
        scene = replace(
            self.scene,
            task=Task(max(expected), most * tick_s, self.startup_s),
            starts=np.concatenate([self.scene.starts[:n] for n in count]),
            begins=begins if begins.any() else None,
        )
        work_s = np.maximum(1, np.rint(np.repeat(expected, count) * slow)).astype(np.int64)
        watched = _Watched(slow.size, most)
        got = simulate(scene, self.policy, Net.EXACT, work_s, watched)
        brought = np.array([v.moving_usd for v in self.venues])[watched.first]
        ends = np.cumsum(count)
        return [
            self._played(got, brought, watched, slice(end - case.draws, end), most - case.ticks)
            for case, end in zip(cases, ends, strict=True)
        ]

    def _played(self, got: Outcome, brought: Floats, watched: _Watched, part: slice, begins: int) -> Played:
        ends, course = np.isfinite(got.usd[part]), watched.course[begins:, part].T
        spare_usd = np.where(ends, got.spare_usd[part], 0.0)
        on_spot = ~got.late[part] & watched.on_spot[part]
        return Played(
            usd=got.usd[part] + brought[part] - spare_usd,
            egress_usd=got.egress_usd[part] + brought[part],
            spot_usd=got.spot_usd[part] - np.where(on_spot, spare_usd, 0.0),
            finish_s=np.where(ends, got.finish_tick[part] * float(self.clock.tick_s) - got.spare_s[part], np.inf),
            late=got.late[part],
            spot_ticks=got.spot_ticks[part],
            on_demand_ticks=got.on_demand_ticks[part],
            launches=got.launches[part],
            slow=self.slow[: part.stop - part.start],
            first=watched.first[part],
            course=course,
        )

    def _scene(self, ways: Ways) -> Scene:
        clock, venues = self.clock, self.venues
        zones = tuple(_zone(v, clock.ticks) for v in venues)
        speed = np.array([v.steps_per_hour / venues[0].steps_per_hour for v in venues])
        launch_s = np.array([round(v.lost_hours * HOUR_S) for v in venues], dtype=np.int64)
        task = Task(self.work_s(self.steps), clock.tick_s * clock.ticks, self.startup_s)
        return Scene.of(task, Series(clock.tick_s, zones), [0], ways, speed, launch_s)

    def _weather(self, draws: int, seed: int) -> Scene:
        """Of venues in one pool the same; of sure ones no spot at all."""
        weather = self.weather
        made = windows(weather.outlook, weather.sky, self.like, draws, np.random.default_rng((seed, 0)))
        up = made.up[np.array(weather.pool)] & ~np.array([v.sure for v in self.venues])[:, None]
        zones = tuple(replace(z, counts=up[i].astype(np.int64)) for i, z in enumerate(made.series.zones))
        return replace(made, up=up, series=Series(self.clock.tick_s, zones))

    def _slow(self, draws: int, rng: np.random.Generator) -> Floats:
        """The error of a speed as plans take it. Of each hundred draws one lies in each hundredth of the distribution,
        so that few of them tell as much of it as all."""
        at = np.concatenate([rng.permutation(_STRATA) + rng.random(_STRATA) for _ in range(-(-draws // _STRATA))])
        deviations = [_NORMAL.inv_cdf(x) for x in np.clip(at[:draws] / _STRATA, 1e-9, 1 - 1e-9).tolist()]
        return run_share(self.venues[0].candidate.risk.relative_error, np.array(deviations))


def clock_for(window_s: int, ticks: int, least_s: int, most_s: int) -> Clock:
    """About so many ticks, of which ``window_s`` is a whole number but for a few seconds."""
    wanted = min(max(window_s // ticks, least_s), most_s)
    tick_s = max(1, window_s // max(1, round(window_s / wanted)))
    return Clock(tick_s, max(1, window_s // tick_s))


def _zone(v: Venue, ticks: int) -> ZoneSeries:
    c = v.candidate
    price = np.full(ticks, v.usd_per_hour)
    return ZoneSeries(c.key, str(c.region), np.zeros(ticks, np.int64), price, v.usd_per_hour if v.sure else np.inf)


def _ways(job: Job, venues: Sequence[Venue], move_usd: MoveUsd) -> Ways:
    gib = 0.0 if job.checkpoint is None else job.checkpoint.size_gib
    usd, seconds = np.zeros((len(venues),) * 2), np.zeros((len(venues),) * 2, dtype=np.int64)
    known: Mapping[tuple[RegionId, RegionId], float] = {
        (a, b): move_usd(a, b) for a in {v.region for v in venues} for b in {v.region for v in venues} if a != b
    }
    for i, a in enumerate(venues):
        for j, b in enumerate(venues):
            if a.region != b.region:
                usd[i, j] = known[a.region, b.region] + b.data_usd
                seconds[i, j] = round((gib + _data_gib(b.candidate)) / TRANSFER_GIB_PER_S)
    return Ways(usd, seconds)


def _data_gib(candidate: Candidate) -> float:
    return sum(t.gib for t in candidate.transfers if t.what == "data")


class _Watched:
    """Where each window began, 0 where it never did; what it did, tick by tick; whether it was on spot in the last."""

    def __init__(self, windows: int, ticks: int) -> None:
        self.first: Ints = np.zeros(windows, dtype=np.int64)
        self.begun, self.on_spot = np.zeros(windows, dtype=bool), np.zeros(windows, dtype=bool)
        self.course = np.full((ticks, windows), NOWHERE, dtype=np.int16)

    def __call__(self, now: Now) -> None:
        """See :data:`~router.spot.simulator.simulation.Watch`."""
        new = (now.last != NOWHERE) & ~self.begun[now.window]
        if new.any():
            self.first[now.window[new]] = now.last[new]
            self.begun[now.window[new]] = True
        self.on_spot[now.window] = now.kind == SPOT
        self.course[now.tick, now.window] = np.where(now.kind == IDLE, NOWHERE, now.zone)


def stretches(played: Played, draw: int, tick_s: int) -> tuple[Stretch, ...]:
    """What ran where in one draw. What a late one does after its deadline is as it was at its end."""
    course = played.course[draw].tolist()
    ticks = -(-round(float(played.finish_s[draw])) // tick_s)
    at = [*course, *([course[-1]] * (ticks - len(course)))] if course else []
    found: list[Stretch] = []
    for i, v in enumerate(at[:ticks]):
        if found and found[-1].venue == v:
            found[-1] = replace(found[-1], after=i + 1)
        else:
            found.append(Stretch(i, i + 1, v))
    return tuple(found)
