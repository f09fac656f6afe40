"""Import SkyPilot's task YAML as jobs: one task, a pipeline or a job group.

Fields are those of the reference "SkyPilot YAML" (0.14), and those of earlier ones. ``resources`` say gangs, places and
market, of one node times ``num_nodes``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pricing.places import FORMER_CLOUD_NAMES
from pricing.problems import InvalidInputError
from router.jobs.imported_job import GangRequest, ImportedJob, SoldMachines, as_bash, fill, job_name, secret_reference
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
_READ_RESOURCES = {
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
_WHY_RESOURCES = {
    "accelerator_args": "the machine's own software decides",
    "cpus": "machines are chosen by their accelerators",
    "memory": "machines are chosen by their accelerators",
    "disk_size": "disks are part of the machine's module",
    "disk_tier": "disks are part of the machine's module",
    "max_hourly_cost": "a ceiling for all of a machine or cluster; `max_price` is one for an accelerator",
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
    unread = [field for field in given if field not in _READ_RESOURCES]
    lost.extend(f"{field}: {_WHY_RESOURCES.get(field, 'no such thing in a job')}" for field in unread)


_BUCKET = re.compile(r"(s3|gs|gcs|r2|cos|oci|azure)://|https://[^/]+\.blob\.")
_SAVES = re.compile(r"checkpoint|ckpt|output", re.IGNORECASE)
_SKYPILOT_VARIABLE = re.compile(r"SKYPILOT_\w+")
# The agent gives these to every training, beside MASTER_ADDR and the like (router/agent/starters.py).
_GIVEN = {"SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS", "SKYPILOT_NUM_NODES", "SKYPILOT_NUM_GPUS_PER_NODE"}
_READ = {
    "name",
    "workdir",
    "num_nodes",
    "resources",
    "envs",
    "secrets",
    "file_mounts",
    "setup",
    "run",
    "inputs",
}
_WHY = {
    "outputs": "what is written back is not moved by a plan",
    "config": "settings of SkyPilot itself",
    "experimental": "settings of SkyPilot itself",
    "volumes": "network volumes belong to one region; name the data under `data`",
    "event_callback": "no callbacks",
    "pool": "pools of machines kept waiting are not planned",
}


_HEADER = frozenset({"name", "execution", "primary_tasks", "termination_delay"})


def from_skypilot_file(documents: Sequence[Any], sold: SoldMachines) -> list[ImportedJob]:
    """Turn the documents of a file into jobs: one task, or those of a pipeline or of a job group.

    InvalidInputError for what is no training task; ``where`` of its problems is the number of the document.
    """
    header: Mapping[str, Any] = {}
    tasks = list(enumerate(documents))
    if len(documents) > 1 and isinstance(documents[0], Mapping) and documents[0].keys() <= _HEADER:
        header, tasks = documents[0], tasks[1:]
    jobs: list[ImportedJob] = []
    names: set[str] = set()
    before = ""
    for number, task in tasks:
        try:
            job = from_skypilot(task, sold)
        except InvalidInputError as error:
            raise InvalidInputError(replace(problem, where=str(number)) for problem in error.problems) from None
        if header or len(tasks) > 1:
            job = _of_several(job, header, before, number, names)
            before = str(job.job_yaml["name"])
            names.add(before)
        jobs.append(job)
    return jobs


def _of_several(job: ImportedJob, header: Mapping[str, Any], before: str, number: int, names: set[str]) -> ImportedJob:
    """Return the job as one of several: with a name of its own, its group, and what is lost between them."""
    fields, whole = dict(job.job_yaml), job_name(header.get("name"))
    if not isinstance(fields["name"], str) or fields["name"] in names:
        fields["name"] = f"{whole if isinstance(whole, str) else 'task'}-{number}"[-63:].strip("-")
    lost = list(job.not_carried)
    if header.get("execution") == "parallel":
        if isinstance(whole, str):
            fields["group"] = whole
        lost.append("the group: its tasks run at the same moment and find each other by name; here each is a job alone")
        lost.extend(f"{field}: jobs end by themselves" for field in sorted(header.keys() - {"name", "execution"}))
    elif before:
        lost.append(f"the pipeline: this task began when {before} had ended; apply it then")
    return ImportedJob.of(fields, lost)


def from_skypilot(task: Mapping[str, Any], sold: SoldMachines | None = None) -> ImportedJob:
    """Turn a SkyPilot task into a job; ``sold`` is what machines, places and accelerators are understood by.

    InvalidInputError for what is no training task: no mapping, a service, a pipeline's header.
    """
    sold = sold or SoldMachines()
    if not isinstance(task, Mapping):
        raise InvalidInputError.single("this is no SkyPilot task", remedy="a task is a mapping of fields")
    if "service" in task:
        raise InvalidInputError.single(
            "a service runs without end and is no training job", field="service", remedy="import tasks only"
        )
    if "resources" not in task and "run" not in task:
        raise InvalidInputError.single(
            "there is neither `resources` nor `run` in this document",
            remedy="a pipeline's first document only names it: import the tasks after it",
        )
    lost: list[str] = []
    env = _env(task)
    task = {**task, **{field: _with_values(task[field], env) for field in ("file_mounts", "workdir") if field in task}}
    want = read_resources(task.get("resources"), task.get("num_nodes"), sold, lost)
    job: dict[str, Any] = {
        "name": job_name(task.get("name")),
        "team": fill("who pays"),
        **({"labels": want.labels} if want.labels else {}),
        "steps": fill("steps in total; a task says nothing of the work in it"),
        **({"priority": want.priority} if want.priority is not None else {}),
        **want.gang.fields,
        "market": {"spot": want.spot},
        **_storage(task, lost),
    }
    if want.places:
        job["residency"] = {"allow": list(want.places)}
    elif want.unplanned:
        clouds = ", ".join(sorted({region.id.cloud for region in sold.regions}))
        job["residency"] = {"allow": fill(f"the task asks for {', '.join(want.unplanned)}; planned are {clouds}")}
    command, code = _command(task), _code(task)
    if command and code and want.image:
        command = _clone(code) + command
        code = {}
        lost.append("workdir: an image brings its code, so the command clones it; git has to be in the image")
    if command:
        job["run"] = {
            **({"image": want.image} if want.image else {}),
            **({"workdir": str(task["workdir"])} if isinstance(task.get("workdir"), str) else {}),
            **({"code": code} if code else {}),
            "command": as_bash(command),
            **({"env": env} if env else {}),
            "engine": "command",
        }
    _note_rest(task, command, lost)
    return ImportedJob.of(job, lost)


def _command(task: Mapping[str, Any]) -> str:
    """Return the command; set-up runs in a shell of its own, as in SkyPilot, at every start of a gang."""
    run, setup = (str(task.get(part) or "").strip() for part in ("run", "setup"))
    return f"(\n{setup}\n) || exit 1\n{run}" if run and setup else run


def _code(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the repository that is checked out on each machine; none where the task has a folder or nothing."""
    workdir = task.get("workdir")
    if not isinstance(workdir, Mapping) or not workdir.get("url"):
        return {}
    ref = str(workdir["ref"]) if workdir.get("ref") else fill("commit, tag or branch; the task takes the default one")
    return {"git": str(workdir["url"]), "ref": ref}


