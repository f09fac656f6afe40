"""The configuration of one agent: a JSON file that is read once.

It names the files that hold secrets and holds none itself, except an archive's URL, which may be signed. The file is
therefore as private as they are.
"""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from router.agent.protocol import LOOPBACK, PREFLIGHT_OFF, PREFLIGHTS

ENGINES = ("torchrun", "ray", "slurm", "command")
CODE_KINDS = ("none", "image", "archive", "git")
GPU_VENDORS = ("nvidia", "amd")


class AgentConfigError(Exception):
    """The configuration cannot be used; the message names the key."""


@dataclass(frozen=True)
class CodeSource:
    """The place that the code comes from.

    ``source``: an image's name, an archive's URL (https, or file), or a repository's URL. ``version``: the archive's
    SHA-256 in hex, or the repository's commit, tag or branch.
    """

    kind: str = "none"
    source: str = ""
    version: str = ""


@dataclass(frozen=True)
class FabricSetup:
    """The needs of a job on a fabric; lists are separated by spaces, "" is none.

    ``environment``: NAME=value of each variable. ``script``: a shell script of the machine that sets more. ``folders``
    of the machine that an image without them gets under their own name; ``libraries`` are in them.
    ``present``: what a machine has whose fabric is set up.
    """

    name: str = ""
    environment: str = ""
    script: str = ""
    folders: str = ""
    libraries: str = ""
    present: str = ""


@dataclass(frozen=True)
class AgentConfig:
    """The configuration of one rank of one attempt. Times are in seconds, sizes in bytes.

    ``master_address``: null lets the coordinator name it once all ranks have called. ``master_port``: 0 lets rank 0
    pick a free one. ``address``: how the other ranks reach this one; null stands for the address of the route to the
    coordinator. ``resume_step`` and ``resume_manifest``: the last checkpoint that was confirmed before, 0 and "" for
    none. ``checkpoint_seconds``: how often the training is to save; null leaves that to the training.
    ``checkpoint_store``: the URL where its checkpoints are stored, and ``data`` that of its data; "" if none is given.
    ``lease_seconds`` and ``lifetime_seconds``: when the machine ends by itself
    (:class:`~router.agent.lease.MachineLease`), null for never; ``power_off``: it is switched off then, else its
    processes end. ``accelerator``: the name of those that were ordered, which the checks of ``preflight`` compare,
    as they do the bus bandwidth of an all-reduce with ``assumed_gb_per_s``, the plan's; null: it assumes none.
    ``fabric``: what the network between the machines needs.
    ``gpu_vendor``: whose way of giving GPUs to a container is used.
    """

    attempt: str
    job: str
    rank: int
    nodes: int
    command: str
    workdir: str
    coordinator: str
    token_file: str
    log_folder: str
    spool_folder: str
    engine: str = "torchrun"
    processes_per_node: int = 1
    code: CodeSource = CodeSource()
    fabric: FabricSetup = FabricSetup()
    env_file: str | None = None
    ca_file: str | None = None
    address: str | None = None
    master_address: str | None = None
    master_port: int = 29500
    gpus: bool = False
    gpu_vendor: str = "nvidia"
    mounts: tuple[str, ...] = ()
    heartbeat_seconds: float = 10.0
    gang_seconds: float = 900.0
    grace_seconds: float = 30.0
    farewell_seconds: float = 600.0
    log_bytes: int = 64 * 2**20
    log_files: int = 4
    spool_bytes: int = 8 * 2**20
    allow_http: bool = False
    metadata: str = "none"
    metadata_url: str | None = None
    notice_poll_seconds: float | None = None
    resume_step: int = 0
    resume_manifest: str = ""
    checkpoint_seconds: float | None = None
    checkpoint_store: str = ""
    preflight: str = PREFLIGHT_OFF
    assumed_gb_per_s: float | None = None
    accelerator: str = ""
    lease_seconds: float | None = None
    lifetime_seconds: float | None = None
    power_off: bool = False
    data: str = ""


_TYPES_BY_ANNOTATION: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str | None": (str, type(None)),
    "float | None": (int, float, type(None)),
}


def read_config(path: str) -> AgentConfig:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AgentConfigError(f"{path}: {error}") from error
    return parse_config(content)


def parse_config(content: Any) -> AgentConfig:
    """Return the configuration in decoded JSON.

    Unknown and missing keys, wrong types and wrong values raise :class:`AgentConfigError`.
    """
    if not isinstance(content, dict):
        raise AgentConfigError("the configuration is not an object")
    values = dict(content)
    code, fabric = values.pop("code", {}), values.pop("fabric", {})
    mounts = values.pop("mounts", [])
    for name, part in (("code", code), ("fabric", fabric)):
        if not isinstance(part, dict):
            raise AgentConfigError(f"{name}: not an object")
    if not isinstance(mounts, list) or not all(isinstance(mount, str) for mount in mounts):
        raise AgentConfigError("mounts: not a list of strings")
    config = AgentConfig(
        **_checked_fields(AgentConfig, values, ""),
        code=CodeSource(**_checked_fields(CodeSource, code, "code.")),
        fabric=FabricSetup(**_checked_fields(FabricSetup, fabric, "fabric.")),
        mounts=tuple(mounts),
    )
    _check(config)
    return config


