"""The month of ``examples/showback``: a made-up October and November 2026 of five teams, played on the stage, so that
its ledger is what metering, booking and closing make of it. Nothing is random: the same files come out again.

``python -m tests.support.example_month FOLDER`` writes the files of the example; ``--home`` makes the state itself,
which knows machines, deadlines and accepted quotes besides.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from pricing.places import Market
from router.jobs.spec import Job
from router.ledger.month import Month
from tests.support.example_bills import write_bills
from tests.support.example_quotes import Promise, keep_promises
from tests.support.made_up_jobs import simple_job
from tests.support.metered_stage import HOUR, MINUTE, Life, Place, Stage, planned, stage
from tests.support.new_state import open_state

LEDGER = "ledger.backup"
OCTOBER, NOVEMBER = Month(2026, 10), Month(2026, 11)
P5, A3 = "p5.48xlarge", "a3-highgpu-8g"
EAST = Place("aws", "us-east-1", "us-east-1b", P5, Market.SPOT, "24", "55.04")
WEST = Place("aws", "us-west-2", "us-west-2a", P5, Market.SPOT, "27.5", "55.04")
SURE = Place("aws", "us-east-1", "us-east-1d", P5, Market.ON_DEMAND, "55.04", "55.04")
BLOCK = Place("aws", "us-east-2", "us-east-2a", P5, Market.RESERVED, "55.04", "55.04")
IOWA = Place("gcp", "us-central1", "us-central1-a", A3, Market.SPOT, "28.8", "88.25")
EUROPE = Place("gcp", "europe-west4", "europe-west4-b", A3, Market.SPOT, "30.4", "97.1")
DUBLIN = Place("azure", "northeurope", "", "ND96isr-H100-v5", Market.ON_DEMAND, "72.5", "72.5")
HOLLAND = Place("azure", "westeurope", "", "ND96isr-H100-v5", Market.SPOT, "31.25", "78.4")
_FINISHED, _TAKEN = "finished", "interrupted"
_DISK = 500


def _job(
    name: str, team: str, project: str | None, cost_center: str, steps: int, speed: int, deadline: str, phase: str = ""
) -> Job:
    more: dict[str, Any] = {"project": project, "cost_center": cost_center, "deadline": deadline}
    if phase:
        more["labels"] = {"phase": phase}
    more |= {"run": {"command": "python train.py"}, "checkpoint": {"size_gib": 130}, "startup_minutes": 12}
    return simple_job(name, ("H100", 8), steps=steps, steps_per_hour=speed, team=team, **more)


WHISPER = _job("whisper-nightly", "speech", "asr", "cc-11", 4500, 1000, "+9h", "training")
TTS = _job("tts-voices", "speech", "tts", "cc-11", 9000, 1000, "2026-11-18T12:00Z", "training")
ASSISTANT = _job("assistant-70b-sft", "research", "assistants", "cc-30", 20000, 500, "2026-11-05T02:00Z", "fine-tuning")
SMALL = _job("assistant-8b-sft", "research", "assistants", "cc-30", 15000, 500, "2026-10-15T12:00Z", "fine-tuning")
CODE = _job("code-34b-pretrain", "research", "code", "cc-31", 36000, 500, "2026-11-13T12:00Z", "pretraining")
SWEEP = _job("lr-sweep", "research", "sweeps", "cc-31", 6000, 1000, "+24h", "sweep")
RETINA = _job("retina-scan", "vision", "medical", "cc-21", 48000, 1000, "2026-11-16T00:00Z", "pretraining")
EMBED = _job("embed-catalogue", "search", "catalogue", "cc-40", 18000, 1000, "+48h", "pretraining")
SMOKE = _job("smoke-cluster", "platform", None, "cc-50", 100, 1000, "+6h")
JOBS = (WHISPER, TTS, ASSISTANT, SMALL, CODE, SWEEP, RETINA, EMBED, SMOKE)


class ExampleMonth:
    """What happened, in the order in which it came to the books."""

    def __init__(self, playing: Stage) -> None:
        self._stage = playing
        self.plans: dict[str, str] = {}

    def play(self) -> None:
        """Both months; October is closed on the fourth of November."""
        for number in range(31):
            self._night(date(2026, 10, 1) + timedelta(days=number))
        self._small()
        late = self._plan(SWEEP, IOWA, datetime(2026, 10, 30, 10, tzinfo=UTC), 3)
        self._stage.store.periods.close(OCTOBER, who="anna@finance", at=_at(4, 9))
        self._late(late)
        for number in range(29):
            self._night(date(2026, 11, 1) + timedelta(days=number))
        for play in (self._assistant, self._embed, self._retina, self._code, self._tts, self._sweep, self._smoke):
            play()

    def _plan(self, job: Job, place: Place, start: datetime, hours: str | int, machines: int = 1) -> str:
        line = planned(job, place, start, hours, machines=machines, steps=job.steps)
        self.plans[job.name] = self._stage.accept(start - HOUR, [job], [line])
        return self.plans[job.name]

    def _run(self, plan: str, job: Job, place: Place, machines: int = 1, **life: Any) -> None:
        own = {} if place.market is Market.RESERVED else {"disk_gib": _DISK}
        self._stage.run(plan, job, place, Life(**{**own, "gone": life.get("ended"), **life}), machines)

    def _night(self, day: date) -> None:
        """Speech trains every night for four to five hours on one machine, and is taken about once in ten nights."""
        start = datetime(day.year, day.month, day.day, 21, tzinfo=UTC)
        dearer = 150 if day.month == NOVEMBER.month else 0
        place = EAST.at(f"{(2340 + day.day * 7 % 5 * 30 + dearer) / 100:.2f}")
        plan = self._plan(WHISPER, place, start, "19/4")
        met = start + 9 * MINUTE
        if day.day in (6, 14, 23):
            self._taken_night(plan, place, start, met)
            return
        hours = timedelta(hours=4) + day.day * 7 % 5 * 9 * MINUTE
        if day == date(2026, 11, 19):
            hours = timedelta(hours=11)  # twice the data, and nobody had said so: past the deadline too
        ended = met + hours
        self._run(
            plan,
            WHISPER,
            place,
            made=start,
            met=met,
            ended=ended,
            gone=ended + 3 * MINUTE,
            step=4500,
            saved=4500,
            saving=[3 * MINUTE] * 2,
        )

    def _taken_night(self, plan: str, place: Place, start: datetime, met: datetime) -> None:
        gone = met + 123 * MINUTE
        self._run(
            plan,
            WHISPER,
            place,
            made=start,
            met=met,
            ended=gone,
            reason=_TAKEN,
            step=1800,
            saved=1500,
            step_seconds=3.6,
            saving=[3 * MINUTE],
        )
        again = gone + 6 * MINUTE
        ended = again + 201 * MINUTE
        self._run(
            plan,
            WHISPER,
            WEST,
            made=again,
            met=again + 12 * MINUTE,
            ended=ended,
            gone=ended + 3 * MINUTE,
            first=1500,
            step=4500,
            saved=4500,
            copied=_copy("s3://made-up-east", "s3://made-up-west", EAST, 12, "0.24"),
        )

    def _small(self) -> None:
        """Research in October: two machines for thirty hours, as planned."""
        start = datetime(2026, 10, 13, 8, tzinfo=UTC)
        plan = self._plan(SMALL, IOWA, start, 30, machines=2)
        ended = start + timedelta(hours=30)
        self._run(
            plan,
            SMALL,
            IOWA,
            2,
            made=start,
            met=start + 12 * MINUTE,
            ended=ended,
            step=15000,
            saved=15000,
            saving=[3 * MINUTE] * 6,
        )

    def _late(self, plan: str) -> None:
        """A machine of October, seen to be gone when that was closed: November's books correct October."""
        start = datetime(2026, 10, 30, 10, tzinfo=UTC)
        ended = start + timedelta(hours=3)
        self._run(
            plan, SWEEP, IOWA, made=start, met=start + 6 * MINUTE, ended=ended, step=3000, saved=3000, seen=_at(5, 8)
        )

    def _assistant(self) -> None:
        """Four machines, taken three times, over four regions, with a start that failed, and on demand in the end."""
        plan = self._plan(ASSISTANT, IOWA, _at(3, 8), 40, machines=4)
        self._run(
            plan,
            ASSISTANT,
            IOWA,
            4,
            made=_at(3, 8),
            met=_at(3, 8.2),
            ended=_at(3, 20.2),
            reason=_TAKEN,
            step=5750,
            saved=5500,
            step_seconds=7.2,
            saving=[3 * MINUTE] * 4,
        )
        self._run(plan, ASSISTANT, IOWA, 2, made=_at(3, 20.25), gone=_at(3, 20.45), reason="short")
        self._run(
            plan,
            ASSISTANT,
            EUROPE,
            4,
            made=_at(3, 20.5),
            met=_at(3, 20.8),
            ended=_at(4, 13.8),
            reason=_TAKEN,
            first=5500,
            step=13900,
            saved=13600,
            step_seconds=7.2,
            saving=[3 * MINUTE] * 5,
            copied=_copy("gs://made-up-us", "gs://made-up-eu", IOWA, 140, "11.2"),
        )
        self._run(
            plan,
            ASSISTANT,
            WEST,
            4,
            made=_at(4, 14),
            met=_at(4, 14.4),
            ended=_at(4, 18.4),
            reason=_TAKEN,
            first=13600,
            step=15400,
            saved=15100,
            step_seconds=7.2,
            saving=[3 * MINUTE],
            copied=_copy("gs://made-up-eu", "s3://made-up-west", EUROPE, 140, "16.8"),
        )
        self._run(
            plan,
            ASSISTANT,
            SURE,
            4,
            made=_at(4, 18.5),
            met=_at(4, 18.7),
            ended=_at(5, 4.5),
            gone=_at(5, 5),
            first=15100,
            step=20000,
            saved=20000,
            saving=[3 * MINUTE] * 3,
            copied=_copy("s3://made-up-west", "s3://made-up-east", WEST, 140, "2.8"),
        )

    def _embed(self) -> None:
        """Planned on spot in Holland; the first time it was sold out, and ran on demand in Ireland. Billed in euros."""
        plan = self._plan(EMBED, HOLLAND, _at(5, 6), 18)
        self._run(plan, EMBED, DUBLIN, made=_at(5, 6), met=_at(5, 6.2), ended=_at(5, 24), step=18000, saved=18000)
        plan = self._plan(EMBED, HOLLAND, _at(19, 6), 18)
        self._run(plan, EMBED, HOLLAND, made=_at(19, 6), met=_at(19, 6.2), ended=_at(19, 22), step=18000, saved=18000)

    def _retina(self) -> None:
        """A week's reservation of one machine, of which three runs use 48 hours of 168."""
        for begin, end in ((_at(9, 6), _at(9, 18)), (_at(11, 8), _at(12, 8)), (_at(14, 10), _at(14, 22))):
            hours = (end - begin) // HOUR
            plan = self._plan(RETINA, BLOCK, begin, hours)
            steps = hours * 1000
            self._run(plan, RETINA, BLOCK, made=begin, met=begin + 6 * MINUTE, ended=end, step=steps, saved=steps)

    def _code(self) -> None:
        """Planned for sixty hours, took seventy-two: slower than its profile said; taken once."""
        place = EAST.at("24.9")
        plan = self._plan(CODE, place, _at(10, 6), 60, machines=2)
        self._run(
            plan,
            CODE,
            place,
            2,
            made=_at(10, 6),
            met=_at(10, 6.2),
            ended=_at(12, 12),
            reason=_TAKEN,
            step=26600,
            saved=26400,
            step_seconds=7.2,
            saving=[3 * MINUTE] * 12,
        )
        self._run(
            plan,
            CODE,
            place,
            2,
            made=_at(12, 12.5),
            met=_at(12, 12.7),
            ended=_at(13, 6.5),
            gone=_at(13, 6.6),
            first=26400,
            step=36000,
            saved=36000,
            saving=[3 * MINUTE] * 4,
        )

    def _tts(self) -> None:
        plan = self._plan(TTS, IOWA, _at(17, 8), 10, machines=2)
        self._run(
            plan,
            TTS,
            IOWA,
            2,
            made=_at(17, 8),
            met=_at(17, 8.2),
            ended=_at(17, 17.3),
            step=9000,
            saved=9000,
            saving=[3 * MINUTE] * 2,
        )

    def _sweep(self) -> None:
        """Done at four in the afternoon; whoever kept the machine to look at it went home."""
        plan = self._plan(SWEEP, IOWA, _at(20, 10), 6)
        self._run(
            plan,
            SWEEP,
            IOWA,
            made=_at(20, 10),
            met=_at(20, 10.1),
            ended=_at(20, 16),
            gone=_at(21, 9),
            step=6000,
            saved=6000,
        )

    def _smoke(self) -> None:
        """Two of four machines came, and went when the others did not."""
        plan = self._plan(SMOKE, HOLLAND, _at(24, 14), 1, machines=4)
        self._run(plan, SMOKE, HOLLAND, 2, made=_at(24, 14), gone=_at(24, 14.3), reason="short")


