"""A night under way, put into a state: gangs of two teams that train, wait, are silent or done, with their plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pricing.money import UsdPerHour
from pricing.places import Market
from router.app.queries.context import QueryContext
from router.jobs.job_json import job_json
from router.state.records import NoticeRecord, Phase
from router.state.store import StateStore
from tests.support.console import query_context
from tests.support.example_month import EAST, IOWA, SWEEP, TTS, WEST, WHISPER
from tests.support.metered_stage import HOUR, MINUTE, Life, planned, stage
from tests.support.state_values import attempt, node

NOW = datetime(2026, 11, 25, 22, 30, tzinfo=UTC)
ODD = "<script>alert(1)</script>/a b?c#d"
ODD_TEAM = "<b>team</b>"


@contextmanager
def played_night(folder: Path) -> Iterator[QueryContext]:
    """Make the state in ``folder`` and open a context that asks it, at the moment of the night."""
    play_night(folder)
    with query_context(folder, clock=lambda: NOW) as opened:
        yield opened


def play_night(folder: Path, *, odd: bool = True) -> dict[str, str]:
    """Make the state in ``folder``; return the ids of attempts by name of the job, the newest of each."""
    start = datetime(2026, 11, 25, 18, tzinfo=UTC)
    with stage(folder, start) as playing:
        plans = {
            job.name: playing.accept(start - HOUR, [job], [planned(job, place, start, 6, steps=job.steps)])
            for job, place in ((WHISPER, EAST), (TTS, IOWA), (SWEEP, WEST))
        }
        taken = playing.run(
            plans[WHISPER.name], WHISPER, EAST,
            Life(made=start, met=start + 9 * MINUTE, ended=start + 2 * HOUR, gone=start + 2 * HOUR + 2 * MINUTE,
                 reason="interrupted", step=1800, saved=1500, step_seconds=3.6, saving=[3 * MINUTE], disk_gib=500),
        )  # fmt: skip
        playing.store.notices.add(
            NoticeRecord(taken.id, 0, "n1", "interruption", "imds", 120.0, "", start + 2 * HOUR - 2 * MINUTE)
        )
        waiting = playing.run(
            plans[TTS.name], TTS, IOWA,
            Life(made=start, met=start + 9 * MINUTE, ended=NOW - 20 * MINUTE, gone=NOW - 19 * MINUTE,
                 reason="interrupted", step=3000, saved=2800, step_seconds=3.6, disk_gib=500), 2,
        )  # fmt: skip
        done = playing.run(
            plans[SWEEP.name], SWEEP, WEST,
            Life(made=start, met=start + 6 * MINUTE, ended=start + 3 * HOUR, gone=start + 3 * HOUR,
                 step=6000, saved=6000),
        )  # fmt: skip
        store = playing.store
        again = resume_whisper(store, taken.id, datetime(2026, 11, 25, 20, 10, tzinfo=UTC), NOW)
        ids = {WHISPER.name: again, TTS.name: waiting.id, SWEEP.name: done.id}
        if odd:
            ids[ODD] = _odd(store)
    return ids


def resume_whisper(store: StateStore, before: str, made: datetime, now: datetime) -> str:
    """The second attempt of whisper, which was made then, and trains in the west now."""
    first = store.attempts.get(before)
    assert first is not None
    store.plans.put_jobs({WHISPER.digest: job_json(WHISPER)}, now)
    rate = UsdPerHour.parse("27.50")
    again = replace(
        first, id=f"{before[:-1]}9", number=2, choice=1, region="us-west-2", usd_per_hour=rate, created_at=made,
        made_at=made, met_at=made + 12 * MINUTE, gone_at=None, phase=Phase.RUNNING, result="", result_at=None,
        reason="", message="", resumes=before, first_step=1500, last_step=None,
        kept_step=None, version=1,
    )  # fmt: skip
    machine = node(
        again.id, zone="us-west-2a", usd_per_hour=rate, machine_id="i-0abc", made_at=made, agent="running",
        heard_at=now - timedelta(seconds=4), step=3100, saved_step=3000, step_seconds=3.6, market=Market.SPOT,
    )  # fmt: skip
    store.attempts.add(again, [machine])
    store.journal.note(again.id, "provisioning", made, disk_gib=500)
    store.journal.note(again.id, "met", made + 12 * MINUTE, ranks=1)
    for number in (1, 2):
        at = made + number * 55 * MINUTE
        store.journal.note(again.id, "saved", at, rank=0, saved_step=1500 + 750 * number, seconds=120, id="")
    return again.id


def _odd(store: StateStore) -> str:
    """A gang of another team with a name that is markup, silent for ten minutes."""
    rate = UsdPerHour.parse("72.505")
    one = attempt(
        "odd-1", job=ODD, team=ODD_TEAM, cloud="azure", region="northeurope", machines=2, phase=Phase.RUNNING,
        usd_per_hour=rate, made_at=NOW - 2 * HOUR, met_at=NOW - HOUR, created_at=NOW - 2 * HOUR, start=NOW - 2 * HOUR,
        message="<i>slow</i>",
    )  # fmt: skip
    made = {"made_at": NOW - 2 * HOUR, "market": Market.ON_DEMAND, "usd_per_hour": UsdPerHour.parse("36.2525")}
    quiet = node("odd-1", 0, agent="running", heard_at=NOW - 10 * MINUTE, step=7, **made)
    store.attempts.add(one, [quiet, node("odd-1", 1, agent="running", heard_at=NOW, step=7, **made)])
    store.notices.add(NoticeRecord("odd-1", 1, "n2", "health", "<u>", None, "<img src=x>", NOW - 5 * MINUTE))
    return one.id
