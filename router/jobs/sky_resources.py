"""The ``resources`` of a SkyPilot task: which gangs, where, on what market; one node times ``num_nodes``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pricing.machines import Machine
from pricing.problems import InvalidInputError

# SkyPilot's word -> ours, where they differ: a bare A100 is the one with 40 GB.
_NAMES = {
    "A100": "A100-40GB",
    "A100-80GB-SXM": "A100-80GB",
    "H100-MEGA": "H100",
    "H100-SXM": "H100",
    "H200-SXM": "H200",
    "RTXPRO6000": "RTX-PRO-6000",
    "V100": "V100-16GB",
}
_ACCELERATOR = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)(?::([0-9]+))?")
_TPU = re.compile(r"tpu-(v[0-9]+[a-z]*)-([0-9]+)", re.IGNORECASE)
_READ = {
    "accelerators", "instance_type", "infra", "cloud", "region", "zone", "use_spot", "any_of", "ordered",
    "image_id", "labels", "priority",
}  # fmt: skip
_WHY = {
    "accelerator_args": "the machine's own software decides",
    "cpus": "machines are chosen by their accelerators",
    "memory": "machines are chosen by their accelerators",
    "disk_size": "disks are part of the machine's module",
    "disk_tier": "disks are part of the machine's module",
    "network_tier": "write `gang.rdma: required` where machines must be joined by RDMA",
    "max_hourly_cost": "a ceiling for an hour; `budget` is one for the whole job",
    "job_recovery": "what follows an interruption is decided from work and time left",
    "spot_recovery": "what follows an interruption is decided from work and time left",
    "ports": "no port is opened",
    "autostop": "machines go when the job ends",
}


_SEE = "see SkyPilot's reference"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Gangs as ``NAME:COUNT`` (in total), places as residency tokens, the market rule, and the like."""

    gangs: tuple[str, ...]
    places: tuple[str, ...]
    spot: str
    image: str | None
    labels: dict[str, str]
    priority: int | None


def wanted(resources: object, num_nodes: object, machines: Mapping[str, Machine], lost: list[str]) -> Wanted:
    """What the task asks for; what cannot be carried is appended to ``lost``.

    InvalidInputError where ``num_nodes`` is no count or ``resources`` no mapping.
    """
    if resources is None:
        resources = {}
    if not isinstance(resources, Mapping):
        raise InvalidInputError.single("is no mapping", field="resources", remedy=_SEE)
    nodes = 1 if num_nodes is None else num_nodes
    if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1:
        raise InvalidInputError.single(f"{nodes!r} is no number of machines", field="num_nodes", remedy="1 or more")
    choices = list(_choices(resources, lost))
    gangs = [tuple(_gangs(choice, nodes, machines, lost)) for choice in choices]
    places = [tuple(_places(choice, lost)) for choice in choices]
    if any(not place for place in places):  # one alternative may run anywhere
        if any(places):
            lost.append("the place of some alternatives: others may run anywhere, so the job may")
        places = []
    if len(set(gangs)) > 1 and len(set(places)) > 1:
        lost.append("which accelerator goes with which place: any of them may be had in any of the places")
    _note_fields(choices, lost)
    return Wanted(
        gangs=_once(gang for found in gangs for gang in found),
        places=_once(place for found in places for place in found),
        spot=_spot([choice.get("use_spot") for choice in choices], lost),
        image=_image(resources.get("image_id"), lost),
        labels={str(key): str(value) for key, value in mapping_of(resources, "labels").items()},
        priority=_priority(resources.get("priority"), lost),
    )


def mapping_of(part: Mapping[str, Any], field: str) -> Mapping[Any, Any]:
    """The mapping under ``field``, empty where it is left out; InvalidInputError where it is none."""
    found = part.get(field)
    if found is not None and not isinstance(found, Mapping):
        raise InvalidInputError.single("is no mapping", field=field, remedy=_SEE)
    return found or {}


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def _choices(resources: Mapping[str, Any], lost: list[str]) -> Iterator[dict[str, Any]]:
    """The alternatives, each with the fields around it as defaults, as SkyPilot reads them."""
    common = {key: value for key, value in resources.items() if key not in ("any_of", "ordered")}
    if resources.get("ordered"):
        lost.append("the order of `ordered`: the cheapest that holds the deadline is chosen")
    alternatives = resources.get("any_of") or resources.get("ordered") or [{}]
    if not isinstance(alternatives, list | tuple):
        raise InvalidInputError.single("is no list", field="resources.any_of", remedy=_SEE)
    for alternative in alternatives:
        if not isinstance(alternative, Mapping):
            raise InvalidInputError.single("an alternative is no mapping", field="resources.any_of", remedy=_SEE)
        yield {**common, **alternative}


