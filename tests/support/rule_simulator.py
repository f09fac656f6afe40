"""Carry out a rule's choices of place and time in one simulated world, tick by tick, within the limits of the night.

A job waits until its rule names a gang for which there is room and which is not gone; it then starts up (billed),
works, writes checkpoints as its job says, and is interrupted as the world says: work since the last checkpoint is lost,
all of it without one. After a tick of work its speed on that accelerator is known to all rules. Machines are billed
from start to end at the price of the day. What a gang takes of limits it holds to the end of a tick. Moves into a
region are billed at the month's tariffs, all jobs together.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pricing.egress import Tariff, compute_meter_costs
from pricing.places import Market, RegionId
from pricing.risk import TOLD_HOURS, RiskTable
from router.jobs.goodput import on_time_steps_per_hour
from router.jobs.limits import Limits
from router.jobs.measured_speed import RELATIVE_ERROR
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, GangPart, steps_to_do
from router.planning.find.transfers import Transfer, checkpoint_home, checkpoint_transfer
from router.planning.problem.egress_to_date import allowance_left, already_moved
from router.planning.problem.problem import PlacementProblem, window

TICK = 0.25  # hours
NOISE = 0.15
SPAN = 45 * 24  # hours that a world lasts at most
_TICKS = round(SPAN / TICK)
_LEAST_SPEED = 0.2
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class World:
    """A future by its seed. ``rate_factor`` and ``speed_factor`` make it worse than anybody believed."""

    seed: int
    risk: RiskTable
    rate_factor: float = 1.0
    speed_factor: float = 1.0
    noise: float = NOISE
    _drawn: dict[str, Floats] = field(default_factory=dict, compare=False)
    _gone: dict[str, Bools] = field(default_factory=dict, compare=False)

    def interruption(self, job: str, candidate: Candidate, tick: int) -> float | None:
        """Hours into the tick at which the job's gang is interrupted, None where it is not."""
        hours = -math.log1p(-self._uniform(f"interruption {job} {candidate.key}", tick)) / self._rate(candidate)
        return hours if hours < TICK else None

    def wait(self, job: str, candidate: Candidate, tick: int) -> float:
        """Hours for which nothing like it can be had after an interruption in the tick."""
        return -math.log1p(-self._uniform(f"wait {job} {candidate.key}", tick)) * candidate.risk.recovery_hours

    def speed(self, job: str, candidate: Candidate) -> float:
        """True steps an hour of compute."""
        drawn = float(self._rng(f"speed {job} {candidate.accelerator}").standard_normal())
        error = max(_LEAST_SPEED, 1 + candidate.risk.relative_error * drawn)
        return candidate.risk.nominal_steps_per_hour * error * self.speed_factor

    def usd_per_hour(self, candidate: Candidate, tick: int) -> float:
        """Return the price of the whole gang an hour on that day."""
        return sum(
            part.offer.usd_per_hour.dollars() * part.machines * self._factor(part, tick) for part in candidate.parts
        )

    def is_gone(self, candidate: Candidate, tick: int) -> bool:
        """Whether some part of the gang cannot be had because spot of its offer is out."""
        return any(part.offer.market is Market.SPOT and bool(self._outages(part)[tick]) for part in candidate.parts)

    def _rate(self, candidate: Candidate) -> float:
        spot = any(part.offer.market is Market.SPOT for part in candidate.parts)
        return candidate.gang_risk.per_hour_over(TOLD_HOURS) * (self.rate_factor if spot else 1.0)

    def _factor(self, part: GangPart, tick: int) -> float:
        if part.offer.market is not Market.SPOT:
            return 1.0
        day = int(tick * TICK // 24)
        name = f"price {part.listing.name}"
        if name not in self._drawn:
            normal = self._rng(name).standard_normal(SPAN // 24 + 1)
            self._drawn[name] = np.exp(self.noise * normal - self.noise**2 / 2)
        return float(self._drawn[name][day])

    def _outages(self, part: GangPart) -> Bools:
        """By tick whether the offer is gone: there and gone in turn, the first by the share of time it is there."""
        name = part.listing.name
        if name not in self._gone:
            one = self.risk.gang(part.offer, part.machine, 1)
            up, mean = 1 / (one.per_hour_over(TOLD_HOURS) * self.rate_factor), one.recovery_hours
            rng = self._rng(f"outage {name}")
            gone = np.zeros(_TICKS, dtype=np.bool_)
            at, is_up = 0.0, bool(rng.random() < up / (up + mean))
            while at < SPAN:
                length = float(rng.exponential(up if is_up else mean))
                if not is_up:
                    gone[math.ceil(at / TICK) : math.ceil((at + length) / TICK)] = True
                at, is_up = at + length, not is_up
            self._gone[name] = gone
        return self._gone[name]

    def _uniform(self, name: str, tick: int) -> float:
        if name not in self._drawn:
            self._drawn[name] = self._rng(name).random(_TICKS)
        return float(self._drawn[name][tick])

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])


