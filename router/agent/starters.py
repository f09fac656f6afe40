"""The command line of a rank: the job's own command, or a script that starts Ray or uses Slurm.

Either runs alone or in a container. The command line contains no value of the environment, because every user of a
machine can read command lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from router.agent.config import AgentConfig

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
        line.append("--gpus=all")
    if os.path.isdir("/dev/infiniband"):  # noqa: PTH112  (pathlib is heavier, and starters needs nothing else of it)
        line += ["--device=/dev/infiniband", "--cap-add=IPC_LOCK"]
    line += [f"--volume={mount}" for mount in (*config.mounts, f"{control}:{control}")]
    line += [f"--env={name}" for name in sorted(names)]
    return [*line, "--entrypoint=/bin/sh", config.code.source, "-c", _CONTAINED, "stepfare", *shell_arguments(config)]


def clean_up_command(config: AgentConfig) -> list[str]:
    """Return the command that removes what killing the process group leaves behind; empty if nothing remains."""
    if config.engine == "slurm" and config.rank == 0:
        return ["scancel", f"--name={external_name(config)}"]
    return ["docker", "rm", "--force", external_name(config)] if config.code.kind == "image" else []
