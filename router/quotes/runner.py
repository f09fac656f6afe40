"""Scenario runner: one job on a few options in simulated scenarios, for several deadlines in the same scenarios.

A quote adds to :mod:`router.spot.simulator.simulation`: options that share a pool share its availability; the job's
speed is known only to its relative error; bringing the data to the first region costs money; nothing is paid for the
rest of the last tick. Coming back to a region counts as bringing the data there again, which errs to the dear side.
Every spot launch loses the work of half a checkpoint interval at once; one on which the job is done gets it back.
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
from router.planning.find.candidate import Candidate
from router.planning.find.transfers import TRANSFER_GIB_PER_S
from router.spot.availability.hazard_model import HazardModel, simulate_windows
from router.spot.availability.observed import OptionAvailability
from router.spot.simulator.inputs import HOUR_S, SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import (
    IDLE,
    NOWHERE,
    SPOT,
    FullInfoPolicy,
    FullView,
    GuardMode,
    SimulationOutcome,
    simulate,
)
from router.spot.simulator.traces import Bools, Floats, Ints, Series, ZoneSeries
from router.spot.venues import QuoteOption

RegionMoveCost = Callable[[RegionId, RegionId], float]
PolicyFactory = Callable[[HazardModel, SimulationInputs], FullInfoPolicy]
_STRATA: Final = 100  # parts of the distribution of a speed's error, one draw in each
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class QuoteClock:
    """A clock of at most ``ticks`` ticks of ``tick_s`` seconds."""

    tick_s: int
    ticks: int


@dataclass(frozen=True, eq=False, slots=True)
class ScenarioOutcomes:
    """The outcome of the scenarios, one entry a draw.

    ``usd`` is the whole cost, ``egress_usd`` (data and checkpoints) and ``spot_usd`` included. ``finish_s`` is from the
    start, by the clock; infinite where the job is never done. ``slow`` is the draw's work over the expected work.
    ``first`` is the option where it began; ``option_by_tick`` [draw, tick] is where it ran, ``NOWHERE`` while it waits.
    """

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
    option_by_tick: NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class DeadlineCase:
    """A deadline after ``ticks`` ticks, for the first ``draws`` scenarios; ``steps`` None: all of them."""

    ticks: int
    draws: int
    steps: float | None = None


@dataclass(frozen=True, slots=True)
class ScenarioStretch:
    """Ticks ``first`` to ``after - 1`` of one scenario, all on one option; ``venue`` ``NOWHERE``: it waits."""

    first: int
    after: int
    venue: int


class ScenarioRunner:
    """The scenario runner of some options, with ``draws`` simulated scenarios on ``clock``.

    The same seed gives the same scenarios. There are ``steps`` to do; the first option's speed is the measure of work.
    ``move_usd`` is the cost of one move of the checkpoint, region to region. ``policy_for`` is called once, with these
    inputs; the policy that it returns must decide by the time that is left, not by what has passed.
    """

    def __init__(
        self,
        job: Job,
        steps: int,
        venues: Sequence[QuoteOption],
        availability: OptionAvailability,
        clock: QuoteClock,
        draws: int,
        seed: int,
        move_usd: RegionMoveCost,
        policy_for: PolicyFactory,
    ) -> None:
        self.job, self.steps, self.venues, self.clock = job, steps, tuple(venues), clock
        self.availability = availability
        self.startup_s = round(venues[0].startup_hours * HOUR_S)
        self.like = self._build_inputs(_move_costs(job, venues, move_usd))
        self.inputs = self._simulate_availability(draws, seed)
        self.slow = self._draw_slowness(draws, np.random.default_rng((seed, 1)))
        self.policy = policy_for(availability.hazard_model, self.like)

    def work_s(self, steps: float) -> int:
        """Return the work of these steps in seconds of the first option's time."""
        return max(1, round(steps / self.venues[0].steps_per_hour * HOUR_S))

    def play(self, ticks: int, steps: float | None = None) -> ScenarioOutcomes:
        """Return the outcome with a deadline after this many ticks."""
        return self.plays([DeadlineCase(ticks, self.slow.size, steps)])[0]

    def plays(self, cases: Sequence[DeadlineCase]) -> list[ScenarioOutcomes]:
        """Return the outcomes of all these cases, each in the same scenarios, from its first window on."""
        most, tick_s = max(case.ticks for case in cases), self.clock.tick_s
        expected = [self.work_s(self.steps if case.steps is None else case.steps) for case in cases]
        slow = np.concatenate([self.slow[: case.draws] for case in cases])
        count = [case.draws for case in cases]
        begins = np.repeat([most - case.ticks for case in cases], count)
        inputs = replace(
            self.inputs,
            task=Task(max(expected), most * tick_s, self.startup_s),
            starts=np.concatenate([self.inputs.starts[:n] for n in count]),
            begins=begins if begins.any() else None,
        )
        work_s = np.maximum(1, np.rint(np.repeat(expected, count) * slow)).astype(np.int64)
        recorder = _WindowRecorder(slow.size, most)
        outcome = simulate(inputs, self.policy, GuardMode.EXACT, work_s, recorder)
        moving_usd = np.array([v.moving_usd for v in self.venues])[recorder.first]
        ends = np.cumsum(count)
        return [
            self._case_outcome(outcome, moving_usd, recorder, slice(end - case.draws, end), most - case.ticks)
            for case, end in zip(cases, ends, strict=True)
        ]

    def _case_outcome(
        self, got: SimulationOutcome, brought: Floats, watched: _WindowRecorder, part: slice, begins: int
    ) -> ScenarioOutcomes:
        ends, option_by_tick = np.isfinite(got.usd[part]), watched.option_by_tick[begins:, part].T
        on_spot = ~got.late[part] & watched.on_spot[part]
        back_s = np.where(on_spot, self.like.launch_s[watched.last[part]], 0)
        back_usd = back_s / HOUR_S * self._usd_per_hour[watched.last[part]]
        spare_usd = np.where(ends, got.spare_usd[part], 0.0) + back_usd
        spare_s = got.spare_s[part] + back_s
        return ScenarioOutcomes(
            usd=got.usd[part] + brought[part] - spare_usd,
            egress_usd=got.egress_usd[part] + brought[part],
            spot_usd=got.spot_usd[part] - np.where(on_spot, spare_usd, 0.0),
            finish_s=np.where(ends, got.finish_tick[part] * float(self.clock.tick_s) - spare_s, np.inf),
            late=got.late[part],
            spot_ticks=got.spot_ticks[part],
            on_demand_ticks=got.on_demand_ticks[part],
            launches=got.launches[part],
            slow=self.slow[: part.stop - part.start],
            first=watched.first[part],
            option_by_tick=option_by_tick,
        )

    def waste_usd(self, played: ScenarioOutcomes) -> tuple[Floats, Floats]:
        """Return by draw the dollars of starts, with the transfers before them, and of work that was lost with spot."""
        at = played.option_by_tick.astype(np.int64)
        draws, ticks = at.shape
        changes = np.ones_like(at, dtype=bool)
        changes[:, 1:] = at[:, 1:] != at[:, :-1]
        begin = np.flatnonzero(changes)
        hours = np.diff(np.append(begin, at.size)) * self.clock.tick_s / HOUR_S
        draw, option = begin // ticks, at.ravel()[begin]
        runs = option != NOWHERE
        draw, option, hours = draw[runs], option[runs], hours[runs]
        again = np.zeros(option.size, dtype=bool)
        again[1:] = draw[1:] == draw[:-1]
        before = np.where(again, np.append(option[:1], option[:-1]), option)
        starts = np.minimum((self.startup_s + self.like.ways.transfer_s[before, option]) / HOUR_S, hours)
        on_spot = ~np.array([v.sure for v in self.venues])[option]
        last = np.append(draw[1:] != draw[:-1], True)[: option.size]
        kept = last & on_spot & ~played.late[draw]
        lost = np.where(on_spot & ~kept, np.minimum(self.like.launch_s[option] / HOUR_S, hours - starts), 0.0)
        price = self._usd_per_hour[option]
        dollars = np.zeros((2, draws))
        np.add.at(dollars[0], draw, starts * price)
        np.add.at(dollars[1], draw, lost * price)
        return dollars[0], dollars[1]

    @property
    def _usd_per_hour(self) -> Floats:
        return np.array([v.usd_per_hour for v in self.venues])

    def _build_inputs(self, ways: ZoneMoveCosts) -> SimulationInputs:
        clock, venues = self.clock, self.venues
        zones = tuple(_to_zone(v, clock.ticks) for v in venues)
        speed = np.array([v.steps_per_hour / venues[0].steps_per_hour for v in venues])
        launch_s = np.array([round(v.lost_hours * HOUR_S) for v in venues], dtype=np.int64)
        task = Task(self.work_s(self.steps), clock.tick_s * clock.ticks, self.startup_s)
        return SimulationInputs.of(task, Series(clock.tick_s, zones), [0], ways, speed, launch_s)

    def _simulate_availability(self, draws: int, seed: int) -> SimulationInputs:
        """Return the inputs with simulated availability: the same for options in one pool, no spot for sure ones."""
        availability = self.availability
        simulated = simulate_windows(
            availability.hazard_model, availability.state, self.like, draws, np.random.default_rng((seed, 0))
        )
        up = simulated.up[np.array(availability.pool)] & ~np.array([v.sure for v in self.venues])[:, None]
        return replace(simulated, up=up)

    def _draw_slowness(self, draws: int, rng: np.random.Generator) -> Floats:
        """Return draws of the speed's error as plans take it.

        The draws are stratified: of each hundred one lies in each hundredth of the distribution, so that few of them
        tell as much as many.
        """
        at = np.concatenate([rng.permutation(_STRATA) + rng.random(_STRATA) for _ in range(-(-draws // _STRATA))])
        deviations = [_NORMAL.inv_cdf(x) for x in np.clip(at[:draws] / _STRATA, 1e-9, 1 - 1e-9).tolist()]
        return run_share(self.venues[0].candidate.risk.relative_error, np.array(deviations))


def choose_clock(window_s: int, ticks: int, least_s: int, most_s: int) -> QuoteClock:
    """Return a clock of about ``ticks`` ticks, of which ``window_s`` is a whole number but for a few seconds."""
    wanted = min(max(window_s // ticks, least_s), most_s)
    tick_s = max(1, window_s // max(1, round(window_s / wanted)))
    return QuoteClock(tick_s, max(1, window_s // tick_s))


def _to_zone(v: QuoteOption, ticks: int) -> ZoneSeries:
    c = v.candidate
    price = np.full(ticks, v.usd_per_hour)
    return ZoneSeries(c.key, str(c.region), np.zeros(ticks, np.int64), price, v.usd_per_hour if v.sure else np.inf)


def _move_costs(job: Job, venues: Sequence[QuoteOption], move_usd: RegionMoveCost) -> ZoneMoveCosts:
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
    return ZoneMoveCosts(usd, seconds)


def _data_gib(candidate: Candidate) -> float:
    return sum(t.gib for t in candidate.transfers if t.what == "data")


class _WindowRecorder:
    """A listener that records each window.

    It stores where each began (0 where it never did), where it ran by tick, and where it was on spot last.
    """

    def __init__(self, windows: int, ticks: int) -> None:
        self.first: Ints = np.zeros(windows, dtype=np.int64)
        self.last: Ints = np.zeros(windows, dtype=np.int64)
        self.begun, self.on_spot = np.zeros(windows, dtype=bool), np.zeros(windows, dtype=bool)
        self.option_by_tick = np.full((ticks, windows), NOWHERE, dtype=np.int16)

    def __call__(self, now: FullView) -> None:
        """Record one tick; see :data:`~router.spot.simulator.simulation.FullViewListener`."""
        new = (now.last != NOWHERE) & ~self.begun[now.window]
        if new.any():
            self.first[now.window[new]] = now.last[new]
            self.begun[now.window[new]] = True
        self.on_spot[now.window] = now.kind == SPOT
        self.last[now.window] = np.maximum(now.last, 0)
        self.option_by_tick[now.tick, now.window] = np.where(now.kind == IDLE, NOWHERE, now.zone)


def list_stretches(played: ScenarioOutcomes, draw: int, tick_s: int) -> tuple[ScenarioStretch, ...]:
    """Return the stretches of one draw; after its deadline a late one stays where it was at its end."""
    options_by_tick = played.option_by_tick[draw].tolist()
    ticks = -(-round(float(played.finish_s[draw])) // tick_s)
    at = [*options_by_tick, *([options_by_tick[-1]] * (ticks - len(options_by_tick)))] if options_by_tick else []
    segments: list[ScenarioStretch] = []
    for i, v in enumerate(at[:ticks]):
        if segments and segments[-1].venue == v:
            segments[-1] = replace(segments[-1], after=i + 1)
        else:
            segments.append(ScenarioStretch(i, i + 1, v))
    return tuple(segments)