def make_home(home: Path) -> Stage:
    """The state as it is after both months, in ``home``; closed again, what was played is in the stage."""
    with stage(home, datetime(2026, 10, 1, tzinfo=UTC)) as playing:
        month = ExampleMonth(playing)
        month.play()
        # One was kept, and one cost more than it said.
        code = Promise(CODE, month.plans[CODE.name], EAST.at("24.9"), 2, _at(10, 6), 60 * HOUR, "2950", "3380")
        voices = Promise(TTS, month.plans[TTS.name], IOWA, 2, _at(17, 8), 10 * HOUR, "540", "590")
        keep_promises(home, (code, voices))
    return playing


def make_files(folder: Path) -> None:
    """The ledger and the bills of the example."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        played = make_home(home)
        (folder / LEDGER).unlink(missing_ok=True)
        with open_state(home / "state.db", NOVEMBER.ends) as store:
            store.backups.write(folder / LEDGER)
    write_bills(folder, played.machines)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) not in (1, 2) or arguments[1:] not in ([], ["--home"]):
        print("python -m tests.support.example_month FOLDER [--home]", file=sys.stderr)
        return 2
    (make_home if arguments[1:] else make_files)(Path(arguments[0]))
    return 0


def _at(day: int, hour: float = 0) -> datetime:
    """Of November; hours in steps of three minutes."""
    return NOVEMBER.begins + timedelta(days=day - 1, minutes=round(hour * 60))


def _copy(store: str, to: str, origin: Place, gigabytes: int, usd: str) -> dict[str, object]:
    return {
        "from": store, "to": to, "origin": f"{origin.cloud}/{origin.region}", "bytes": gigabytes * 10**9,
        "seconds": 600, "usd": usd, "price_as_of": "2026-11-01", "price_source": "made up",
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
