"""Import SkyPilot's task YAML as jobs: one task, a pipeline or a job group.

Fields are those of the reference "SkyPilot YAML" (0.14), and those of earlier ones.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pricing.problems import InvalidInputError
from router.jobs.imported_job import ImportedJob, SoldMachines, as_bash, fill, job_name, secret_reference
from router.jobs.skypilot_resources import mapping_of, read_resources

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