def _clone(code: Mapping[str, Any]) -> str:
    ref = f" && git checkout {shlex.quote(code['ref'])}" if isinstance(code["ref"], str) else ""
    return f"git clone {shlex.quote(code['git'])} code && cd code{ref} || exit 1\n"


def _env(task: Mapping[str, Any]) -> dict[str, str]:
    """Return names and values of ``envs``, as SkyPilot's process would see them.

    A name without a value and all of ``secrets`` become references to variables of whoever applies; a secret's value is
    not even read. ``secrets`` may be a list of names kept by SkyPilot, such as ``secrets:workspace.NAME``.
    """
    found = mapping_of(task, "envs")
    env = {str(name): secret_reference(name) if value is None else str(value) for name, value in found.items()}
    secrets = task.get("secrets")
    kept = [re.split(r"[:.]", str(name))[-1] for name in secrets] if isinstance(secrets, list) else ()
    return env | {str(name): secret_reference(name) for name in kept or mapping_of(task, "secrets")}


def _with_values(node: Any, env: Mapping[str, str]) -> Any:
    """Return mounts or a folder with ``$NAME`` and ``${NAME}`` of ``envs`` in place, as SkyPilot reads them."""
    if isinstance(node, Mapping):
        return {_with_values(key, env): _with_values(value, env) for key, value in node.items()}
    if not isinstance(node, str):
        return node
    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda match: env.get(match[1] or match[2], match[0]), node)


def _storage(task: Mapping[str, Any], lost: list[str]) -> dict[str, Any]:
    """Return ``data`` and ``checkpoint`` from the mounted buckets; a task does not state their region and size."""
    fields: dict[str, Any] = {}
    for uri, gigabytes in mapping_of(task, "inputs").items():
        size: Any = f"{gigabytes} GB" if isinstance(gigabytes, int | float) else fill("GiB, or `500 GB`")
        _offer_data(fields, str(uri), size, "copy", "inputs", lost)
    for path, mount in mapping_of(task, "file_mounts").items():
        source = mount.get("source") if isinstance(mount, dict) else mount
        mode = str(mount.get("mode", "MOUNT")) if isinstance(mount, dict) else "COPY"
        where = f"file_mounts {path}"
        if not (isinstance(source, str) and _BUCKET.match(source)):
            lost.append(f"{where}: not an existing bucket, so nothing to plan for; put it into the image")
        elif _SAVES.search(str(path)) and mode != "COPY":
            fields.setdefault("checkpoint", {"size_gib": fill("GiB of one checkpoint, or `none`")})
            lost.append(f"{where}: {source} (a place of checkpoints, it seems; the command has to mount it)")
        else:
            way = "copy" if mode == "COPY" else "stream"
            _offer_data(fields, source, fill("GiB, or `500 GB`"), way, where, lost)
    return fields


def _offer_data(fields: dict[str, Any], uri: str, size: object, mode: str, where: str, lost: list[str]) -> None:
    if "data" in fields:
        lost.append(f"{where}: {uri} (a job names one place of data; add its GiB to `data`, or leave it out)")
        return
    at = fill("region in which it lies, e.g. CLOUD/REGION")
    fields["data"] = {"uri": uri, "at": at, "gib": size, "mode": mode}


def _note_rest(task: Mapping[str, Any], command: str, lost: list[str]) -> None:
    if task.get("workdir") is not None and not isinstance(task["workdir"], str | Mapping):
        lost.append("workdir: neither a folder nor a repository")
    elif isinstance(task.get("workdir"), str) and command:
        lost.append("workdir is copied from your machine by SkyPilot; here it is a folder in the image")
    names = sorted(set(_SKYPILOT_VARIABLE.findall(command)) - _GIVEN)
    lost.extend(f"{name} is used by the command and set by SkyPilot only" for name in names)
    if not command and task.get("setup"):
        lost.append("setup: there is no `run` beside it")
    unread = [str(field) for field in task if field not in _READ]
    lost.extend(f"{field}: {_WHY.get(field, 'no such thing in a job')}" for field in unread)
