"""The jobs and the cloud of the fault campaign: trainings of seconds, on a cloud whose clock runs faster than life."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.deployed import Site, Template, job
from tests.support.repository import ROOT

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
