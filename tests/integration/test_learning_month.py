"""A month of nights in which true speeds and interruption rates differ from what is stated by up to two.

What the plan predicts for a step comes near to what it truly costs, and nobody types anything: the nights leave
attempts in a state, as a controller would, and the next plan reads them. No time passes outside.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

import pytest

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from pricing.risk import TOLD_HOURS
from router.controller.history.run_records import read_runs
from router.jobs import goodput
from router.jobs.experience import learn
from router.jobs.goodput import GangRunRisk
from router.jobs.job_json import job_json
from router.jobs.spec import Job
from router.planning.document.plan import Line, Plan
from router.planning.find.checkpoint_times import interval_hours, write_hours
from router.planning.planner import PlanRequest, make_plan
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_job, make_limits
from tests.support.new_state import open_state
from tests.support.scenes import NOW
from tests.support.state_values import attempt, node

_HOUR = timedelta(hours=1)
_P9, _G9 = "p9.48xlarge", "g9.48xlarge"
OFFERS = [
    offer("aws/north-1", _P9, "on_demand", "60"),
    offer("aws/north-1", _P9, "spot", "26"),
    offer("aws/south-1", _P9, "spot", "25"),
    offer("aws/alps-1", _P9, "spot", "27", interruptions=0.02),
    offer("aws/north-1", _G9, "spot", "11"),
    offer("aws/north-1", _G9, "on_demand", "28"),
]
BOOK = book(OFFERS)
_NOISE = 0.03  # standard deviation of a run's speed


@dataclass(frozen=True, slots=True)
class JobNight:
    """A job's prediction by a plan, the true mean of the places it chose, and the night."""

    night: int
    job: str
    predicted: float
    expected: float
    usd: float
    steps: int

    @property
    def error(self) -> float:
        """How far the prediction is from the truth, as a share of it."""
        return abs(self.predicted / self.expected - 1)


