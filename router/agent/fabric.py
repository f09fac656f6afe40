"""Give a job what the network between its machines needs; the plan's row of it is the agent's configuration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from router.agent.config import AgentConfig
from router.agent.preflight import PreflightCheck

_LIBRARIES, _FOLDERS, _PATH = "STEPFARE_LIBRARIES", "STEPFARE_FABRIC", "LD_LIBRARY_PATH"
_MOUNTED = "/opt/stepfare/fabric"
_SCRIPT_SECONDS = 30.0
# An image that has a folder itself keeps it: its libraries fit each other.
IN_CONTAINER = (
    f'for folder in ${_FOLDERS}; do [ -e "$folder" ] || '
    f'{{ mkdir -p "${{folder%/*}}" && ln -s "{_MOUNTED}$folder" "$folder"; }}; done; '
    f'[ -z "${_LIBRARIES}" ] || export {_PATH}="${_LIBRARIES}${{{_PATH}:+:${_PATH}}}"; '
)


def fabric_environment(config: AgentConfig, given: Mapping[str, str], machine: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the fabric needs. What the job is ``given`` stays as it is, its library path first."""
    fabric = config.fabric
    if not fabric.name:
        return {}
    stated = dict(pair.partition("=")[::2] for pair in fabric.environment.split())
    values = {**_read_script(fabric.script, machine), **stated}
    values = {name: value for name, value in values.items() if name not in given}
    folders, libraries = _there(fabric.folders), ":".join(_there(fabric.libraries))
    if config.code.kind == "image":
        values[_FOLDERS] = " ".join(folder for folder in folders if not _is_device(folder))
        # The image's own path is known inside the container alone.
        values[_PATH if _PATH in given else _LIBRARIES] = _joined(given.get(_PATH), libraries)
    elif libraries:
        values[_PATH] = _joined(given[_PATH], libraries) if _PATH in given else _joined(libraries, machine.get(_PATH))
    return values


def container_options(config: AgentConfig) -> list[str]:
    """Return the options of ``docker run`` that show a container what the fabric needs of the machine."""
    return [
        f"--volume={folder}:{folder}" if _is_device(folder) else f"--volume={folder}:{_MOUNTED}{folder}:ro"
        for folder in _there(config.fabric.folders)
    ]


def check_fabric(config: AgentConfig) -> PreflightCheck:
    fabric = config.fabric
    missing = [path for path in fabric.present.split() if not Path(path).exists()]
    problem = f"{fabric.name} is not set up: no {', '.join(missing)}" if missing else ""
    return PreflightCheck("fabric", problem, fabric.name)


def _there(paths: str) -> list[str]:
    return [path for path in paths.split() if Path(path).exists()]


def _is_device(path: str) -> bool:
    return path.startswith("/dev/")


def _joined(*paths: str | None) -> str:
    return ":".join(path for path in paths if path)


def _read_script(script: str, machine: Mapping[str, str]) -> dict[str, str]:
    """Return the NCCL variables that a script of the fabric's software sets; none where it is missing or fails."""
    if not script or not Path(script).exists():
        return {}
    environment = {"PATH": machine.get("PATH", os.defpath), "NCCL_LIB_DIR": str(Path(script).parent)}
    line = ["bash", "-c", '. "$0" >/dev/null && exec env -0', script]
    try:
        done = subprocess.run(
            line, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SCRIPT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    pairs = (pair.partition("=")[::2] for pair in done.stdout.decode("utf-8", "replace").split("\0"))
    return {name: value for name, value in pairs if name.startswith("NCCL_") and name != "NCCL_LIB_DIR"}
