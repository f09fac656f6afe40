"""The command line of a rank, and the environment of its process: the machine's, then the job's, then the gang's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from router.agent.config import AgentConfig, AgentConfigError
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


RESUME_STEP, RESUME_MANIFEST = "STEPFARE_RESUME_STEP", "STEPFARE_RESUME_MANIFEST"
CHECKPOINT_SECONDS, CHECKPOINT_STORE = "STEPFARE_CHECKPOINT_SECONDS", "STEPFARE_CHECKPOINT_STORE"
DATA = "STEPFARE_DATA"


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


def gang_environment(config: AgentConfig, addresses: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables that ``torch.distributed`` reads with ``init_method="env://"``, and stepfare's own.

    ``WORLD_SIZE`` counts processes. ``RANK`` and ``LOCAL_RANK`` are set only for one process per node: with more,
    whoever starts them numbers them.

    The engine torchrun also gets the ``PET_`` names, from which the command ``torchrun`` takes its own options, so that
    ``torchrun train.py`` needs no arguments about the gang. The checkpoint to resume from, the saving interval and the
    checkpoint store and the data are included where they are known. ``SKYPILOT_`` names are those that SkyPilot gives a
    task (0.14), so that imported commands run unchanged; ``SKYPILOT_NODE_IPS``, one address a line, is set only where
    all are known.
    """
    address = {"MASTER_ADDR": config.master_address or "", "MASTER_PORT": str(config.master_port)}
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
    if config.data:
        values[DATA] = config.data
    return values


# Ray's own port is the one after MASTER_PORT, which stays free for the job. The command gets RAY_ADDRESS. With
# `--block`, the processes that Ray starts end with the process that started them.
_RAY_HEAD = """\
here="$MASTER_ADDR:$((MASTER_PORT + 1))"
export RAY_USAGE_STATS_ENABLED=0 RAY_ADDRESS="$here"
ray start --head --node-ip-address="$MASTER_ADDR" --port="$((MASTER_PORT + 1))" --include-dashboard=false --block &
head=$!
python3 - "$here" "$NNODES" <<'PROGRAM' || { kill $head; wait $head 2>/dev/null; exit 69; }
import sys, time
import ray
address, nodes = sys.argv[1], int(sys.argv[2])
for attempt in range(120):
    try:
        if not ray.is_initialized():
            ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        if sum(node["Alive"] for node in ray.nodes()) >= nodes:
            sys.exit(0)
    except ConnectionError:
        pass
    time.sleep(1)
sys.exit("stepfare: not all nodes joined Ray")
PROGRAM
/bin/sh -c "$1"
code=$?
kill $head
wait $head 2>/dev/null
exit $code
"""

_RAY_WORKER = """\
there="$MASTER_ADDR:$((MASTER_PORT + 1))"
export RAY_USAGE_STATS_ENABLED=0
left=120
until ray health-check --address "$there" >/dev/null 2>&1; do
  left=$((left - 1))
  [ $left -gt 0 ] || { echo "stepfare: no Ray at $there" >&2; exit 69; }
  sleep 1
done
exec ray start --address="$there" --block
"""

