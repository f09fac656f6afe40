"""Check a machine before its gang meets: accelerators and driver, containers, disk, clock, and the stores of the job.

What a check measures is reported with it. A short all-reduce over the whole gang follows, by the torch of the job's
image.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from router.agent.config import AgentConfig
from router.agent.gpu_health import SMI_SECONDS, run_tool
from router.agent.imds import NoticeSourceError
from router.agent.protocol import LEAST_SHARE
from router.agent.supervise import ProcessExit

# Certificates and signed requests are refused by a clock that is minutes off.
MOST_CLOCK_SECONDS = 60.0
LEAST_FREE_GIB = 2.0
WRITTEN_MIB = 64
REACH_SECONDS, DOCKER_SECONDS = 5.0, 20.0
_GIB = 2**30
# What a failed step of the boot script said (router/controller/workspace/bootstrap.py).
BOOT_PROBLEMS, _LONGEST_PROBLEM = "boot-problems", 500
_KFD, _KFD_NODES = Path("/dev/kfd"), Path("/sys/class/kfd/kfd/topology/nodes")
_HOSTS = {"s3": "s3.amazonaws.com", "gs": "storage.googleapis.com"}
_WEB = {"http": 80, "https": 443}
_AZURE = ("abfs", "abfss")
_STORES = (*_HOSTS, *_AZURE, *_WEB)
# Stores that speak S3 are named by these variables of the job; the first counts.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")

RunTool = Callable[[list[str], float], tuple[int, str]]


@dataclass(frozen=True)
class PreflightCheck:
    """The result of one check: ``problem`` is "" where the machine is fit, ``what`` says what was found."""

    name: str
    problem: str = ""
    what: str = ""


def check_machine(
    config: AgentConfig, environment: Mapping[str, str], date: Callable[[], float | None], run: RunTool = run_tool
) -> list[PreflightCheck]:
    """Return the checks of this machine, in the order in which they matter.

    ``date`` asks the coordinator for the time, in seconds since 1970; None: it says none.
    """
    is_nvidia = config.gpus and config.gpu_vendor == "nvidia"
    checks = [check_disk(Path(config.workdir)), check_clock(date(), time.time())]  # noqa: TID251  (the machine's own)
    if config.checkpoint_store:
        checks.append(check_reach(config.checkpoint_store, environment))
    # Other URLs are words of the training's own tools, or folders that its code makes.
    if config.data.partition("://")[0] in _STORES:
        checks.append(check_reach(config.data, environment, name="data"))
    if config.code.kind == "image":
        checks.insert(0, check_containers(environment, run, gpus=is_nvidia))
    if config.gpus:
        checks.insert(0, check_gpus(config, environment, run) if is_nvidia else check_kfd(config.processes_per_node))
    boot = check_boot(Path(config.log_folder))
    return [boot, *checks] if boot.problem else checks


def check_boot(log_folder: Path) -> PreflightCheck:
    """Check that the steps of the machine's boot script ended well, by what they left in the log folder."""
    try:
        text = (log_folder / BOOT_PROBLEMS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return PreflightCheck("boot")
    return PreflightCheck("boot", " ".join(text.split())[-_LONGEST_PROBLEM:])


def check_kfd(count: int, device: Path = _KFD, nodes: Path = _KFD_NODES) -> PreflightCheck:
    """Check that AMD's driver is loaded, and lists as many accelerators as were ordered (Linux, kfd_topology.c)."""
    if not device.exists():
        return PreflightCheck("gpus", f"no {device}: the driver is missing in the machine's image")
    if not nodes.is_dir():
        return PreflightCheck("gpus", "", "not counted: the driver lists none")
    # A node that is a processor has the id 0.
    found = sum(file.read_text(encoding="ascii").strip() != "0" for file in nodes.glob("*/gpu_id"))
    problem = f"{found} of {count} accelerators are there" if found != count else ""
    return PreflightCheck("gpus", problem, f"{found} accelerators")


def check_gpus(config: AgentConfig, environment: Mapping[str, str], run: RunTool) -> PreflightCheck:
    """Check that the driver is loaded, and shows as many accelerators of the name as were ordered."""
    tool = shutil.which("nvidia-smi", path=environment.get("PATH"))
    if tool is None:
        return PreflightCheck("gpus", "no nvidia-smi: the driver is missing in the machine's image")
    try:
        code, text = run([tool, "--query-gpu=name,driver_version", "--format=csv,noheader"], SMI_SECONDS)
    except NoticeSourceError as error:
        return PreflightCheck("gpus", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if code != 0 or not lines:
        return PreflightCheck("gpus", f"nvidia-smi: exit code {code}: {' '.join(lines)[:200] or 'no output'}")
    names = [line.rpartition(",")[0].strip() for line in lines]
    found = f"{len(names)} x {names[0]}, driver {lines[0].rpartition(',')[2].strip()}"
    if len(names) != config.processes_per_node:
        return PreflightCheck("gpus", f"{len(names)} of {config.processes_per_node} accelerators are there", found)
    # H100-NVL is "NVIDIA H100 NVL", A100-80GB "NVIDIA A100-SXM4-80GB": the first part is the model.
    model = config.accelerator.partition("-")[0].upper()
    others = [name for name in names if model not in name.upper().replace("-", " ").split()]
    return PreflightCheck(
        "gpus", f"{others[0]} where {config.accelerator} was ordered" if model and others else "", found
    )


def check_containers(environment: Mapping[str, str], run: RunTool, *, gpus: bool) -> PreflightCheck:
    """Check that Docker runs, and knows the runtime for GPUs where there are some."""
    tool = shutil.which("docker", path=environment.get("PATH"))
    if tool is None:
        return PreflightCheck("containers", "no docker: the machine's image has no container runtime")
    try:
        code, text = run([tool, "info", "--format", "{{json .Runtimes}}"], DOCKER_SECONDS)
    except (NoticeSourceError, OSError) as error:
        return PreflightCheck("containers", str(error))
    if code != 0:
        return PreflightCheck("containers", f"docker info: exit code {code}: {' '.join(text.split())[:200]}")
    try:
        runtimes = sorted(json.loads(text))
    except (ValueError, TypeError):
        runtimes = []
    is_blind = gpus and runtimes and "nvidia" not in runtimes
    problem = "Docker knows no runtime nvidia: the container toolkit is missing or not configured" if is_blind else ""
    return PreflightCheck("containers", problem, f"runtimes {', '.join(runtimes) or 'not known'}")


def check_disk(folder: Path) -> PreflightCheck:
    """Check that the job's folder can be written and has room, and measure how fast it is."""
    file = folder / ".stepfare-preflight"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free / _GIB
        began = time.monotonic()
        with file.open("wb") as out:
            for _ in range(WRITTEN_MIB):
                out.write(os.urandom(2**20))
            out.flush()
            os.fsync(out.fileno())
        speed = WRITTEN_MIB / 1024 / max(time.monotonic() - began, 1e-6)
    except OSError as error:
        return PreflightCheck("disk", f"{folder}: {error.strerror or error}")
    finally:
        file.unlink() if file.exists() else None
    problem = f"{folder} has {free:.1f} GiB left" if free < LEAST_FREE_GIB else ""
    return PreflightCheck("disk", problem, f"{free:.0f} GiB free, writes {speed:.2f} GiB/s")


def check_clock(theirs: float | None, ours: float) -> PreflightCheck:
    if theirs is None:
        return PreflightCheck("clock", "", "not compared: the coordinator says no time")
    ahead = ours - theirs
    problem = f"the clock is {ahead:+.0f} s off the coordinator's" if abs(ahead) > MOST_CLOCK_SECONDS else ""
    return PreflightCheck("clock", problem, f"{ahead:+.0f} s")


def check_reach(url: str, environment: Mapping[str, str], *, name: str = "store") -> PreflightCheck:
    """Check that the host of a store can be reached; whether it may be read is not asked."""
    if url.partition("://")[0] == "file" or "://" not in url:
        path = urlsplit(url).path
        there = Path(path).exists() or Path(path).parent.exists()
        return PreflightCheck(name, "" if there else f"{path}: no such folder", path)
    try:
        host, port = _address_of(url, environment)
    except ValueError as error:
        return PreflightCheck(name, f"no URL of a store: {error}")
    try:
        with socket.create_connection((host, port), REACH_SECONDS):
            return PreflightCheck(name, "", f"{host}:{port} is reached")
    except OSError as error:
        return PreflightCheck(name, f"{host}:{port}: {error.strerror or error}")


def _address_of(url: str, environment: Mapping[str, str]) -> tuple[str, int]:
    """Return the host and port that answer for a store's URL. ValueError."""
    parts = urlsplit(url)
    endpoint = parse_qs(parts.query).get("endpoint_override", [""])[0]
    if parts.scheme == "s3" and not endpoint:
        endpoint = next((environment[each] for each in _ENDPOINTS if environment.get(each)), "")
    if endpoint:
        parts = urlsplit(endpoint if "//" in endpoint else f"https://{endpoint}")
    host = _HOSTS.get(parts.scheme) or parts.hostname or ""
    if parts.scheme in _AZURE and "." not in host:
        host = f"{host}.blob.core.windows.net"
    return host, (parts.port if parts.scheme in _WEB else None) or _WEB.get(parts.scheme, 443)


def describe_problems(checks: list[PreflightCheck]) -> str:
    """Return what is wrong with the machine in words; "" if nothing is."""
    return "; ".join(f"{check.name}: {check.problem}" for check in checks if check.problem)


MODULE, RESULT = "stepfare_all_reduce", "all-reduce.json"
_NO_PYTHON = (126, 127)


@dataclass(frozen=True)
class AllReduceResult:
    """The measured bus bandwidth in GB/s, None where nothing was measured, and the check that it makes."""

    gb_per_s: float | None
    check: PreflightCheck


def with_all_reduce(config: AgentConfig) -> AgentConfig:
    """Return the configuration whose command measures the all-reduce, in the job's image or folder."""
    kind = "gpus" if config.gpus else "cpu"
    return replace(config, engine="command", command=f"exec python3 -m {MODULE} {kind}")


def judge_all_reduce(
    config: AgentConfig, content: dict[str, Any] | None, end: ProcessExit | None, last_line: str
) -> AllReduceResult:
    """Return the result of a measurement by what it wrote; ``end`` None is the end of its time.

    What the image lacks is no fault of the machines; an all-reduce that failed is one.
    """
    content = content or {}
    speed, skipped = content.get("gb_per_s"), content.get("skipped")
    if end is not None and end.code in _NO_PYTHON:
        skipped = "the job's image has no python3"
    if isinstance(skipped, str):
        return AllReduceResult(None, PreflightCheck("all-reduce", "", f"not measured: {skipped}"))
    if not isinstance(speed, (int, float)) or not 0 < speed < float("inf"):
        why = "it did not end in time"
        if end is not None:
            words = f"exit code {end.code}" if end.signal is None else f"signal {end.signal}"
            why = f"{words}: {last_line or 'no output'}"
        return AllReduceResult(None, PreflightCheck("all-reduce", f"it failed over {config.nodes} machines: {why}"))
    assumed = config.assumed_gb_per_s
    what = f"{speed:.3g} GB/s over {config.nodes} machines"
    if assumed is not None and speed < LEAST_SHARE * assumed:
        problem = f"{what}, less than half of the {assumed:.3g} GB/s that the plan assumes"
        return AllReduceResult(speed, PreflightCheck("all-reduce", problem, what))
    beside = "" if assumed is None else f", the plan assumes {assumed:.3g}"
    return AllReduceResult(speed, PreflightCheck("all-reduce", "", what + beside))
