"""Build the job that another tool's file becomes: carry what can be carried, list what cannot, guess nothing.

Such a file says nothing of the work (steps, speed, deadline), so the job holds ``{FILL IN: ...}`` where a user has to
write; every command refuses it until that is done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from pricing.machines import Accelerator, Machine
from pricing.places import Region
from router.jobs.fields import FILL_IN
from router.jobs.quantities import format_duration

# Words of bash that /bin/sh of many images lacks; the agent starts commands with /bin/sh.
_BASH = re.compile(
    r"\[\[|<<<|<\(|&>|\$'|(?<!\$)\(\(|[A-Za-z_]\w*=\(|\$\{\w+(?:::|:\d|//|\^|,|\[)|\[ .* == |pipefail"
    r"|(?:^|[;&|\s])(?:source|function|shopt|declare|mapfile|conda activate)\s",
    re.MULTILINE,
)
_SECRET_PREFIX = "secret:env:STEPFARE_JOB_"
_END_OF_BASH = "END_OF_IMPORTED_COMMAND"


@dataclass(frozen=True, slots=True)
class ImportedJob:
    """A file imported as a job.

    ``job_yaml`` is plain data in the order in which to write it; ``not_carried`` what was in the file and is not in the
    job, a sentence each; ``to_fill`` the dotted fields that hold ``{FILL IN: ...}``.
    """

    job_yaml: dict[str, Any]
    not_carried: tuple[str, ...]
    to_fill: tuple[str, ...]

    @classmethod
    def of(cls, job: dict[str, Any], lost: Iterable[str]) -> ImportedJob:
        """Return the imported job, each sentence once."""
        return cls(job, tuple(dict.fromkeys(lost)), tuple(_fields_to_fill(job)))


class AcceleratorNames(Protocol):
    """The names under which accelerators are known elsewhere."""

    def find(self, name: str, memory_gib: float | None) -> Accelerator | str:
        """Return the accelerator of that name, or why there is none."""

    def same_model(self, name: str, accelerator: str) -> bool:
        """Return whether the name names the accelerator's model, memory and form aside."""


@dataclass(frozen=True)
class SoldMachines:
    """The machines, places and accelerators that are sold, by which an import understands names. Empty: any."""

    machines: Mapping[str, Machine] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    names: AcceleratorNames | None = None

    @property
    def accelerators(self) -> list[str]:
        return sorted({machine.accelerator for machine in self.machines.values()})

    def accelerator(self, name: str) -> str | None:
        """Return the book's accelerator of a driver's, a label's or a person's name; None where it is not clear."""
        word = name.replace("_", "-")
        exact = next((known for known in self.accelerators if known.lower() == word.lower()), None)
        if exact is not None or self.names is None:
            return exact
        # Without the digit of the socket, which would run into the memory: A100-SXM4-80GB.
        found = self.names.find(re.sub(r"(?i)SXM\d", "SXM", word), None)
        return None if isinstance(found, str) else found.name

    def candidates(self, name: str) -> list[str]:
        """Return the accelerators of the model that a name names, memory and form aside."""
        names = self.names
        return [] if names is None else [known for known in self.accelerators if names.same_model(name, known)]

    def sizes(self, accelerator: str) -> tuple[int, ...]:
        """Return how many of the accelerator machines have, each number once."""
        of_machines = {m.accelerator_count for m in self.machines.values() if m.accelerator == accelerator}
        return tuple(sorted(of_machines))


@dataclass(frozen=True, slots=True)
class GangRequest:
    """The machines that a file asks for: how many, and what each may have (``(accelerator, count)``, alternatives).

    ``rdma``: they must be joined by RDMA. ``hint`` is what a user reads where no accelerator is known.
    """

    per_machine: tuple[tuple[str, int], ...]
    machines: int
    rdma: bool
    hint: str = "accelerators in total, e.g. H100:8"

    @property
    def totals(self) -> list[str]:
        return [f"{name}:{count * self.machines}" for name, count in self.per_machine]

    @property
    def fields(self) -> dict[str, Any]:
        hint = "measured with this gang; or replace `profile` by a `transformer` shape"
        fabric = "rdma" if self.rdma else "ethernet"
        points = [
            {
                "accelerators": total,
                "seconds_per_step": fill(hint),
                **({"placement": f"{self.machines}x{count}", "fabric": fabric} if self.machines > 1 else {}),
            }
            for total, (_, count) in zip(self.totals, self.per_machine, strict=True)
        ]
        return {
            "workload": {"profile": points} if points else fill("measured `profile` points or a `transformer` shape"),
            "gang": {
                "accelerators": self.totals or fill(self.hint),
                "machines": self.machines,
                **({"rdma": "required"} if self.rdma else {}),
            },
        }

    def of_sold(self, sold: SoldMachines, lost: list[str]) -> GangRequest:
        """Return the alternatives that somebody sells; append the others to ``lost``."""
        kept = []
        for name, count in self.per_machine:
            sizes = sold.sizes(name)
            if not sold.machines or count in sizes:
                kept.append((name, count))
            elif sizes:
                have = ", ".join(map(str, sizes))
                lost.append(f"{name}:{count}: nobody sells a machine with {count}; they have {have}")
            else:
                lost.append(f"{name}: no accelerator that is planned; this alternative is left out")
        asked = ", ".join(f"{name}:{count}" for name, count in self.per_machine)
        hint = f"{self.hint}; asked for is {asked} a machine" if asked and not kept else self.hint
        return GangRequest(tuple(dict.fromkeys(kept)), self.machines, self.rdma, hint)