# A running Slurm with the gang's machines as its only usable nodes is taken as given. srun numbers the nodes its own
# way, so the variables are set again on each of them, with the address of the node that it numbers 0. An srun that gets
# SIGTERM kills its tasks at once, so it runs outside the process group, and Slurm passes the signal on.
_SLURM_HEAD = """\
left=120
until [ "$(sinfo --noheader --Node --states=idle --format=%N | sort -u | wc -l)" -ge "$NNODES" ]; do
  left=$((left - 1))
  [ $left -gt 0 ] || { echo "stepfare: Slurm has fewer than $NNODES idle nodes" >&2; exit 69; }
  sleep 1
done
name="stepfare-$STEPFARE_ATTEMPT-$NODE_RANK"
trap 'scancel --signal=TERM --name="$name"' TERM
setsid srun --job-name="$name" --nodes="$NNODES" --ntasks-per-node=1 --exclusive --kill-on-bad-exit=1 /bin/sh -c '
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_ADDR=$(scontrol --oneliner show node "$first" | sed -n "s/.* NodeAddr=\\([^ ]*\\).*/\\1/p")
NODE_RANK=$SLURM_NODEID
SKYPILOT_NODE_RANK=$SLURM_NODEID
[ -z "${RANK:-}" ] || RANK=$SLURM_NODEID
export MASTER_ADDR NODE_RANK RANK SKYPILOT_NODE_RANK
[ -n "$RANK" ] || unset RANK
exec /bin/sh -c "$0"' "$1" &
srun=$!
wait $srun
code=$?
while kill -0 $srun 2>/dev/null; do wait $srun; code=$?; done
exit $code
"""

_SLURM_WORKER = "exec sleep 2147483647\n"
# An image may have a PYTHONPATH of its own, which a variable from outside would replace.
_CONTAINED = 'export PYTHONPATH="$STEPFARE_CONTROL/python${PYTHONPATH:+:$PYTHONPATH}"; exec /bin/sh "$@"'
# Docker gives NVIDIA's GPUs by their toolkit, AMD's as devices (AMD, "Running ROCm Docker containers").
_GPU_OPTIONS = {
    "nvidia": ["--gpus=all"],
    "amd": ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=video", "--security-opt=seccomp=unconfined"],
}


def external_name(config: AgentConfig) -> str:
    """Return the name by which this rank's container or Slurm job can be found and ended."""
    return f"stepfare-{config.attempt}-{config.rank}"


def shell_arguments(config: AgentConfig) -> list[str]:
    """Return the arguments of ``/bin/sh`` on this rank.

    With ray and slurm, only rank 0 runs the job's command: the others work for it and run until the coordinator stops
    them.
    """
    scripts = {"ray": (_RAY_HEAD, _RAY_WORKER), "slurm": (_SLURM_HEAD, _SLURM_WORKER)}
    if config.engine not in scripts:
        return ["-c", config.command]
    head, worker = scripts[config.engine]
    return ["-c", head, "stepfare", config.command] if config.rank == 0 else ["-c", worker]


def command_line(config: AgentConfig, names: Iterable[str], control: str) -> list[str]:
    """Return the command line of the training process of this rank.

    ``names`` are the variables to pass into a container; their values come from the environment of the process.
    ``control`` is the folder that agent and training share.
    """
    if config.code.kind != "image":
        return ["/bin/sh", *shell_arguments(config)]
    line = ["docker", "run", "--rm", "--init", "--name", external_name(config), "--network=host", "--ipc=host"]
    line += ["--ulimit=memlock=-1", "--ulimit=stack=67108864", "--ulimit=nofile=1048576"]
    if config.gpus:
        line += _GPU_OPTIONS[config.gpu_vendor]
    if os.path.isdir("/dev/infiniband"):  # noqa: PTH112  (pathlib is heavier, and starters needs nothing else of it)
        line += ["--device=/dev/infiniband", "--cap-add=IPC_LOCK"]
    line += [f"--volume={mount}" for mount in (*config.mounts, f"{control}:{control}")]
    line += container_options(config)
    line += [f"--env={name}" for name in sorted(names)]
    before = IN_CONTAINER if config.fabric.name else ""
    line += ["--entrypoint=/bin/sh", config.code.source, "-c", before + _CONTAINED, "stepfare"]
    return [*line, *shell_arguments(config)]


def clean_up_command(config: AgentConfig) -> list[str]:
    """Return the command that removes what killing the process group leaves behind; empty if nothing remains."""
    if config.engine == "slurm" and config.rank == 0:
        return ["scancel", f"--name={external_name(config)}"]
    return ["docker", "rm", "--force", external_name(config)] if config.code.kind == "image" else []
