"""What agents say of steps and checkpoints is believed as far as it can be true, and what cannot be ends nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.controller.history.attempt_history import history_of
from router.coordinator.bounds import MAX_SPEEDUP, MIN_ELAPSED_SECONDS, ReportBounds
from router.coordinator.metrics import StateCounters
from router.coordinator.saves import save_answers
from router.deploy.deploy_settings import Deploy
from tests.support.coordinations import ATTEMPT, NOW, Clock, Scene, scene

STEPS, PER_HOUR = 100_000, 3600.0
STORE = "s3://bucket/ckpt/job-1"
TAKEN: tuple[int, dict[str, Any]] = (200, {})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gang(tmp_path: Path, clock: Clock) -> Iterator[Scene]:
    """Its job has 100,000 steps, planned at one a second."""
    with scene(tmp_path, 2, clock=clock, fresh_seconds=0, stores=lambda job: {f"s3://bucket/ckpt/{job}"}) as made:
        job = {"steps": STEPS, "workload": {"profile": [{"steps_per_hour": PER_HOUR / 2}]}}
        made.store.plans.put_jobs({"d": json.dumps(job)}, NOW)
        lines = [{"job": "job-1", "steps_per_hour": PER_HOUR}, {"job": "other", "steps_per_hour": 1e12}]
        made.store.plans.put_plan("p", json.dumps({"lines": lines}), NOW)
        made.store.attempts.update(ATTEMPT, lambda attempt: replace(attempt, met_at=NOW))
        made.say(0, "heartbeat")
        made.say(1, "heartbeat")
        yield made


def manifest(step: int) -> str:
    return f"{STORE}/step-{step:08d}.manifest.json"


def saved(gang: Scene, step: int, **more: Any) -> tuple[int | None, str | None]:
    assert (
        gang.say(0, "saved", **{"id": "c-1", "step": step, "manifest": manifest(step), "seconds": 1.0, **more}) == TAKEN
    )
    return gang.records[0].saved_step, gang.records[0].saved_manifest


def test_what_can_be_true_is_taken(gang: Scene, clock: Clock) -> None:
    clock.move(600)
    assert saved(gang, 600) == (600, manifest(600))
    clock.move(6000)
    assert saved(gang, 90_000, id="c-2") == (90_000, manifest(90_000))
    assert gang.journal("not_believed") == []
    assert history_of(gang.store, gang.attempt).before.step == 90_000


@pytest.mark.parametrize(
    ("step", "more", "why"),
    [
        (2**62, {}, f"is more than the job's {STEPS}"),
        (STEPS + 1, {}, f"is more than the job's {STEPS}"),
        (STEPS, {}, "as fast as was planned"),
        (10, {"manifest": "/etc/passwd"}, "no JSON file"),
        (10, {"manifest": "/etc/passwd.json"}, "not below the job's store"),
        (10, {"manifest": f"{STORE}/../other/step-00000010.manifest.json"}, "no absolute path or URL"),
        (10, {"manifest": f"{STORE}-2/step-00000010.manifest.json"}, "not below the job's store"),
        (10, {"manifest": f"http://bucket/ckpt/job-1/{10}.json"}, "no absolute path or URL"),
        (10, {"manifest": "ckpt/job-1/10.json"}, "no absolute path or URL"),
        (10, {"manifest": f"{manifest(10)}?endpoint_override=elsewhere"}, "no plain URL"),
    ],
)
def test_what_cannot_be_true_is_noted_and_ends_nothing(
    gang: Scene, clock: Clock, step: int, more: dict[str, Any], why: str
) -> None:
    """It would be the resume point of the next gang, and stand in the ledger for ever."""
    clock.move(60)
    assert saved(gang, 50, id="c-0") == (50, manifest(50))
    for _ in range(3):
        assert saved(gang, step, **more) == (50, manifest(50))
    beat = {"saved_step": step, "saved_manifest": more.get("manifest", manifest(step)), "step": step}
    assert gang.say(0, "heartbeat", **beat)[0] == 200
    gang.attendance.flush()
    node = gang.records[0]
    assert (node.saved_step, node.saved_manifest, node.heard_at) == (50, manifest(50), clock())
    assert (node.step or 0) <= STEPS
    (said,) = gang.journal("not_believed")
    assert (said["rank"], why in str(said["why"])) == (0, True), said
    before = history_of(gang.store, gang.attempt).before
    assert (before.step, before.manifest) == (50, manifest(50))
    # Whoever waits for the checkpoint hears that there is none, and the next order is answered as ever.
    answers = save_answers(gang.store, ATTEMPT, "c-1")
    assert (answers.is_saved, why in answers.failed[0]) == (False, True)
    assert saved(gang, 55, id="c-2") == (55, manifest(55))
    counters = StateCounters(gang.store)
    counters.look()
    assert (counters.totals.not_believed, counters.totals.failed_saves) == (1, 1)


def test_a_rank_cannot_fill_the_journal_with_what_nobody_believes(gang: Scene) -> None:
    for step in range(2**50, 2**50 + 50):
        assert gang.say(0, "heartbeat", step=step)[0] == 200
        assert gang.say(0, "heartbeat", saved_step=5, saved_manifest=f"/etc/{step}")[0] == 200
    assert [sorted(entry) for entry in gang.journal("not_believed")] == [["rank", "why"]] * 2


def test_where_nothing_is_known_of_the_job_steps_are_believed(tmp_path: Path, clock: Clock) -> None:
    """As plans and jobs from before they were kept."""
    with scene(tmp_path, 1, clock=clock, fresh_seconds=0) as gang:
        assert gang.say(0, "saved", id="", step=10**9, manifest="/mnt/b/1.json") == TAKEN
        assert gang.records[0].saved_step == 10**9
        assert gang.say(0, "saved", id="", step=10**9 + 1, manifest="/etc/passwd") == TAKEN
        assert gang.records[0].saved_step == 10**9


@given(since=st.integers(0, STEPS), seconds=st.floats(-1e6, 1e7), rate=st.floats(1e-3, 100), share=st.floats(0, 1))
def test_an_honest_training_is_believed(since: int, seconds: float, rate: float, share: float) -> None:
    """However far it came at up to its planned speed since it last saved."""
    bounds = ReportBounds(STEPS, rate)
    step = min(STEPS, since + int(share * rate * max(seconds, 0.0)))
    assert bounds.of_step(step, since, seconds) == ""
    most = since + MAX_SPEEDUP * rate * max(seconds, MIN_ELAPSED_SECONDS)
    assert (bounds.of_step(int(most) + 1, since, seconds) == "") is False


def test_stores_of_every_region_of_a_job() -> None:
    regions = {"us-east-1": {"checkpoint_url": "s3://east/x"}, "us-west-2": {}}
    deploy = Deploy.model_validate(
        {
            "clouds": {
                "aws": {"checkpoint_url": "s3://all/y", "regions": regions},
                "gcp": {},
                "sandbox": {"checkpoint_url": "file:///mnt/z"},
            }
        }
    )
    assert deploy.stores_of("job-1") == {"s3://east/x/job-1", "s3://all/y/job-1", "file:///mnt/z/job-1"}
    (bounds,) = [ReportBounds(stores=tuple(deploy.stores_of("job-1")))]
    assert bounds.of_manifest("/mnt/z/job-1/step-00000001.manifest.json") == ""
    assert bounds.of_manifest("file:///mnt/z/job-1/step-00000001.manifest.json") == ""
    assert bounds.of_manifest("file:///mnt/z/job-2/step-00000001.manifest.json") != ""
