"""Import training objects of Kubernetes as jobs: Kubeflow's PyTorchJob, and JobSet. Each pod becomes a machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pricing.problems import InvalidInputError
from router.jobs.imported_job import (
    GangRequest,
    ImportedJob,
    SoldMachines,
    as_bash,
    fill,
    foreign_file,
    job_name,
    run_limit,
    secret_reference,
)

_GPU = re.compile(r"(?:nvidia\.com/gpu|amd\.com/gpu|google\.com/tpu)$")
_FABRIC = re.compile(r"rdma|/efa$|infiniband|hostdev")
_ACCELERATOR_LABEL = re.compile(
    r"gpu\.product$|gke-accelerator$|gke-tpu-accelerator$|instance-gpu-name$|gpu\.\w+\.com/class$"
)
_TYPE_LABEL = "node.kubernetes.io/instance-type"
_REGION_LABEL = "topology.kubernetes.io/region"
_SPOT_LABEL = re.compile(r"capacity-?type$|-spot$", re.IGNORECASE)
# What one cloud's labels call an accelerator of which other makers' names are not clear.
_LABELLED = {
    "nvidia-h100-80gb": "H100",
    "nvidia-tesla-a100": "A100-40GB",
    "nvidia-tesla-v100": "V100-16GB",
    "tpu-v6e-slice": "TPU-v6e",
}
_VARIABLE = re.compile(r"\$\((\w+)\)")
_ELSEWHERE = re.compile(r"\$\{?((?:JOBSET|REPLICATED_JOB|PET)_\w+)")
# The agent gives these to trainings of the engine torchrun (router/agent/starters.py).
_GIVEN = {"PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"}
_PLACED = "what follows an interruption is decided from work and time left"
_POD_WHY = {
    "affinity": "zones and machines are chosen by price",
    "hostNetwork": "", "restartPolicy": "", "containers": "", "nodeSelector": "", "tolerations": "",
    "initContainers": "put it into the image, or before the command",
    "priorityClassName": "write it as `priority`",
    "serviceAccountName": "what machines may do: docs/accounts.md",
    "imagePullSecrets": "what machines may do: docs/accounts.md",
    "schedulerName": "a plan places jobs",
}  # fmt: skip
_READ_OF_CONTAINER = {
    "name",
    "image",
    "command",
    "args",
    "env",
    "resources",
    "workingDir",
    "imagePullPolicy",
    "volumeMounts",
}


@dataclass(frozen=True, slots=True)
class _Pods:
    name: str
    number: int
    spec: Mapping[str, Any]
    field: str

    @property
    def container(self) -> Mapping[str, Any]:
        """Return the container that trains: the first that asks for accelerators, else the first."""
        containers = [each for each in _listed(self.spec.get("containers")) if isinstance(each, Mapping)]
        if not containers:
            raise _wrong(f"{self.field}.containers", "there is no container")
        return next((each for each in containers if _accelerators(each)), containers[0])


def from_kubernetes(documents: Sequence[Any], sold: SoldMachines | None = None) -> list[ImportedJob]:
    """Turn the training objects among the documents of a file into jobs; what is beside them is listed.

    InvalidInputError, with the number of the document as ``where``, for a file without one.
    """
    sold = sold or SoldMachines()
    objects = [
        (number, item)
        for number, document in enumerate(documents)
        for item in (_listed(document.get("items")) if _kind(document) == "List" else (document,))
    ]
    training = [(number, item) for number, item in objects if _kind(item) in ("PyTorchJob", "JobSet")]
    if not training:
        number, document = objects[0] if objects else (0, None)
        foreign = foreign_file(document)
        what = f"is {foreign.words}; PyTorchJob and JobSet are imported" if foreign else "is no object of Kubernetes"
        remedy = "name a file with a PyTorchJob or a JobSet" if foreign is None else foreign.remedy
        raise InvalidInputError.single(what, where=str(number), remedy=remedy)
    others = [item for _, item in objects if _kind(item) not in ("PyTorchJob", "JobSet")]
    lost = [f"{_kind(item) or 'a document'} {_meta(item).get('name', '')}: only jobs are imported" for item in others]
    maps = {str(_meta(item).get("name")): _mapping(item.get("data")) for item in others if _kind(item) == "ConfigMap"}
    jobs = []
    for number, item in training:
        try:
            jobs.append(_job(item, maps, sold, lost))
        except InvalidInputError as error:
            raise InvalidInputError(replace(problem, where=str(number)) for problem in error.problems) from None
    return jobs


def _job(
    item: Mapping[str, Any], maps: Mapping[str, Mapping[str, Any]], sold: SoldMachines, lost: Iterable[str]
) -> ImportedJob:
    said = [line for line in lost if not line.startswith("ConfigMap")]
    spec = _mapping(item.get("spec"))
    pods = list(_replicas(spec) if _kind(item) == "PyTorchJob" else _replicated_jobs(spec))
    training = [each for each in pods if _accelerators(each.container)]
    said += [
        f"{each.name}: asks for no accelerator, and is left out" for each in pods if training and each not in training
    ]
    training = training or pods
    if not training:
        raise _wrong("spec", "there are no pods")
    counts = {_accelerators(each.container) for each in training}
    if len(counts) > 1:
        raise _wrong(
            "spec", f"pods have {' and '.join(map(str, sorted(counts)))} accelerators", "a gang's machines are alike"
        )
    first = training[0]
    machines = sum(each.number for each in training)
    labels = _labels(training)
    gang = _gang(counts.pop(), machines, labels, [each.container for each in training], sold)
    spot, places = _market(labels, said), _places(labels, sold, said)
    env: dict[str, Any] = {}
    for each in reversed(training):  # the first one's values count
        env |= _env(each.container, maps, said)
    name = job_name(_meta(item).get("name"))
    job: dict[str, Any] = {
        "name": name,
        "team": fill(
            "who pays" + (f"; the namespace is {_meta(item)['namespace']}" if "namespace" in _meta(item) else "")
        ),
        **({"labels": own} if (own := _own_labels(item)) else {}),
        "steps": fill("steps in total; an object says nothing of the work in it"),
        **gang.of_sold(sold, said).fields,
        "market": {"spot": spot},
        **({"residency": {"allow": places}} if places else {}),
        "run": {
            **({"image": str(first.container["image"])} if first.container.get("image") else {}),
            **({"workdir": str(first.container["workingDir"])} if first.container.get("workingDir") else {}),
            "command": _command(
                training, set(env), said, numbered=_kind(item) == "PyTorchJob" and "nprocPerNode" not in spec
            ),
            **({"env": env} if env else {}),
            "engine": "torchrun" if _kind(item) == "PyTorchJob" else "command",
        },
    }
    _note_rest(spec, training, said)
    return ImportedJob.of(job, said)


def _kind(document: object) -> str:
    return str(document.get("kind", "")) if isinstance(document, Mapping) else ""


def _meta(item: Any) -> Mapping[str, Any]:
    return _mapping(item.get("metadata")) if isinstance(item, Mapping) else {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else () if value is None else (value,)


def _wrong(field: str, what: str, remedy: str = "see the object's reference") -> InvalidInputError:
    return InvalidInputError.single(what, field=field, remedy=remedy)


def _whole(value: object, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(field, f"{value!r} is no number of pods", "write a whole number")
    return value


def _replicas(spec: Mapping[str, Any]) -> Iterator[_Pods]:
    replicas = _mapping(spec.get("pytorchReplicaSpecs"))
    for name in sorted(replicas, key=lambda word: (word.lower() != "master", word)):
        field = f"spec.pytorchReplicaSpecs.{name}"
        number = _whole(_mapping(replicas[name]).get("replicas", 1), f"{field}.replicas")
        template = _mapping(_mapping(replicas[name]).get("template"))
        if number:
            yield _Pods(name, number, _mapping(template.get("spec")), f"{field}.template.spec")


def _replicated_jobs(spec: Mapping[str, Any]) -> Iterator[_Pods]:
    """Yield the pods of a JobSet: replicas of jobs, each of ``parallelism`` pods."""
    for index, entry in enumerate(_listed(spec.get("replicatedJobs"))):
        field = f"spec.replicatedJobs[{index}]"
        job = _mapping(_mapping(_mapping(entry).get("template")).get("spec"))
        number = _whole(_mapping(entry).get("replicas", 1), f"{field}.replicas")
        number *= _whole(job.get("parallelism", 1), f"{field}.template.spec.parallelism")
        pod = _mapping(_mapping(job.get("template")).get("spec"))
        if number:
            yield _Pods(str(_mapping(entry).get("name", index)), number, pod, f"{field}.template.spec.template.spec")


def _amounts(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = _mapping(container.get("resources"))
    return {**_mapping(resources.get("requests")), **_mapping(resources.get("limits"))}


def _accelerators(container: Mapping[str, Any]) -> int:
    found = [str(amount) for name, amount in _amounts(container).items() if _GPU.search(name)]
    return sum(int(amount) for amount in found if amount.isdecimal())


def _labels(pods: Sequence[_Pods]) -> dict[str, list[str]]:
    """Return the labels that nodes must have, with the values that are allowed: selectors and required affinities."""
    labels: dict[str, list[str]] = {}
    for each in pods:
        for name, value in _mapping(each.spec.get("nodeSelector")).items():
            labels.setdefault(name, []).append(str(value))
        affinity = _mapping(_mapping(each.spec.get("affinity")).get("nodeAffinity"))
        required = _mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
        for term in _listed(required.get("nodeSelectorTerms")):
            for rule in _listed(_mapping(term).get("matchExpressions")):
                if _mapping(rule).get("operator") == "In":
                    labels.setdefault(str(rule.get("key")), []).extend(
                        str(value) for value in _listed(rule.get("values"))
                    )
    return {name: list(dict.fromkeys(values)) for name, values in labels.items()}


def _gang(
    count: int,
    machines: int,
    labels: Mapping[str, list[str]],
    containers: Sequence[Mapping[str, Any]],
    sold: SoldMachines,
) -> GangRequest:
    words = [value for name, values in labels.items() if _ACCELERATOR_LABEL.search(name) for value in values]
    names = [_LABELLED.get(word) or sold.accelerator(word) or "" for word in words]
    names += [sold.machines[value].accelerator for value in labels.get(_TYPE_LABEL, ()) if value in sold.machines]
    rdma = any(_FABRIC.search(name) for each in containers for name in _amounts(each))
    each = tuple(dict.fromkeys((name, count) for name in names if name and count))
    asked = f"accelerators in total, e.g. H100:{max(count, 1) * machines}; asked for are {count} on each of {machines}"
    return GangRequest(each, machines, rdma, f"{asked}{', labelled ' + ', '.join(words) if words else ''}")


def _market(labels: Mapping[str, list[str]], lost: list[str]) -> str:
    values = [value.lower() for name, found in labels.items() if _SPOT_LABEL.search(name) for value in found]
    if not values:
        lost.append("whether spot would do is not said; `spot: allowed` lets the plan choose")
        return "never"
    spot = [value in ("spot", "true") for value in values]
    return "only" if all(spot) else "allowed" if any(spot) else "never"


def _places(labels: Mapping[str, list[str]], sold: SoldMachines, lost: list[str]) -> list[str]:
    known = {region.id.region for region in sold.regions}
    asked = labels.get(_REGION_LABEL, [])
    lost.extend(f"{_REGION_LABEL} {value}: no place that is planned" for value in asked if value not in known)
    read = (_REGION_LABEL, _TYPE_LABEL)
    for name, values in labels.items():
        if name not in read and not _ACCELERATOR_LABEL.search(name) and not _SPOT_LABEL.search(name):
            lost.append(f"{name} {', '.join(values)}: machines are chosen by their accelerators")
    return [value for value in asked if value in known]


def _env(container: Mapping[str, Any], maps: Mapping[str, Mapping[str, Any]], lost: list[str]) -> dict[str, Any]:
    """Return the variables of a container; keys of secrets are references, those of maps in the file their values."""
    env: dict[str, Any] = {}
    for entry in _listed(container.get("env")):
        entry = _mapping(entry)
        name, source, value = str(entry.get("name")), _mapping(entry.get("valueFrom")), entry.get("value")
        if "secretKeyRef" in source:
            env[name] = secret_reference(name)
        elif "configMapKeyRef" in source:
            key = _mapping(source["configMapKeyRef"])
            held = maps.get(str(key.get("name")), {}).get(str(key.get("key")))
            env[name] = fill(f"key {key.get('key')} of map {key.get('name')}") if held is None else str(held)
        elif source:
            lost.append(f"env {name}: known to the cluster only ({', '.join(source)})")
        else:
            # A value that should be text and is not stands as Kubernetes would show it.
            text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            env[name] = _VARIABLE.sub(lambda match: str(env.get(match[1], match[0])), text)
    if container.get("envFrom"):
        lost.append("envFrom: name the variables under `run.env`")
    return env


def _command(pods: Sequence[_Pods], env: set[str], lost: list[str], *, numbered: bool) -> Any:
    """Return the command of each machine: the first pods' on the first ones, where they differ.

    ``numbered``: RANK and WORLD_SIZE count pods, as PyTorchJob sets them without processes a pod.
    """
    texts = [_shell_text(each.container) for each in pods]
    if any(text is None for text in texts):
        lost.append("the image's own command: it is not in the file")
        return fill(
            "what the image runs by itself, with: " + " ".join(map(str, _listed(pods[0].container.get("args"))))
        )
    command = str(texts[0])
    if len(set(texts)) > 1:
        ends = [sum(each.number for each in pods[: at + 1]) for at in range(len(pods) - 1)]
        branches = [f'"$NODE_RANK" -lt {end} ]; then\n{text}\n' for end, text in zip(ends, texts, strict=False)]
        command = "if [ " + "elif [ ".join(branches) + f"else\n{texts[-1]}\nfi"
    before = []
    if numbered and re.search(r"\b(?:RANK|WORLD_SIZE)\b", command):
        before.append('export RANK="$NODE_RANK" WORLD_SIZE="$NNODES"')
    if "JOB_COMPLETION_INDEX" in command:
        before.append('export JOB_COMPLETION_INDEX="$NODE_RANK"')
    names = sorted(set(_ELSEWHERE.findall(command)) - env - _GIVEN)
    lost.extend(f"{name} is used by the command and set in the cluster only" for name in names)
    return as_bash("\n".join([*before, command]))


def _shell_text(container: Mapping[str, Any]) -> str | None:
    """Return command and arguments for a shell; None where the image's own command is meant."""
    command, args = ([str(word) for word in _listed(container.get(part))] for part in ("command", "args"))
    if not command:
        return None
    words = [*command, *args]
    if len(words) == 3 and re.fullmatch(r"(?:/\S*/)?(?:ba|da|z)?sh", words[0]) and re.fullmatch(r"-\w*c", words[1]):
        return _VARIABLE.sub(r"${\1}", words[2]).strip()
    return " ".join(_word(word) for word in words)