@dataclass(slots=True)
class World:
    """Jobs that are run every night; by how much their speeds and the rates of pools differ from what is stated."""

    store: StateStore
    seed: int
    count: int = 6
    learns: bool = True
    nights: list[JobNight] = field(default_factory=list)
    jobs: tuple[Job, ...] = ()
    _speeds: dict[tuple[str, str], float] = field(default_factory=dict)
    _rates: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        self.jobs = tuple(_a_job(n) for n in range(self.count))
        for job in self.jobs:
            for point in job.workload.profile:
                self._speeds[job.name, point.accelerator] = point.steps_per_hour * _up_to_twice(chance)
        for each in BOOK.offers:
            self._rates[each.region, each.instance_type, each.market.value] = _up_to_twice(chance)

    def play(self, nights: int) -> None:
        first = max((each.night for each in self.nights), default=0) + 1
        for night in range(first, first + nights):
            now = NOW + timedelta(days=night)
            runs = read_runs(self.store, BOOK, now)
            plan = make_plan(
                PlanRequest(
                    jobs=self.jobs,
                    book=BOOK,
                    limits=make_limits({}),
                    now=now,
                    slot=timedelta(hours=12),
                    gap=0.01,
                    resolve_limits=0,
                    experience=learn(runs, self.jobs, BOOK, now) if self.learns else None,
                )
            )
            assert not plan.unplaced
            self.store.plans.put_jobs({job.digest: job_json(job) for job in self.jobs}, now)
            for job in self.jobs:
                self._play_job(night, plan, job)

    def errors(self, night: int) -> float:
        return median(each.error for each in self.nights if each.night == night)

    def spent(self, nights: Sequence[int]) -> tuple[float, float]:
        """Return the predicted and the real cost of the steps of these nights."""
        chosen = [each for each in self.nights if each.night in nights]
        return sum(each.predicted * each.steps for each in chosen), sum(each.usd for each in chosen)

    def _play_job(self, night: int, plan: Plan, job: Job) -> None:
        lines = [line for line in plan.lines if line.job == job.name]
        summary = next(each for each in plan.jobs if each.job == job.name)
        assert summary.usd_per_step is not None
        expected = sum(self._expected_usd(job, line) for line in lines) / sum(line.steps for line in lines)
        paid = sum(self._run(night, job, line, number) for number, line in enumerate(lines))
        steps = sum(line.steps for line in lines)
        self.nights.append(JobNight(night, job.name, summary.usd_per_step.dollars(), expected, paid, steps))

    def _risk(self, job: Job, line: Line) -> GangRunRisk:
        """Return the true figures of the job on this line; checkpoints are as the book's rate makes them."""
        assert job.checkpoint is not None
        machine = BOOK.machine(line.cloud, line.instance_type)
        assert machine is not None
        own = (line.region, line.instance_type, line.market)
        sold = next(o for o in BOOK.offers if (o.region, o.instance_type, o.market.value) == own)
        stated = BOOK.risk.gang(sold, machine, line.machines)
        stall, extra = write_hours(job.checkpoint)
        return GangRunRisk(
            nominal_steps_per_hour=self._speeds[job.name, line.accelerator],
            relative_error=0.0,
            interruptions_per_hour=stated.per_hour_over(TOLD_HOURS) * self._rates[own],
            recovery_hours=stated.recovery_hours,
            startup_hours=job.startup / _HOUR,
            interval_hours=interval_hours(job.checkpoint, stated.per_hour_over(TOLD_HOURS)),
            stall_hours=stall,
            loss_extra_hours=extra,
            resumes=True,
        )

    def _expected_usd(self, job: Job, line: Line) -> float:
        risk = self._risk(job, line)
        hours = line.steps / goodput.expected_steps_per_hour(risk) * goodput.billed_share(risk)
        return line.usd_per_hour.dollars() * (hours + risk.startup_hours * line.startup)

    def _run(self, night: int, job: Job, line: Line, number: int) -> float:
        """Run the steps of a line until they are done, attempt by attempt; return what it cost."""
        risk = self._risk(job, line)
        chance = random.Random(f"{self.seed} {night} {job.name} {number}")
        clock, saved, paid, tries = line.start, 0.0, 0.0, 0
        while True:
            tries += 1
            speed = risk.nominal_steps_per_hour * math.exp(chance.gauss(0, _NOISE))
            needed = (line.steps - saved) / speed * (1 + risk.stall_hours / risk.interval_hours)
            lasts = chance.expovariate(risk.interruptions_per_hour)
            held = min(needed, lasts)
            segment = risk.interval_hours + risk.stall_hours
            done = held >= needed
            reached = line.steps if done else saved + speed * risk.interval_hours * (held / segment)
            kept = line.steps if done else saved + speed * risk.interval_hours * (held // segment)
            met = clock + job.startup
            gone = met + held * _HOUR
            self._record(f"{job.name}-{night}-{number}-{tries}", job, line, (clock, met, gone), saved, reached, speed)
            if not done:
                self._interrupt(f"{job.name}-{night}-{number}-{tries}")
            paid += line.usd_per_hour.dollars() * ((gone - clock) / _HOUR)
            if done:
                return paid
            saved = kept
            clock = gone + risk.recovery_hours * _HOUR

    def _record(
        self,
        name: str,
        job: Job,
        line: Line,
        times: tuple[datetime, datetime, datetime],
        first: float,
        last: float,
        speed: float,
    ) -> None:
        made, met, gone = times
        self.store.attempts.add(
            attempt(
                name,
                job=job.name,
                job_digest=job.digest,
                cloud=line.cloud,
                region=line.region,
                machines=line.machines,
                created_at=made,
                made_at=made,
                met_at=met,
                gone_at=gone,
                phase=Phase.FINISHED,
                reason="finished",
                first_step=int(first),
                last_step=int(last),
                usd_per_hour=line.usd_per_hour,
                at_risk_usd=Usd(0),
                max_usd_per_hour=UsdPerHour(line.usd_per_hour.nanos),
            ),
            [
                node(
                    name,
                    rank,
                    zone=line.zone,
                    instance_type=line.instance_type,
                    market=Market(line.market),
                    accelerator=line.accelerator,
                    made_at=made,
                    gone_at=gone,
                    heard_at=gone,
                    step=int(last),
                    step_seconds=3600 / speed,
                )
                for rank in range(line.machines)
            ],
        )

    def _interrupt(self, name: str) -> None:
        self.store.attempts.update(name, lambda a: replace(a, phase=Phase.FAILED, reason="interrupted"))


def _a_job(number: int) -> Job:
    speed = 400.0 + 60 * number
    points = [
        {"accelerator": "H100", "count": 8, "steps_per_hour": speed},
        {"accelerator": "A100-80GB", "count": 8, "steps_per_hour": speed * (0.35 + 0.02 * number)},
    ]
    return make_job(
        {
            "name": f"job-{number}",
            "steps": 2000 + 400 * number,
            "options": [("H100", 8), ("A100-80GB", 8)],
            "profile": points,
            "startup_minutes": 12,
            "checkpoint": {"size_gib": 60},
        }
    )


def _up_to_twice(chance: random.Random) -> float:
    return float(2 ** chance.uniform(-1, 1))


def test_after_a_few_nights_predictions_are_near_the_truth(tmp_path: Path) -> None:
    with open_state(tmp_path / "state.db", NOW) as store:
        world = World(store, seed=1, count=2)
        world.play(4)
    assert world.errors(1) > 0.2
    assert world.errors(4) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_predictions_are_within_a_tenth_from_the_tenth_night_on(tmp_path: Path, seed: int) -> None:
    """Also of the money: what nights 10 to 30 cost is what was predicted, within a tenth."""
    with open_state(tmp_path / "state.db", NOW) as store:
        world = World(store, seed=seed)
        world.play(30)
    late = range(10, 31)
    assert max(world.errors(night) for night in late) < 0.1
    predicted, paid = world.spent(late)
    assert predicted == pytest.approx(paid, rel=0.1)


@pytest.mark.slow
def test_without_learning_predictions_stay_as_wrong_as_they_were(tmp_path: Path) -> None:
    with open_state(tmp_path / "state.db", NOW) as store:
        world = World(store, seed=1, learns=False)
        world.play(10)
    assert median(world.errors(night) for night in range(1, 11)) > 0.2
