"""The jobs and the cloud of the fault campaign: trainings of seconds, on a cloud whose clock runs faster than life."""

from __future__ import annotations

import json
import random
import shlex
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.support.deployed import Site, Template, job
from tests.support.repository import ROOT


class Kind(StrEnum):
    """What comes about. The words are those of the table."""

    WATCHER_KILLED = "kill -9 the watcher"
    WATCHER_ASKED = "SIGTERM to the watcher"
    WATCHER_STOPPED = "watcher held up (SIGSTOP)"
    WATCHER_TWICE = "a second watcher"
    CLOCK_BACK = "clock set back"
    AGENT_KILLED = "kill -9 an agent"
    TRAINER_KILLED = "kill -9 a trainer"
    NODE_KILLED = "kill -9 a machine"
    NOTICE = "notice, then gone"
    FALSE_NOTICE = "notice, not gone"
    ZONE_DOWN = "zone down"
    REBALANCE = "rebalance hint"
    HEALTH = "health hint"
    TERRAFORM_KILLED = "kill -9 Terraform"
    STATE_EMPTY = "Terraform state of 0 bytes"
    UNWRITABLE = "checkpoints unwritable"
    DISK_FULL = "checkpoint disk full"
    TORN = "newest checkpoint torn"
    HALF_WRITTEN = "half a checkpoint, newer"


# How often each comes, in proportion.
_WEIGHTS = {
    Kind.WATCHER_KILLED: 6, Kind.WATCHER_ASKED: 3, Kind.WATCHER_STOPPED: 2, Kind.WATCHER_TWICE: 2, Kind.CLOCK_BACK: 2,
    Kind.AGENT_KILLED: 3, Kind.TRAINER_KILLED: 3, Kind.NODE_KILLED: 4, Kind.NOTICE: 6, Kind.FALSE_NOTICE: 1,
    Kind.ZONE_DOWN: 3, Kind.REBALANCE: 2, Kind.HEALTH: 2, Kind.TERRAFORM_KILLED: 3, Kind.STATE_EMPTY: 2,
    Kind.UNWRITABLE: 1, Kind.DISK_FULL: 1, Kind.TORN: 2, Kind.HALF_WRITTEN: 1,
}  # fmt: skip
_FEWEST, _MOST = 2, 4
_FOLLOWS = 0.4
# Of the training; the first steps are left to it, and the last: nothing can be taken from what has ended.
_FIRST_SHARE, _LAST_SHARE = 0.02, 0.9
# So often a fault comes while the one before is still dealt with.
_SOON_AFTER = 0.45
_SOON_S = (0.1, 5.0)


@dataclass(frozen=True)
class Fault:
    """One of them. It comes when ``share`` of a job's steps are done; ``after``: so many seconds after the one before,
    instead. ``job`` and ``rank`` are numbers, taken modulo what is there; ``seconds``: the notice's, or how long it
    lasts."""

    kind: Kind
    share: float
    after: float | None
    job: int
    rank: int
    seconds: float

    def __str__(self) -> str:
        when = f"at {self.share:.0%}" if self.after is None else f"{self.after:.1f} s later"
        return f"{when} {self.kind.value} (job {self.job}, rank {self.rank}, {self.seconds:.1f} s)"


@dataclass(frozen=True)
class Script:
    """All that happens in one world. ``follows``: `apply --follow` is the first watcher."""

    seed: int
    setting: Setting
    faults: tuple[Fault, ...]
    follows: bool


def script_of(seed: int) -> Script:
    dice = random.Random(seed)
    setting = SETTINGS[seed % len(SETTINGS)]
    count = dice.randint(_FEWEST, _MOST)
    shares = sorted(dice.uniform(_FIRST_SHARE, _LAST_SHARE) for _ in range(count))
    kinds = dice.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()), k=count)
    faults = []
    for number, (kind, share) in enumerate(zip(kinds, shares, strict=True)):
        soon = number > 0 and dice.random() < _SOON_AFTER
        after = round(dice.uniform(*_SOON_S), 2) if soon else None
        faults.append(Fault(kind, share, after, dice.randrange(8), dice.randrange(8), _seconds(kind, dice)))
    return Script(seed, setting, tuple(faults), follows=dice.random() < _FOLLOWS)


def _seconds(kind: Kind, dice: random.Random) -> float:
    match kind:
        case Kind.NOTICE | Kind.FALSE_NOTICE:
            # Mostly short: half a second is less than a checkpoint takes.
            return float(round(min(20.0, 0.5 * 40.0 ** dice.random()), 2))
        case Kind.ZONE_DOWN:
            return dice.choice((0.0, 0.0, 2.0))
        case Kind.WATCHER_STOPPED:
            return round(dice.uniform(1, 8), 2)
        case Kind.CLOCK_BACK:
            return round(dice.uniform(60, 900), 0)
        case Kind.TERRAFORM_KILLED:
            return round(dice.uniform(0, 1), 2)
        case _:
            return round(dice.uniform(0.2, 4), 2)


