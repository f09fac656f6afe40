"""The environment of the training process: the machine's, then the job's, then the gang's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from router.agent.config import AgentConfig, AgentConfigError

RESUME_STEP, RESUME_MANIFEST = "STEPFARE_RESUME_STEP", "STEPFARE_RESUME_MANIFEST"
CHECKPOINT_SECONDS, CHECKPOINT_STORE = "STEPFARE_CHECKPOINT_SECONDS", "STEPFARE_CHECKPOINT_STORE"


@dataclass(frozen=True)
class JobEnvironment:
    """The variables that the env file gives the job. The values of ``secret`` are also masked in its output."""

    plain: Mapping[str, str]
    secret: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Given(plain={sorted(self.plain)}, secret={sorted(self.secret)})"


def read_job_environment(path: str | None) -> JobEnvironment:
    """Read the env file: ``{"plain": {NAME: value}, "secret": {NAME: value}}``.

    Raises :class:`AgentConfigError`, which quotes no value.
    """
    if path is None:
        return JobEnvironment({}, {})
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AgentConfigError(f"{path}: {type(error).__name__}") from None
    if not isinstance(content, dict) or set(content) - {"plain", "secret"}:
        raise AgentConfigError(f"{path}: not an object of `plain` and `secret`")
    parts = [content.get("plain", {}), content.get("secret", {})]
    for part in parts:
        if not isinstance(part, dict) or not all(isinstance(value, str) for value in part.values()):
            raise AgentConfigError(f"{path}: not names with strings")
        for name, value in part.items():
            if not name or "=" in name or "\0" in name + value:
                raise AgentConfigError(f"{path}: not the name or value of a variable")
    return JobEnvironment(*parts)


def gang_environment(
    config: AgentConfig, master_address: str, master_port: int, addresses: Sequence[str] = ()
) -> dict[str, str]:
    """Return the variables that ``torch.distributed`` reads with ``init_method="env://"``, and stepfare's own.

    ``WORLD_SIZE`` counts processes. ``RANK`` and ``LOCAL_RANK`` are set only for one process per node: with more,
    whoever starts them numbers them.

    The engine torchrun also gets the ``PET_`` names, from which the command ``torchrun`` takes its own options, so that
    ``torchrun train.py`` needs no arguments about the gang. The checkpoint to resume from, the saving interval and the
    checkpoint store are included where they are known. ``SKYPILOT_`` names are those that SkyPilot gives a task (0.14),
    so that imported commands run unchanged; ``SKYPILOT_NODE_IPS``, one address a line, is set only where all are known.
    """
    address = {"MASTER_ADDR": master_address, "MASTER_PORT": str(master_port)}
    shape = {"NNODES": str(config.nodes), "NODE_RANK": str(config.rank)}
    values = {
        **address,
        **shape,
        "WORLD_SIZE": str(config.nodes * config.processes_per_node),
        "STEPFARE_ATTEMPT": config.attempt,
        "STEPFARE_JOB": config.job,
        "SKYPILOT_NODE_RANK": str(config.rank),
        "SKYPILOT_NUM_NODES": str(config.nodes),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(config.processes_per_node),
    }
    if addresses:
        values["SKYPILOT_NODE_IPS"] = "\n".join(addresses)
    if config.processes_per_node == 1:
        values |= {"RANK": str(config.rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    if config.engine == "torchrun":
        values |= {f"PET_{name}": value for name, value in {**address, **shape}.items()}
        values["PET_NPROC_PER_NODE"] = str(config.processes_per_node)
    if config.resume_manifest:
        values[RESUME_STEP] = str(config.resume_step)
        values[RESUME_MANIFEST] = config.resume_manifest
    if config.checkpoint_seconds is not None:
        values[CHECKPOINT_SECONDS] = f"{config.checkpoint_seconds:g}"
    if config.checkpoint_store:
        values[CHECKPOINT_STORE] = config.checkpoint_store
    return values
