"""Read the ``resources`` of a SkyPilot task: gangs, places and market; one node times ``num_nodes``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pricing.places import FORMER_CLOUD_NAMES
from pricing.problems import InvalidInputError
from router.jobs.imported_job import GangRequest, SoldMachines
from router.jobs.residency import known_words

# SkyPilot's names and ours, where they differ: a bare A100 is the one with 40 GB.
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
_CORES = frozenset({"v2", "v3", "v4", "v5p"})  # generations whose slices are named by cores, two a chip
_OWN_CLUSTERS = frozenset({"k8s", "kubernetes", "slurm", "ssh"})
_READ = {
    "accelerators",
    "instance_type",
    "infra",
    "cloud",
    "region",
    "zone",
    "use_spot",
    "any_of",
    "ordered",
    "image_id",
    "labels",
    "priority",
    "network_tier",
}
_WHY = {
    "accelerator_args": "the machine's own software decides",
    "cpus": "machines are chosen by their accelerators",
    "memory": "machines are chosen by their accelerators",
    "disk_size": "disks are part of the machine's module",
    "disk_tier": "disks are part of the machine's module",
    "max_hourly_cost": "a ceiling for an hour; `budget` is one for the whole job",
    "job_recovery": "what follows an interruption is decided from work and time left",
    "spot_recovery": "what follows an interruption is decided from work and time left",
    "ports": "no port is opened",
    "autostop": "machines go when the job ends",
}


_SEE = "see SkyPilot's reference"


@dataclass(frozen=True, slots=True)
class SkyPilotResources:
    """The gangs, places and options that the resources of a task ask for.

    ``places`` are residency tokens, empty for anywhere. ``unplanned``: the places asked for, where none of them is one
    that is planned; then ``places`` is empty and the job must not run anywhere.
    """

    gang: GangRequest
    places: tuple[str, ...]
    unplanned: tuple[str, ...]
    spot: str
    image: str | None
    labels: dict[str, str]
    priority: int | None


def read_resources(resources: object, num_nodes: object, sold: SoldMachines, lost: list[str]) -> SkyPilotResources:
    """Read what the task asks for; append what cannot be carried to ``lost``.

    Places and accelerators are carried where they are sold, as ``stepfare validate`` asks. InvalidInputError where
    ``num_nodes`` is no count or ``resources`` no mapping.
    """
    if resources is None:
        resources = {}
    if not isinstance(resources, Mapping):
        raise InvalidInputError.single("is no mapping", field="resources", remedy=_SEE)
    nodes = 1 if num_nodes is None else num_nodes
    if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1:
        raise InvalidInputError.single(f"{nodes!r} is no number of machines", field="num_nodes", remedy="1 or more")
    choices = list(_choices(resources, lost))
    known = known_words(sold.regions)
    asked = [_place(choice, known, lost) for choice in choices]
    unplanned = _once(place.token for place in asked if place is not None and not place.planned)
    kept = [n for n, place in enumerate(asked) if place is None or place.planned]
    if kept:
        choices, asked = [choices[n] for n in kept], [asked[n] for n in kept]
        lost.extend(f"{token}: no place that is planned; this alternative is left out" for token in unplanned)
        unplanned = ()
    gangs = [tuple(_gangs(choice, nodes, sold, lost)) for choice in choices]
    if any(gangs) and not all(gangs):
        lost.append("alternatives without accelerators: only machines that have some are planned")
    places = [(place.token,) if place is not None and place.planned else () for place in asked]
    if not unplanned and any(not place for place in places):  # one alternative may run anywhere
        if any(places):
            lost.append("the place of some alternatives: others may run anywhere, so the job may")
        places = []
    if len(set(gangs)) > 1 and len(set(places)) > 1:
        lost.append("which accelerator goes with which place: any of them may be had in any of the places")
    _note_fields(choices, lost)
    each = tuple(dict.fromkeys(gang for found in gangs for gang in found))
    rdma = _rdma([choice.get("network_tier") for choice in choices], lost)
    return SkyPilotResources(
        gang=GangRequest(each, nodes, rdma).of_sold(sold, lost),
        places=_once(place for found in places for place in found),
        unplanned=unplanned,
        spot=_spot([choice.get("use_spot") for choice in choices], lost),
        image=_image([_image_of(choice) for choice in choices], lost),
        labels=_labels(choices, lost),
        priority=_priority([choice.get("priority") for choice in choices], lost),
    )


def mapping_of(part: Mapping[str, Any], field: str) -> Mapping[Any, Any]:
    """Return the mapping under ``field``, empty where it is left out; InvalidInputError where it is none."""
    found = part.get(field)
    if found is not None and not isinstance(found, Mapping):
        raise InvalidInputError.single("is no mapping", field=field, remedy=_SEE)
    return found or {}


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def _choices(resources: Mapping[str, Any], lost: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the alternatives, each with the fields around it as defaults, as SkyPilot reads them."""
    common = {key: value for key, value in resources.items() if key not in ("any_of", "ordered")}
    if resources.get("ordered"):
        lost.append("the order of `ordered`: the cheapest that holds the deadline is chosen")
    alternatives = resources.get("any_of") or resources.get("ordered") or [{}]
    if not isinstance(alternatives, list | tuple):
        raise InvalidInputError.single("is no list", field="resources.any_of", remedy=_SEE)
    known = [alternative for alternative in alternatives if isinstance(alternative, Mapping)]
    if not known:
        raise InvalidInputError.single("an alternative is no mapping", field="resources.any_of", remedy=_SEE)
    lost.extend(f"{item}: no alternative that SkyPilot knows" for item in alternatives if not isinstance(item, Mapping))
    choices = [{**common, **alternative} for alternative in known]
    clusters = [choice for choice in choices if _cluster(choice)]
    if 0 < len(clusters) < len(choices):
        lost.extend(f"infra {_cluster(choice)}: only machines that clouds sell are planned" for choice in clusters)
        choices = [choice for choice in choices if not _cluster(choice)]
    yield from choices