# A second of life is half a minute there.
SPEED = 30
STEPS, STEP_S, SAVES_EVERY = 240, 0.03, 20
TYPE = "h100.1x"
_TRAINER = shlex.join([sys.executable, str(ROOT / "router" / "demo" / "train.py")])
# Region: its zones, each with what a spot machine costs there. On demand is twice as dear and more.
ZONES = {
    "sandbox-east": {"sandbox-east-a": "2.10", "sandbox-east-b": "2.40"},
    "sandbox-west": {"sandbox-west-a": "2.50", "sandbox-west-b": "2.60"},
}
_ON_DEMAND = {"sandbox-east": "5.60", "sandbox-west": "5.80"}
# In hours of the cloud: nothing of it is longer than some seconds of life.
TIMEOUTS = {
    "rendezvous": "20s",
    "lost": "6s",
    "quarantine": "1m",
    "shortage": "1m",
    "retry_for": "1d",
    "apply": "60s",
    "destroy": "60s",
}


@dataclass(frozen=True)
class Setting:
    """``jobs`` of so many ``machines`` each. ``minutes``: the deadline, in the cloud's time. ``sure``: on
    demand only."""

    name: str
    jobs: tuple[str, ...]
    machines: int
    minutes: int
    sure: bool = False

    @property
    def deadline(self) -> timedelta:
        return timedelta(minutes=self.minutes)

    def always_sure(self) -> Setting:
        return replace(self, name=f"{self.name}-sure", sure=True)


SETTINGS = (
    Setting("gang", ("alpha",), 2, 180),
    Setting("gang-tight", ("alpha",), 2, 35),
    Setting("one-tight", ("alpha",), 1, 35),
    Setting("two", ("alpha", "beta"), 1, 180),
)


def planned(setting: Setting, folder: Path) -> Template:
    return Template(folder / setting.name, [_job(setting, name) for name in setting.jobs], cloud=_cloud())


def clock_of(site: Site, *, back: timedelta = timedelta(0)) -> str:
    """A STEPFARE_CLOCK that now stands where the site's plan was made, and runs; ``back``: so much earlier."""
    said = json.loads(site.plan.read_text())["as_of"]
    stands = datetime.fromisoformat(said).astimezone(UTC) + timedelta(seconds=1) - back
    now = datetime.now(UTC)
    return f"{SPEED}@{(now + (now - stands) / (SPEED - 1)).isoformat()}"


def cloud_time(clock: str, real: float) -> datetime:
    """What such a clock showed at a moment of life, in seconds since 1970."""
    speed, _, since = clock.partition("@")
    began = datetime.fromisoformat(since)
    return began + (datetime.fromtimestamp(real, UTC) - began) * int(speed)


def _job(setting: Setting, name: str) -> dict[str, Any]:
    command = (
        f"exec {_TRAINER} --steps {STEPS} --step-seconds {STEP_S} --checkpoint-every {SAVES_EVERY} --limit-seconds 20"
        f' --checkpoint-dir "${{STEPFARE_SANDBOX%/*}}/{name}/checkpoints"'
    )
    pace = {
        "accelerator": "H100",
        "count": setting.machines,
        "seconds_per_step": STEP_S * SPEED,
        "fabric": "ethernet",
        "source": "the trainer waits so long",
    }
    more: dict[str, Any] = {"market": {"spot": "never"}} if setting.sure else {}
    return job(
        name,
        command,
        machines=setting.machines,
        steps=STEPS,
        deadline=f"+{setting.minutes}m",
        workload={"profile": [pace]},
        checkpoint={"size_gib": 0.0001},
        startup="5m",
        **more,
    )


def _cloud() -> dict[str, Any]:
    places = {"country": "US", "continent": "NA", "geo": "NA", "residency_group": "US", "city": "Springfield"}
    prices: list[dict[str, Any]] = []
    for region, zones in ZONES.items():
        prices.append({"machine": TYPE, "region": region, "steps": [{"at": "0h", "usd": _ON_DEMAND[region]}]})
        for zone, usd in zones.items():
            steps = [{"at": "0h", "usd": usd}]
            prices.append({"machine": TYPE, "region": region, "zone": zone, "market": "spot", "steps": steps})
    return {
        "start": "2026-01-01T00:00:00Z",
        "regions": [{"name": region, **places, "zones": list(zones)} for region, zones in ZONES.items()],
        "machines": [
            {
                "type": TYPE,
                "accelerator": "H100",
                "accelerators": 1,
                "vcpus": 24,
                "memory_gib": 256,
                "fabric": "ethernet",
                "inter_node_gbps": 25,
            }
        ],
        "prices": prices,
    }
