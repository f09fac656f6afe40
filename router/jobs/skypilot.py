"""Import SkyPilot's task YAML as a job: carry what can be carried, list what cannot, guess nothing.

A task says nothing of the work in it (steps, speed, deadline), so a job made from one holds ``{FILL IN: ...}`` where a
user has to write; such a job is refused by every command until that is done. Fields are those of the reference
"SkyPilot YAML" (0.14), and those of earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pricing.machines import Machine
from pricing.places import Region
from pricing.problems import InvalidInputError
from router.jobs.fields import FILL_IN, parse_name
from router.jobs.skypilot_resources import SkyPilotResources, mapping_of, read_resources

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


@dataclass(frozen=True, slots=True)
class SkyPilotImport:
    """A task imported as a job.

    ``job_yaml`` is plain data in the order in which to write it; ``not_carried`` what was in the task and is not in the
    job, a sentence each; ``to_fill`` the dotted fields that hold ``{FILL IN: ...}``.
    """

    job_yaml: dict[str, Any]
    not_carried: tuple[str, ...]
    to_fill: tuple[str, ...]


def from_skypilot(
    task: Mapping[str, Any], machines: Iterable[Machine] = (), regions: Iterable[Region] = ()
) -> SkyPilotImport:
    """Turn a SkyPilot task into a job.

    ``machines`` let it understand an ``instance_type``, ``regions`` are the places that are planned (empty: any).
    InvalidInputError for what is no training task: no mapping, a service, a pipeline's header.
    """
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
    by_type = {machine.instance_type: machine for machine in machines}
    planned = tuple(regions)
    want = read_resources(task.get("resources"), task.get("num_nodes"), by_type, planned, lost)
    job: dict[str, Any] = {
        "name": _name(task.get("name")),
        "team": _fill("who pays"),
        **({"labels": want.labels} if want.labels else {}),
        "steps": _fill("steps in total; a task says nothing of the work in it"),
        **({"priority": want.priority} if want.priority is not None else {}),
        "workload": _workload(want),
        "gang": {
            "accelerators": list(want.gangs) or _fill("accelerators in total, e.g. H100:8"),
            **({"rdma": "required"} if want.rdma else {}),
        },
        "market": {"spot": want.spot},
        **_storage(task, lost),
    }
    if want.places:
        job["residency"] = {"allow": list(want.places)}
    elif want.unplanned:
        clouds = ", ".join(sorted({region.id.cloud for region in planned}))
        job["residency"] = {"allow": _fill(f"the task asks for {', '.join(want.unplanned)}; planned are {clouds}")}
    command, env = _command(task), _env(task)
    if command:
        job["run"] = {
            **({"image": want.image} if want.image else {}),
            **({"workdir": str(task["workdir"])} if isinstance(task.get("workdir"), str) else {}),
            **_code(task),
            "command": command,
            **env,
            "engine": "command",
        }
    _note_rest(task, command, lost)
    return SkyPilotImport(job, tuple(dict.fromkeys(lost)), tuple(_to_fill(job)))


def _fill(hint: str) -> dict[str, str]:
    return {FILL_IN: hint}


def _to_fill(node: Any, path: str = "") -> Iterable[str]:
    if isinstance(node, dict):
        if set(node) == {FILL_IN}:
            yield path
        else:
            for key, value in node.items():
                yield from _to_fill(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _to_fill(value, f"{path}.{index}")


def _name(name: object) -> str | dict[str, str]:
    slug = re.sub(r"[^a-z0-9]+", "-", str(name or "").lower())[:63].strip("-")
    return parse_name(slug) if slug else _fill("lower-case letters, digits and -")


def _workload(want: SkyPilotResources) -> dict[str, Any]:
    hint = "measured with this gang; or replace `profile` by a `transformer` shape"
    fabric = "rdma" if want.rdma else "ethernet"
    points = [
        {
            "accelerators": gang,
            "seconds_per_step": _fill(hint),
            **({"placement": want.shapes[gang], "fabric": fabric} if gang in want.shapes else {}),
        }
        for gang in want.gangs
    ]
    return {"profile": points} if points else _fill("measured `profile` points or a `transformer` shape")


def _command(task: Mapping[str, Any]) -> str:
    """Return the command; set-up runs in a shell of its own, as in SkyPilot, at every start of a gang."""
    run, setup = (str(task.get(part) or "").strip() for part in ("run", "setup"))
    return f"(\n{setup}\n) || exit 1\n{run}" if run and setup else run


def _code(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the repository that is checked out on each machine; none where the task has a folder or nothing."""
    workdir = task.get("workdir")
    if not isinstance(workdir, Mapping) or not workdir.get("url"):
        return {}
    return {"code": {"git": str(workdir["url"]), **({"ref": str(workdir["ref"])} if workdir.get("ref") else {})}}


def _env(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return names and values of ``envs``, as SkyPilot's process would see them.

    A name without a value and all of ``secrets`` become references to variables of whoever applies; a secret's value is
    not even read.
    """
    found = mapping_of(task, "envs")
    env = {str(name): _reference(name) if value is None else str(value) for name, value in found.items()}
    env |= {str(name): _reference(name) for name in mapping_of(task, "secrets")}
    return {"env": env} if env else {}


def _reference(name: object) -> str:
    return f"secret:env:STEPFARE_JOB_{name}"


def _storage(task: Mapping[str, Any], lost: list[str]) -> dict[str, Any]:
    """Return ``data`` and ``checkpoint`` from the mounted buckets; a task does not state their region and size."""
    fields: dict[str, Any] = {}
    for uri, gigabytes in mapping_of(task, "inputs").items():
        size: Any = f"{gigabytes} GB" if isinstance(gigabytes, int | float) else _fill("GiB, or `500 GB`")
        _offer_data(fields, str(uri), size, "copy", "inputs", lost)
    for path, mount in mapping_of(task, "file_mounts").items():
        source = mount.get("source") if isinstance(mount, dict) else mount
        mode = str(mount.get("mode", "MOUNT")) if isinstance(mount, dict) else "COPY"
        where = f"file_mounts {path}"
        if not (isinstance(source, str) and _BUCKET.match(source)):
            lost.append(f"{where}: not an existing bucket, so nothing to plan for; put it into the image")
        elif _SAVES.search(str(path)) and mode != "COPY":
            fields.setdefault("checkpoint", {"size_gib": _fill("GiB of one checkpoint, or `none`")})
            lost.append(f"{where}: {source} (a place of checkpoints, it seems; the command has to mount it)")
        else:
            _offer_data(fields, source, _fill("GiB, or `500 GB`"), _mode(mode), where, lost)
    return fields


def _mode(mode: str) -> str:
    return "copy" if mode == "COPY" else "stream"


def _offer_data(fields: dict[str, Any], uri: str, size: object, mode: str, where: str, lost: list[str]) -> None:
    if "data" in fields:
        lost.append(f"{where}: {uri} (a job names one place of data; add its GiB to `data`, or leave it out)")
        return
    at = _fill("region in which it lies, e.g. CLOUD/REGION")
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