def _cluster(choice: Mapping[str, Any]) -> str:
    """Return the cluster of one's own that an alternative asks for; nothing where it asks for a cloud or none."""
    infra = str(choice.get("infra") or choice.get("cloud") or "")
    return infra if infra.split("/")[0].lower() in _OWN_CLUSTERS else ""


def _image_of(choice: Mapping[str, Any]) -> object:
    """Return the image; on a cluster of Kubernetes any image is a container's, elsewhere one that says so."""
    image = choice.get("image_id")
    plain = isinstance(image, str) and not image.startswith("docker:")
    return f"docker:{image}" if plain and _cluster(choice) else image


def _gangs(choice: Mapping[str, Any], nodes: int, sold: SoldMachines, lost: list[str]) -> Iterator[tuple[str, int]]:
    named = choice.get("accelerators")
    machine_type = choice.get("instance_type")
    if machine_type is not None:
        machine = sold.machines.get(str(machine_type))
        if machine is None:
            lost.append(f"instance_type {machine_type}: not a known machine with accelerators")
        else:
            lost.append(f"instance_type {machine_type}: a machine with {machine.accelerator} of any type")
            if named is None:
                yield machine.accelerator, machine.accelerator_count
    if isinstance(named, list | tuple):
        lost.append("the order of `accelerators`: the cheapest that holds the deadline is chosen")
    for name, count in _accelerators(named, lost):
        if name.startswith("TPU") and nodes > 1:
            lost.append(f"{name}:{count}: {nodes} slices; a gang is one slice, which nothing joins to another")
        elif count > 0:
            yield (name if sold.sizes(name) else sold.accelerator(name) or name), count


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
            generation = "v5e" if tpu[1].lower() == "v5litepod" else tpu[1].lower()
            yield f"TPU-{generation}", int(tpu[2]) // (2 if generation in _CORES else 1)
        elif plain is not None:
            name = plain[1].upper() if plain[1].islower() else plain[1]
            yield _NAMES.get(name, name), int(plain[2] or 1)
        else:
            lost.append(f"accelerators {word}: not NAME:COUNT with a whole count")


