"""The three clouds of the smoke run: what its job and its files say there, and how to have a machine interrupted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CLOUDS = ("aws", "gcp", "azure")
JOB = "smoke"
TRAIN = Path(__file__).with_name("train.py")


@dataclass(frozen=True, slots=True)
class Length:
    """How long the job trains: ``steps`` of ``seconds`` each, saved at every ``every``-th."""

    steps: int
    seconds: float
    every: int

    @property
    def sum(self) -> int:
        """Return what the training prints at its end."""
        return self.steps * (self.steps + 1) // 2


# Five minutes of work, so that the machine is there for half an hour at most; and 80 seconds: on a busy machine
# it takes half a minute until the notice is heard.
REAL, DRY = Length(600, 0.5, 20), Length(160, 0.5, 10)


@dataclass(frozen=True, slots=True)
class Offer:
    """The smallest machine of the book: an offer with one accelerator."""

    instance_type: str
    accelerator: str
    region: str
    usd_per_hour: str


def smallest(offers: Sequence[Mapping[str, Any]]) -> Offer | None:
    """Return the cheapest by the hour of those that have one whole accelerator; None where there is none."""
    single = [row for row in offers if row["accelerator_count"] == 1 and row["provisionable"]]
    if not single:
        return None
    row = min(single, key=lambda row: float(row["usd_per_hour"]))
    return Offer(row["instance_type"], row["accelerator"], row["region"], row["usd_per_hour"])


def job_text(offer: Offer, market: str, length: Length, places: Sequence[str]) -> str:
    """Return the job file: one machine with that accelerator, in these places."""
    gang = f"{offer.accelerator}:1"
    profile = {"accelerator": offer.accelerator, "count": 1, "seconds_per_step": length.seconds}
    command = f"exec python3 - {length.steps} {length.seconds} {length.every} <<'END'\n{TRAIN.read_text('utf-8')}END\n"
    job = {
        "name": JOB,
        "team": JOB,
        "steps": length.steps,
        # Money at risk grows with the deadline; a spot machine is not 95 % sure of a near one.
        "deadline": "+2h",
        "confidence": 0.5,
        "residency": {"allow": list(places)},
        "workload": {"profile": [{**profile, "source": "the training sleeps for so long"}]},
        "gang": {"accelerators": gang},
        "checkpoint": {"size_gib": 0.001},
        "market": {"spot": "only" if market == "spot" else "never"},
        "startup": "10m",
        "run": {"engine": "command", "command": command},
    }
    return yaml.safe_dump(job, sort_keys=False)


def limits_text(cloud: str, budget: object) -> str:
    """Return the limits file: that cloud alone, and no more than the budget."""
    limits = {"clouds": [cloud], "teams": [{"team": JOB, "budget": f"${budget}"}]}
    return yaml.safe_dump(limits, sort_keys=False)


def deploy_document(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the deploy file of a run: the user's, with a state of its own and a policy that never waits."""
    document = {name: value for name, value in given.items() if name != "state"}
    return {**document, "policy": "greedy"}


def missing_in_deploy(document: Mapping[str, Any], cloud: str) -> list[str]:
    """Return what a run needs of the deploy file and does not find."""
    settings = (document.get("clouds") or {}).get(cloud) or {}
    regions = (settings.get("regions") or {}).values()
    stores = any((entry or {}).get("checkpoint_url") for entry in (settings, *regions))
    needed = {
        "coordinator.url": (document.get("coordinator") or {}).get("url"),
        f"clouds.{cloud}.checkpoint_url": stores,
        **({"clouds.azure.ssh_public_key": settings.get("ssh_public_key")} if cloud == "azure" else {}),
    }
    return [name for name, value in needed.items() if not value]