def _checked_fields(kind: type, values: dict[str, Any], prefix: str) -> dict[str, Any]:
    known = {field.name: field for field in fields(kind)}
    for name, value in values.items():
        allowed = _TYPES_BY_ANNOTATION.get(str(known[name].type)) if name in known else None
        if allowed is None:
            raise AgentConfigError(f"{prefix}{name}: unknown")
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise AgentConfigError(f"{prefix}{name}: not of type {known[name].type}")
    for name, field in known.items():
        if field.default is MISSING and name not in values:
            raise AgentConfigError(f"{prefix}{name}: missing")
    return values


_TIMES = (
    *("heartbeat_seconds", "gang_seconds", "grace_seconds", "farewell_seconds"),
    *("checkpoint_seconds", "lease_seconds", "lifetime_seconds"),
)


def _check(config: AgentConfig) -> None:
    for name in ("attempt", "job"):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", getattr(config, name)):
            raise AgentConfigError(f"{name}: letters, digits, '.', '_' and '-' only")
    limits = {
        "resume_step": 0,
        "nodes": 1,
        "processes_per_node": 1,
        "log_bytes": 1024,
        "log_files": 1,
        "spool_bytes": 1024,
    }
    for name, minimum in limits.items():
        if getattr(config, name) < minimum:
            raise AgentConfigError(f"{name}: less than {minimum}")
    for name in _TIMES:
        value = getattr(config, name)
        if value is not None and not 0 < value < 1e7:
            raise AgentConfigError(f"{name}: not between 0 and 10,000,000")
    _check_rank(config)
    _check_words(config)
    _check_coordinator(config)
    _check_metadata(config)
    _check_code(config)


def _check_rank(config: AgentConfig) -> None:
    if not 0 <= config.rank < config.nodes:
        raise AgentConfigError("rank: not below nodes")
    if not 0 <= config.master_port < 65535:
        raise AgentConfigError("master_port: not a port")
    if config.master_address is not None and config.master_port == 0:
        raise AgentConfigError("master_port: has to be given with master_address")


def _check_words(config: AgentConfig) -> None:
    words = (
        ("engine", config.engine, ENGINES),
        ("gpu_vendor", config.gpu_vendor, GPU_VENDORS),
        ("preflight", config.preflight, PREFLIGHTS),
        ("code.kind", config.code.kind, CODE_KINDS),
    )
    for name, word, allowed in words:
        if word not in allowed:
            raise AgentConfigError(f"{name}: not one of {', '.join(allowed)}")


def metadata_module(metadata: str) -> str | None:
    """Return the module that talks to the given metadata service; None for ``none``.

    Raises :class:`AgentConfigError`.
    """
    if metadata == "none":
        return None
    name = f"{__package__}.imds_{metadata}"
    if not re.fullmatch("[a-z]+", metadata) or importlib.util.find_spec(name) is None:
        raise AgentConfigError("metadata: no such metadata service")
    return name


def _check_metadata(config: AgentConfig) -> None:
    metadata_module(config.metadata)
    if config.notice_poll_seconds is not None and not 0 < config.notice_poll_seconds < 1e7:
        raise AgentConfigError("notice_poll_seconds: not between 0 and 10,000,000")
    if config.metadata_url is None or config.metadata == "files":
        return
    url = urlsplit(config.metadata_url)
    if url.scheme != "http" or not url.hostname or url.username or url.query or url.fragment:
        raise AgentConfigError("metadata_url: not the http URL of a service")


def _check_coordinator(config: AgentConfig) -> None:
    url = urlsplit(config.coordinator)
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query or url.fragment:
        raise AgentConfigError("coordinator: not the http(s) URL of a service")
    if url.scheme == "http" and url.hostname not in LOOPBACK and not config.allow_http:
        raise AgentConfigError("coordinator: http would send the token in the clear; use https, or set allow_http")


def _check_code(config: AgentConfig) -> None:
    code = config.code
    if code.kind != "none" and (not code.source or code.source.startswith("-")):
        raise AgentConfigError("code.source: missing")
    if code.kind == "archive" and not re.fullmatch(r"[0-9a-f]{64}", code.version):
        raise AgentConfigError("code.version: not a SHA-256 in lower-case hex")
    if code.kind == "archive" and urlsplit(code.source).scheme not in ("https", "http", "file"):
        raise AgentConfigError("code.source: not an https, http or file URL")
    if code.kind == "git" and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", code.version):
        raise AgentConfigError("code.version: not a commit, tag or branch")
    # Every user of the machine can read git's command line.
    if code.kind == "git" and urlsplit(code.source).password:
        raise AgentConfigError("code.source: holds a password; give git a credential through the environment")
    if code.kind == "image" and config.engine == "slurm":
        raise AgentConfigError("code.kind: slurm starts processes on the machines, not in an image")