SLOT_TICKS = round(1 / TICK)  # a waiting job tries at least once an hour
_TINY = 1e-9


@dataclass(frozen=True)
class RuleNight:
    """Jobs with their candidates, and what they share."""

    jobs: tuple[Job, ...]
    candidates: Mapping[str, tuple[Candidate, ...]]
    problem: PlacementProblem

    @classmethod
    def of(cls, jobs: Sequence[Job], problem: PlacementProblem) -> RuleNight:
        """Return the night of a placement problem; ``jobs`` are all of its jobs, those that nothing can carry too."""
        ordered = tuple(sorted(jobs, key=lambda job: (-job.priority, job.name)))
        return cls(ordered, {job.name: problem.all_candidates[job.name] for job in ordered}, problem)

    @property
    def now(self) -> datetime:
        return self.problem.now

    @property
    def limits(self) -> Limits:
        return self.problem.limits

    def use(self, job: str, candidate: Candidate) -> Mapping[str, int]:
        """Return the use of each limit by the candidate."""
        return self.problem.use[job, candidate.key]

    @property
    def hopeless(self) -> frozenset[str]:
        """Return jobs that no gang of theirs surely finishes in time, were it alone."""
        return frozenset(
            job.name
            for job in self.jobs
            if all(
                self.earliest(job) + c.reserved_hours(steps_to_do(job, running=c.running)) > self.deadline(job)
                for c in self.candidates[job.name]
            )
        )

    def deadline(self, job: Job) -> float:
        """Hours from now, infinite without one."""
        last = window(job, self.now)[1]
        return math.inf if last is None else (last - self.now) / timedelta(hours=1)

    def earliest(self, job: Job) -> float:
        """Hours from now before which the job may not start."""
        return (window(job, self.now)[0] - self.now) / timedelta(hours=1)


@dataclass(frozen=True)
class Life:
    """A gang held from ``start`` to ``end`` in hours, room to ``until``."""

    job: str
    key: str
    start: float
    end: float
    until: float
    usd: float
    interrupted: bool


@dataclass
class JobState:
    """How far a job is. ``steps_left`` counts lasting progress only."""

    job: Job
    deadline: float
    earliest: float
    steps_left: float
    home: RegionId | None
    running: Candidate | None = None
    started: float = 0.0
    usd_of_life: float = 0.0
    startup_left: float = 0.0
    worked: float = 0.0
    speed: float = 0.0
    wait_until: float = 0.0
    has_started: bool = False
    gave_up: bool = False
    finish: float | None = None
    visited: set[RegionId] = field(default_factory=set)

    @property
    def is_waiting(self) -> bool:
        return self.running is None and self.finish is None and not self.gave_up

    def steps_kept(self, *, by_hand: bool) -> float:
        """Steps that outlast the gang: those of its last checkpoint, all where it is stopped on purpose."""
        c = self.running
        if c is None or not c.risk.resumes:
            return 0.0
        cycle = c.risk.interval_hours + c.risk.stall_hours
        full = math.floor((self.worked if by_hand else max(0.0, self.worked - c.risk.loss_extra_hours)) / cycle + _TINY)
        compute = full * c.risk.interval_hours
        if by_hand:
            compute += min(c.risk.interval_hours, self.worked - full * cycle)
        return min(self.steps_left, compute * self.speed)

    def hours_to_finish(self) -> float:
        """Hours of work, checkpoints included, in which this gang finishes from its start on."""
        c = self.running
        assert c is not None
        compute = self.steps_left / self.speed
        if not c.risk.resumes:
            return compute
        return compute + max(0, math.ceil(compute / c.risk.interval_hours - _TINY) - 1) * c.risk.stall_hours