def fill(hint: str) -> dict[str, str]:
    """Return the mark of a value that a user has to write."""
    return {FILL_IN: hint}


def _fields_to_fill(node: Any, path: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        if set(node) == {FILL_IN}:
            yield path
        else:
            for key, value in node.items():
                yield from _fields_to_fill(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _fields_to_fill(value, f"{path}.{index}")


def without_marks(node: Any, stand_ins: Mapping[str, Any], path: str = "") -> Any:
    """Return the job with values in place of its marks, by the last word of their field, so that it can be checked."""
    if isinstance(node, dict):
        if set(node) == {FILL_IN}:
            return stand_ins.get(path, "x")
        return {key: without_marks(value, stand_ins, str(key)) for key, value in node.items()}
    return [without_marks(value, stand_ins, path) for value in node] if isinstance(node, list) else node


def job_name(name: object) -> str | dict[str, str]:
    """Return the name as a job may have it, or a mark."""
    slug = re.sub(r"[^a-z0-9]+", "-", str(name or "").lower())[:63].strip("-")
    return slug or fill("lower-case letters, digits and -")


def secret_reference(name: object) -> str:
    """Return the reference to a secret of whoever applies."""
    return f"{_SECRET_PREFIX}{name}"


def run_limit(field: str, limit: timedelta) -> str:
    """Return what is said of a limit on the time of a run, which is no deadline."""
    words = format_duration(limit)
    return f"{field}: a limit of {words} for the run; write `deadline: +{words}` if it has to be done by then"


def as_bash(command: str) -> str:
    """Return the command for bash where it has words that ``sh`` lacks, which is how tasks and scripts are run."""
    if not _BASH.search(command) or _END_OF_BASH in command:
        return command
    return f"exec bash /dev/fd/3 3<<'{_END_OF_BASH}'\n{command}\n{_END_OF_BASH}"


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file of another tool in words, such as ``a SkyPilot task``, and what to do with it."""

    words: str
    remedy: str


_DESCRIBE = "describe the training as a job file: docs/job-file.md"
_KUBERNETES_KINDS = frozenset({"PyTorchJob", "JobSet"})
# Fields that all have to be there, and the file that has them.
_FOREIGN: Sequence[tuple[frozenset[str], str]] = (
    (frozenset({"services"}), "a Docker Compose file"),
    (frozenset({"cluster_name", "provider"}), "a Ray cluster configuration"),
    (frozenset({"cluster_name", "available_node_types"}), "a Ray cluster configuration"),
    (frozenset({"entrypoint", "runtime_env"}), "a Ray job"),
    (frozenset({"workerPoolSpecs"}), "a Vertex AI job"),
    (frozenset({"TrainingJobName"}), "a SageMaker job"),
    (frozenset({"compute", "environment", "command"}), "an Azure ML job"),
    (frozenset({"jobs", "on"}), "a GitHub Actions workflow"),
    (frozenset({"entrypoint", "searcher"}), "a Determined experiment"),
    (frozenset({"compute", "integrations"}), "a MosaicML run"),
)
_DSTACK = frozenset({"task", "service", "dev-environment", "fleet", "volume", "gateway"})


def foreign_file(document: object, file: str = "FILE") -> ForeignFile | None:
    """Return whose file a YAML document is; None for a job file, and for what is not known."""
    if isinstance(document, list):
        plays = any(isinstance(item, dict) and {"hosts", "tasks"} <= item.keys() for item in document)
        return ForeignFile("an Ansible playbook", _DESCRIBE) if plays else None
    if not isinstance(document, dict) or {"gang", "workload"} & document.keys():
        return None
    if "apiVersion" in document and "kind" in document:
        known = document["kind"] in _KUBERNETES_KINDS
        remedy = f"turn it into a job: stepfare import k8s {file}" if known else _DESCRIBE
        return ForeignFile(f"a {document['kind']} of Kubernetes", remedy)
    if document.get("type") in _DSTACK:
        return ForeignFile("a dstack configuration", _DESCRIBE)
    found = next((words for fields, words in _FOREIGN if fields <= document.keys()), None)
    if found is not None:
        return ForeignFile(found, _DESCRIBE)
    if "resources" in document:
        return ForeignFile("a SkyPilot task", f"turn it into a job: stepfare import sky {file}")
    return None


def is_script(text: str) -> bool:
    """Return whether the text has a line for sbatch."""
    return re.search(r"^#SBATCH\s", text, re.MULTILINE) is not None
