"""A lost gang is replaced by what earlier nights measured, and not by what job and book state alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pricing.book import PriceBook
from pricing.places import Market
from pricing.pool_experience import memory_weight
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import history_of
from router.controller.history.run_records import EarlierRuns, ForgottenRuns, forget_runs
from router.controller.plans import store_limits
from router.controller.supervise.replanner import PendingGang, PlacementAccepted, Replanner
from router.jobs.job_json import job_json
from router.jobs.speed import Speed, gang_speed
from router.state.records import Attempt, Phase
from tests.bench.storm import site_of
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_job, make_limits
from tests.support.narrowed import present
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, NOW, attempt, node

DAY = timedelta(days=1)
H100, A100 = "p9.48xlarge", "g9.48xlarge"
#: Dollars a step as stated: H100 .20 and A100 .24. The alps cost 5 % more.
BOOK = book(
    [
        offer("aws/north-1", H100, "spot", "20"),
        offer("aws/alps-1", H100, "spot", "21"),
        offer("aws/north-1", A100, "spot", "14.4"),
    ]
)
STATED = {H100: 100.0, A100: 60.0}
USD_PER_HOUR = {(each.region, each.instance_type): each.usd_per_hour.dollars() for each in BOOK.offers}
JOB = make_job(
    {
        "name": "llama",
        "steps": 5000,
        "options": [("H100", 8), ("A100-80GB", 8)],
        "profile": [
            {"accelerator": "H100", "count": 8, "steps_per_hour": STATED[H100]},
            {"accelerator": "A100-80GB", "count": 8, "steps_per_hour": STATED[A100]},
        ],
        "checkpoint": {"size_gib": 100},
        "startup_minutes": 20,
    }
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    with open_state(tmp_path / "state.db", NOW) as store:
        store.plans.put_plan("p" * 64, f'{{"as_of": "{NOW.isoformat()}", "jobs": []}}', NOW)
        store_limits(store, "p" * 64, make_limits({}))
        store.plans.put_jobs({JOB.digest: job_json(JOB)}, NOW)
        yield replace(site_of(store, tmp_path), clock=lambda: NOW + HOUR / 2)


def ran(
    site: ControllerContext,
    name: str,
    machine: str,
    steps_per_hour: float,
    begun: datetime,
    *,
    hours: float = 4,
    region: str = "north-1",
    interrupted: bool = False,
    **more: Any,
) -> Attempt:
    """One machine that trained for some hours at this speed."""
    gone = begun + hours * HOUR
    fields: dict[str, Any] = {
        "job_digest": JOB.digest,
        "machines": 1,
        "region": region,
        "created_at": begun,
        "made_at": begun,
        "met_at": begun,
        "gone_at": gone,
        "phase": Phase.FAILED if interrupted else Phase.FINISHED,
        "reason": "interrupted" if interrupted else "finished",
        "start": begun,
    }
    heard = node(
        name,
        instance_type=machine,
        accelerator="H100" if machine == H100 else "A100-80GB",
        market=Market.SPOT,
        made_at=begun,
        gone_at=gone,
        heard_at=gone,
        step=int(steps_per_hour * hours),
        step_seconds=3600 / steps_per_hour,
    )
    made = attempt(name, **{**fields, **more})
    site.store.attempts.add(made, [heard])
    return made


def lost_tonight(site: ControllerContext, machine: str = A100) -> PendingGang:
    """The job's gang of tonight, which trained as fast as stated and was lost."""
    tonight = ran(site, "tonight", machine, STATED[machine], NOW - 4 * HOUR, interrupted=True)
    return PendingGang(history_of(site.store, tonight))


def replacement(site: ControllerContext, pending: PendingGang, *, learns: bool = True) -> PlacementAccepted:
    earlier = EarlierRuns(site.store, site.clock) if learns else None
    (answer,) = Replanner(site, lambda: BOOK, earlier=earlier).replan([pending])
    assert isinstance(answer, PlacementAccepted), answer
    return answer


def machine_of(answer: PlacementAccepted) -> str:
    return answer.request.choices[0].seats[0].instance_type


def stated_speed(job: Any, machine: str, known: PriceBook = BOOK) -> float:
    kind = present(known.machine("aws", machine))
    accelerator = present(known.accelerator(kind.accelerator))
    found = gang_speed(job.workload, kind, 1, accelerator)
    assert isinstance(found, Speed)
    return found.steps_per_hour