@dataclass(frozen=True, slots=True)
class _Place:
    token: str
    planned: bool


def _place(choice: Mapping[str, Any], planned_places: frozenset[str], lost: list[str]) -> _Place | None:
    """Return the place that an alternative asks for; None where it may run anywhere."""
    infra = str(choice.get("infra") or "")
    if cluster := _cluster(choice):
        lost.append(f"infra {cluster}: only machines that clouds sell are planned")
        return None
    parts = [None if part == "*" else part for part in infra.split("/")] if infra else []
    cloud, region, zone = (
        (*parts, None, None, None)[:3]
        if parts
        else (
            choice.get("cloud"),
            choice.get("region"),
            choice.get("zone"),
        )
    )
    if zone:
        lost.append(f"zone {zone}: regions are chosen by rule, zones by price")
    cloud = FORMER_CLOUD_NAMES.get(str(cloud).lower(), str(cloud).lower()) if cloud else None
    token = f"{cloud}/{region}" if cloud and region else region or cloud
    return _Place(str(token), planned=not planned_places or str(token) in planned_places) if token else None


def _spot(use_spot: list[object], lost: list[str]) -> str:
    if True in use_spot and any(item is not True for item in use_spot):
        return "allowed"
    if True in use_spot:
        return "only"
    if None in use_spot:
        lost.append("use_spot is not said, which is on demand for SkyPilot; `spot: allowed` lets the plan choose")
    return "never"


def _rdma(tiers: list[object], lost: list[str]) -> bool:
    """Return whether all alternatives ask for SkyPilot's best network, which is RDMA."""
    best = [str(tier).lower() == "best" for tier in tiers]
    if any(best) and not all(best):
        lost.append("network_tier: best in some of the alternatives only; `gang.rdma: required` asks for it in all")
    return bool(best) and all(best)


def _image(image_ids: list[object], lost: list[str]) -> str | None:
    """Return the container image that every alternative names; no other image can be carried."""
    images = _once(str(image) for image in image_ids if image is not None)
    if not images:
        return None
    one = images[0] if len(images) == 1 and None not in image_ids else ""
    if one.startswith("docker:"):
        return one.removeprefix("docker:")
    if all(image.startswith("docker:") for image in images):
        why = "a job has one image for all its places; name it under `run.image`"
    else:
        why = "an image of one cloud; name a container image under `run.image`"
    lost.append(f"image_id {', '.join(images)}: {why}")
    return None


def _labels(choices: list[dict[str, Any]], lost: list[str]) -> dict[str, str]:
    found = [{str(k): str(v) for k, v in mapping_of(choice, "labels").items()} for choice in choices]
    agreed = {key: value for key, value in found[0].items() if all(labels.get(key) == value for labels in found)}
    lost.extend(
        f"labels {key}: only in some of the alternatives, or not the same in all"
        for key in _once(key for labels in found for key in labels)
        if key not in agreed
    )
    return agreed


def _priority(priorities: list[object], lost: list[str]) -> int | None:
    if any(priority != priorities[0] for priority in priorities):
        lost.append("priority: not the same in all of the alternatives")
        return None
    priority = priorities[0]
    if priority is None or (type(priority) is int and -1000 <= priority <= 1000):
        return priority
    lost.append(f"priority {priority}: not a whole number from -1000 to 1000")
    return None


def _note_fields(choices: list[dict[str, Any]], lost: list[str]) -> None:
    given = _once(key for choice in choices for key, value in choice.items() if value is not None)
    unread = [field for field in given if field not in _READ]
    lost.extend(f"{field}: {_WHY.get(field, 'no such thing in a job')}" for field in unread)