@dataclass(frozen=True)
class Outcome:
    """The outcome of a rule in a world; hours from now, dollars by job. ``usd`` includes moves."""

    rule: str
    finish: Mapping[str, float | None]
    deadline: Mapping[str, float]
    started: frozenset[str]
    usd: Mapping[str, float]
    moves_usd: Mapping[str, float]
    lives: tuple[Life, ...]

    @property
    def unplaced(self) -> frozenset[str]:
        """Jobs that never started."""
        return frozenset(self.finish) - self.started

    @property
    def late(self) -> frozenset[str]:
        """Jobs that started and did not finish by their deadline, or not at all."""
        return frozenset(
            job for job in self.started if (at := self.finish[job]) is None or at > self.deadline[job] + 1e-6
        )

    @property
    def total_usd(self) -> float:
        return sum(self.usd.values())


class Rule(Protocol):
    """Which gang a waiting job takes now."""

    @property
    def name(self) -> str: ...

    def order(self, waiting: Sequence[JobState]) -> Sequence[JobState]:
        """The order in which waiting jobs choose."""
        ...

    def choose(self, state: JobState, hour: float, stage: Stage) -> Candidate | None:
        """The gang to start now, with room; None to wait. May set ``gave_up``."""
        ...

    def stops(self, state: JobState, hour: float, stage: Stage) -> bool:
        """Whether a job that runs is stopped on purpose now, after a checkpoint."""
        ...

    def hurries(self, state: JobState, hour: float, stage: Stage) -> bool:
        """Whether a job that waits for lost spot to come back chooses at once; for what is not spot alone."""
        ...


class Stage:
    """The view that a rule has while it chooses: room now, and what a start would cost."""

    def __init__(self, night: RuleNight, world: World) -> None:
        self.night, self.world = night, world
        self.used: dict[str, int] = defaultdict(int)
        self.tick = 0
        # True over stated speed by job and accelerator, once a gang has worked for a tick.
        self.measured: dict[tuple[str, str], float] = {}

    def has_room(self, job: str, candidate: Candidate) -> bool:
        """Whether the gang can be had now."""
        amounts = self.night.problem.shared
        fits = all(self.used[name] + n <= amounts[name].amount for name, n in self.night.use(job, candidate).items())
        return fits and not self.world.is_gone(candidate, self.tick)

    def moves(self, state: JobState, candidate: Candidate) -> tuple[Transfer, ...] | None:
        """Return the transfers that a start there needs; None where no tariff is known."""
        found = []
        if candidate.region not in state.visited:
            found += [t for t in candidate.transfers if t.what != "checkpoint"]
        if state.home is not None and state.home != candidate.region:
            try:
                moved = checkpoint_transfer(state.job, state.home, candidate.region, self.night.problem.book)
            except LookupError:
                return None
            found += [moved] if moved is not None else []
        return tuple(found)

    def expected_usd(self, state: JobState, candidate: Candidate) -> float:
        """Return the expected cost of the rest of the job there, moves at their dearest tier."""
        moves = self.moves(state, candidate)
        if moves is None:
            return math.inf
        work = state.steps_left / self.measured.get((state.job.name, candidate.accelerator), 1.0)
        return candidate.expected_usd(work) + sum(t.dearest.dollars() for t in moves)

    def reserved_hours(self, state: JobState, candidate: Candidate, steps: float) -> float:
        """Return the hours to hold for the steps, start-up included, at the measured speed where there is one."""
        ratio = self.measured.get((state.job.name, candidate.accelerator))
        if ratio is None:
            return candidate.reserved_hours(steps)
        nominal = candidate.risk.nominal_steps_per_hour * ratio
        risk = replace(candidate.risk, nominal_steps_per_hour=nominal, relative_error=RELATIVE_ERROR)
        speed = on_time_steps_per_hour(risk, state.job.steps_left, state.job.confidence)
        return candidate.startup_hours + steps / speed

    def can_be_on_time(self, state: JobState, candidate: Candidate, hour: float) -> bool:
        """Whether a start at the hour meets the deadline at the speed that the job's confidence asks for."""
        return hour + self.reserved_hours(state, candidate, state.steps_left) <= state.deadline + _TINY