def test_a_replacement_leaves_aside_the_accelerator_that_earlier_ran_at_half_its_estimate(
    site: ControllerContext,
) -> None:
    """H100 is cheapest as stated and ran at half of that last night: a step costs .40 there, and .24 on A100."""
    true_speed = {H100: STATED[H100] / 2, A100: STATED[A100]}
    ran(site, "last-night", H100, true_speed[H100], NOW - DAY)
    pending = lost_tonight(site)
    forgetful, learned = replacement(site, pending, learns=False), replacement(site, pending)
    assert (machine_of(forgetful), machine_of(learned)) == (H100, A100)
    usd_per_step = [
        USD_PER_HOUR[each.request.choices[0].region, machine_of(each)] / true_speed[machine_of(each)]
        for each in (forgetful, learned)
    ]
    assert usd_per_step == pytest.approx([0.40, 0.24])
    assert (
        learned.request.choices[0].end > forgetful.request.choices[0].end
    )  # it books the hours that the steps really take


def test_a_replacement_avoids_the_pool_that_earlier_gangs_lost(site: ControllerContext) -> None:
    """North is cheaper, and interrupted eight gangs after a quarter of an hour each."""
    for number in range(8):
        ran(site, f"n-{number}", H100, 100, NOW - (number + 1) * DAY, hours=0.25, interrupted=True)
    pending = lost_tonight(site)
    assert replacement(site, pending, learns=False).request.choices[0].region == "north-1"
    assert replacement(site, pending).request.choices[0].region == "alps-1"


def test_it_saves_as_often_as_the_counted_interruptions_ask_for(site: ControllerContext) -> None:
    """A100 is lost as often as H100, so that the choice is by speed; the interval follows the learned rate."""
    ran(site, "last-night", H100, 50, NOW - DAY)
    for number in range(6):
        ran(site, f"n-{number}", A100, 60, NOW - (number + 1) * DAY, hours=1, interrupted=True)
    pending = lost_tonight(site)
    site.store.attempts.change(pending.last, checkpoint_seconds=None)
    only = BOOK.with_offers([each for each in BOOK.offers if each.instance_type == A100])
    seconds = []
    for earlier in (None, EarlierRuns(site.store, site.clock)):
        (answer,) = Replanner(site, lambda: only, earlier=earlier).replan([pending])
        assert isinstance(answer, PlacementAccepted)
        seconds.append(answer.request.checkpoint_seconds or 0)
    assert 0 < seconds[1] < 0.7 * seconds[0]


def test_the_jobs_own_gang_of_tonight_counts_before_earlier_nights(site: ControllerContext) -> None:
    """Ten earlier runs had 50 on H100; tonight's gang had 100, and 20 is what another job's shape would say."""
    for number in range(10):
        ran(site, f"n-{number}", H100, 50, NOW - (number + 1) * DAY)
    ran(site, "other", H100, 20, NOW - DAY, job_digest="not stored")
    pending = lost_tonight(site, H100)
    replanner = Replanner(site, lambda: BOOK, earlier=EarlierRuns(site.store, site.clock))
    known = replanner.left_of(pending.chain)
    assert stated_speed(known, H100) == pytest.approx(100, rel=1e-3)
    assert stated_speed(known, A100) == 60
    assert machine_of(replacement(site, pending)) == H100


def test_earlier_runs_are_read_again_every_hour_and_what_is_forgotten_does_not_count(site: ControllerContext) -> None:
    moment = [NOW + HOUR / 2]
    earlier = EarlierRuns(site.store, lambda: moment[0])
    assert earlier.speeds(JOB, BOOK) == ()
    ran(site, "last-night", H100, 50, NOW - DAY)
    assert earlier.speeds(JOB, BOOK) == ()
    moment[0] = NOW + HOUR
    (known,) = earlier.speeds(JOB, BOOK)
    assert (known.machine.instance_type, known.steps_per_hour, known.source) == (
        H100,
        50.0,
        f"1 earlier run, last {NOW - DAY + 4 * HOUR:%Y-%m-%d}",
    )
    (pool,) = earlier.pools(BOOK).pools
    assert (pool.region, pool.interruptions) == ("north-1", 0)
    assert pool.hours == pytest.approx(4 * memory_weight(NOW - DAY + 4 * HOUR, moment[0]), rel=0.01)
    assert pool.exposure == pytest.approx(pool.hours / 4 * math.log1p(4 / 0.6), rel=0.01)
    forget_runs(site.store, ForgottenRuns("llama", moment[0], "me"))
    moment[0] += HOUR
    assert earlier.speeds(JOB, BOOK) == ()