def _word(word: str) -> str:
    """Return the word in quotes; a variable in it stays one."""
    if not _VARIABLE.search(word):
        return shlex.quote(word)
    text = _VARIABLE.sub(r"${\1}", re.sub(r'([\\"`]|\$(?!\(\w+\)))', r"\\\1", word))
    return f'"{text}"'


def _own_labels(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the object's labels that somebody chose; those with a domain belong to tools."""
    return {str(k): str(v) for k, v in _mapping(_meta(item).get("labels")).items() if "/" not in str(k)}


def _note_rest(spec: Mapping[str, Any], pods: Sequence[_Pods], lost: list[str]) -> None:
    policy = {**_mapping(spec.get("runPolicy")), **spec}
    if isinstance(seconds := policy.get("activeDeadlineSeconds"), int):
        lost.append(run_limit("activeDeadlineSeconds", timedelta(minutes=-(-seconds // 60))))
    lost.extend(
        f"{field}: {_PLACED}" for field in ("backoffLimit", "failurePolicy", "elasticPolicy") if field in policy
    )
    for each in pods:
        lost.extend(
            f"{field}: {_POD_WHY.get(field, 'no such thing in a job')}"
            for field in each.spec
            if field not in ("volumes", "affinity") and _POD_WHY.get(field, "x")
        )
        lost.extend(
            f"volume {volume.get('name')}: name data under `data`, put files into the image"
            for volume in map(_mapping, _listed(each.spec.get("volumes")))
            if "emptyDir" not in volume
        )
        lost.extend(
            f"{name}: no such thing in a job" for name in each.container if name not in _READ_OF_CONTAINER | {"envFrom"}
        )
        if len(_listed(each.spec.get("containers"))) > 1:
            lost.append(f"{each.name}: containers beside {each.container.get('name', 'the first')}")