def _gangs(choice: Mapping[str, Any], nodes: int, machines: Mapping[str, Machine], lost: list[str]) -> Iterator[str]:
    named = choice.get("accelerators")
    machine_type = choice.get("instance_type")
    if machine_type is not None:
        machine = machines.get(str(machine_type))
        if machine is None:
            lost.append(f"instance_type {machine_type}: not a known machine with accelerators")
        else:
            lost.append(f"instance_type {machine_type}: a machine with {machine.accelerator} of any type")
            if named is None:
                yield f"{machine.accelerator}:{machine.accelerator_count * nodes}"
    if isinstance(named, list | tuple):
        lost.append("the order of `accelerators`: the cheapest that holds the deadline is chosen")
    for name, count in _accelerators(named, lost):
        if count * nodes > 0:
            yield f"{name}:{count * nodes}"
    if named is not None and nodes > 1:
        lost.append(f"num_nodes {nodes}: accelerators are counted in total, on machines of any size")


def _accelerators(named: object, lost: list[str]) -> Iterator[tuple[str, int]]:
    if isinstance(named, Mapping):
        words = [str(name) if count is None else f"{name}:{count}" for name, count in named.items()]
    elif isinstance(named, list | tuple | set | frozenset):
        words = [str(item) for item in named]
    else:
        words = [] if named is None else str(named).strip("{}").split(",")
    for word in (stripped for item in words if (stripped := item.strip())):
        tpu, plain = _TPU.fullmatch(word.removesuffix(":1")), _ACCELERATOR.fullmatch(word)
        if tpu is not None:
            yield f"TPU-{tpu[1].lower()}", int(tpu[2])
        elif plain is not None:
            name = plain[1].upper() if plain[1].islower() else plain[1]
            yield _NAMES.get(name, name), int(plain[2] or 1)
        else:
            lost.append(f"accelerators {word}: not NAME:COUNT with a whole count")


def _places(choice: Mapping[str, Any], lost: list[str]) -> Iterator[str]:
    infra = str(choice.get("infra") or "")
    if infra.split("/")[0] in ("k8s", "kubernetes", "ssh"):
        lost.append(f"infra {infra}: only machines that clouds sell are planned")
        return
    parts = [None if part == "*" else part for part in infra.split("/")] if infra else []
    cloud, region, zone = (*parts, None, None, None)[:3] if parts else (
        choice.get("cloud"), choice.get("region"), choice.get("zone"),
    )  # fmt: skip
    if zone:
        lost.append(f"zone {zone}: regions are chosen by rule, zones by price")
    cloud = str(cloud).lower() if cloud else None
    token = f"{cloud}/{region}" if cloud and region else region or cloud
    if token:
        yield str(token)


def _spot(asked: list[object], lost: list[str]) -> str:
    if True in asked and any(item is not True for item in asked):
        return "allowed"
    if True in asked:
        return "only"
    if None in asked:
        lost.append("use_spot is not said, which is on demand for SkyPilot; `spot: allowed` lets the plan choose")
    return "never"


def _image(image: object, lost: list[str]) -> str | None:
    if isinstance(image, str) and image.startswith("docker:"):
        return image.removeprefix("docker:")
    if image is not None:
        lost.append("image_id: an image of one cloud; name a container image under `run.image`")
    return None


def _priority(priority: object, lost: list[str]) -> int | None:
    if priority is None or (type(priority) is int and -1000 <= priority <= 1000):
        return priority
    lost.append(f"priority {priority}: not a whole number from -1000 to 1000")
    return None


def _note_fields(choices: list[dict[str, Any]], lost: list[str]) -> None:
    given = _once(key for choice in choices for key, value in choice.items() if value is not None)
    unread = [field for field in given if field not in _READ]
    lost.extend(f"{field}: {_WHY.get(field, 'no such thing in a job')}" for field in unread)