class _Simulation:
    def __init__(self, night: RuleNight, world: World, rule: Rule) -> None:
        self.night, self.world, self.rule = night, world, rule
        self.stage = Stage(night, world)
        self.states = [_fresh(night, job) for job in night.jobs]
        self.lives: list[Life] = []
        self.usd: dict[str, float] = {job.name: 0.0 for job in night.jobs}
        self.moved: list[tuple[str, str, Transfer]] = []

    def run(self) -> Outcome:
        ticks = round(SPAN / TICK)
        free = True
        for tick in range(ticks):
            if all(state.finish is not None or state.gave_up for state in self.states):
                break
            self.stage.tick = tick
            free |= self._stop_on_purpose(tick)
            self._start(tick, everybody=free or tick % SLOT_TICKS == 0)
            free = self._advance(tick)
        for state in self.states:
            if state.running is not None:
                self._end(state, SPAN, SPAN, interrupted=False)
        moves = self._moves_usd()
        return Outcome(
            rule=self.rule.name,
            finish={state.job.name: state.finish for state in self.states},
            deadline={state.job.name: state.deadline for state in self.states},
            started=frozenset(state.job.name for state in self.states if state.has_started),
            usd={name: usd + moves.get(name, 0.0) for name, usd in self.usd.items()},
            moves_usd=moves,
            lives=tuple(self.lives),
        )

    def _stop_on_purpose(self, tick: int) -> bool:
        hour, stopped = tick * TICK, False
        for state in self.states:
            if state.running is not None and self.rule.stops(state, hour, self.stage):
                self._keep(state, by_hand=True)
                self._end(state, hour, hour, interrupted=False)
                stopped = True
        return stopped

    def _start(self, tick: int, *, everybody: bool) -> None:
        hour = tick * TICK
        waiting = [
            state
            for state in self.states
            if state.is_waiting
            and state.earliest <= hour + _TINY
            and (self._may_choose(state, hour, everybody=everybody) or self.rule.hurries(state, hour, self.stage))
        ]
        for state in self.rule.order(waiting):
            candidate = self.rule.choose(state, hour, self.stage)
            if candidate is not None:
                self._begin(state, candidate, tick)

    def _may_choose(self, state: JobState, hour: float, *, everybody: bool) -> bool:
        since = max(state.earliest, state.wait_until)
        return since <= hour + _TINY and (everybody or since > hour - TICK)

    def _begin(self, state: JobState, candidate: Candidate, tick: int) -> None:
        name = state.job.name
        for limit, amount in self.night.use(name, candidate).items():
            self.stage.used[limit] += amount
        goes_on = candidate.running and tick == 0
        if not goes_on:
            month = (self.night.now + timedelta(hours=tick * TICK)).strftime("%Y-%m")
            self.moved += [(name, month, move) for move in self.stage.moves(state, candidate) or ()]
            if not candidate.risk.resumes:
                state.steps_left = float(steps_to_do(state.job, running=False))
        state.visited.add(candidate.region)
        state.home = candidate.region if state.home is not None else None
        state.running, state.started, state.usd_of_life = candidate, tick * TICK, 0.0
        state.startup_left = 0.0 if goes_on else candidate.startup_hours
        state.worked, state.speed = 0.0, self.world.speed(name, candidate)
        state.has_started = True

    def _advance(self, tick: int) -> bool:
        """Let a tick pass for all that run; return whether room was freed."""
        freed = False
        for state in self.states:
            c = state.running
            if c is None:
                continue
            name = state.job.name
            at = self.world.interruption(name, c, tick)
            length = TICK if at is None else at
            starting = min(state.startup_left, length)
            state.startup_left -= starting
            state.worked += length - starting
            if state.worked >= TICK:
                self.stage.measured[name, c.accelerator] = state.speed / c.risk.nominal_steps_per_hour
            over = state.worked - state.hours_to_finish()
            if over >= -_TINY and state.startup_left <= _TINY:
                length -= max(0.0, over)
            state.usd_of_life += length * self.world.usd_per_hour(c, tick)
            if over >= -_TINY and state.startup_left <= _TINY:
                state.finish, state.steps_left = tick * TICK + length, 0.0
                self._end(state, state.finish, (tick + 1) * TICK, interrupted=False)
            elif at is not None:
                self._keep(state, by_hand=False)
                state.wait_until = tick * TICK + length + self.world.wait(name, c, tick)
                self._end(state, tick * TICK + length, (tick + 1) * TICK, interrupted=True)
            freed |= state.running is None
        return freed

    def _keep(self, state: JobState, *, by_hand: bool) -> None:
        kept = state.steps_kept(by_hand=by_hand)
        state.steps_left -= kept
        if kept > 0 and state.running is not None:
            state.home = state.running.region

    def _end(self, state: JobState, end: float, until: float, *, interrupted: bool) -> None:
        c = state.running
        assert c is not None
        name = state.job.name
        for limit, amount in self.night.use(name, c).items():
            self.stage.used[limit] -= amount
        self.lives.append(Life(name, c.key, state.started, end, until, state.usd_of_life, interrupted))
        self.usd[name] += state.usd_of_life
        state.running = None

    def _moves_usd(self) -> dict[str, float]:
        """Bill all moves of each month, and give each job its share by bytes."""
        usd: dict[str, float] = defaultdict(float)
        for month in sorted({month for _, month, _ in self.moved}):
            bytes_by: dict[str, int] = defaultdict(int)
            tariffs: dict[str, Tariff] = {}
            for _, at, move in self.moved:
                if at == month:
                    bytes_by[move.tariff.meter] += move.volume_bytes
                    tariffs[move.tariff.meter] = move.tariff
            meters = sorted(tariffs)
            problem = self.night.problem
            items = [(tariffs[m], already_moved(problem, tariffs[m], month), bytes_by[m]) for m in meters]
            clouds = {tariffs[m].cloud for m in meters}
            left = {cloud: int(allowance_left(problem, cloud, month)) for cloud in clouds}
            bills = dict(zip(meters, compute_meter_costs(items, left), strict=True))
            for name, at, move in self.moved:
                if at == month and bytes_by[move.tariff.meter]:
                    meter = move.tariff.meter
                    usd[name] += bills[meter].dollars() * move.volume_bytes / bytes_by[meter]
        return dict(usd)


def _fresh(night: RuleNight, job: Job) -> JobState:
    running = any(c.running for c in night.candidates[job.name])
    return JobState(
        job=job,
        deadline=night.deadline(job),
        earliest=night.earliest(job),
        steps_left=float(steps_to_do(job, running=running)),
        home=checkpoint_home(job) if job.checkpoint is not None and job.steps_left < job.steps else None,
    )


def simulate_rule(night: RuleNight, world: World, rule: Rule) -> Outcome:
    """Return what comes of the rule in the world."""
    return _Simulation(night, world, rule).run()
