"""Ray and Slurm on a gang, with stand-ins for their commands that note what they are asked. The real ones are for the
slow suite: neither is a dependency of this project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.agents import agents
from tests.support.coordinator import Coordinator

TOKEN = "token-of-the-attempt-5f3a"
RAY = """\
#!/bin/sh
echo "$@" >> ../calls
case $1 in
  start) exec sleep 60;;
  health-check) exit 0;;
esac
"""
# Two nodes in all; the second look sees both.
RAY_MODULE = """\
looks = []
def is_initialized():
    return bool(looks)
def init(address, **_):
    looks.append(address)
def nodes():
    looks.append(None)
    return [{"Alive": True}, {"Alive": len(looks) > 2}]
"""
SINFO = "#!/bin/sh\nprintf 'n1\\nn2\\nn2\\n'\n"
SRUN = """\
#!/bin/sh
echo "$@" | head -n 1 >> ../calls
while [ "$1" != /bin/sh ]; do shift; done
SLURM_JOB_NODELIST='n[1-2]' SLURM_NODEID=0 "$@"
SLURM_JOB_NODELIST='n[1-2]' SLURM_NODEID=1 "$@"
"""
SCONTROL = """\
#!/bin/sh
case "$*" in
  "show hostnames n[1-2]") printf 'n1\\nn2\\n';;
  "--oneliner show node n1") echo 'NodeName=n1 Arch=x86_64 NodeAddr=10.0.0.7 NodeHostName=n1';;
esac
"""


def _tools(folder: Path, **programs: str) -> str:
    folder.mkdir()
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("code", [0, 5])
def test_ray(tmp_path: Path, code: int) -> None:
    path = _tools(tmp_path / "tools", ray=RAY)
    (tmp_path / "tools" / "ray.py").write_text(RAY_MODULE)
    environment = {"plain": {"PYTHONPATH": path}}
    command = f"echo at $RAY_ADDRESS; exit {code}"
    with (
        Coordinator(2, TOKEN, leader_only=True).running() as coordinator,
        agents(tmp_path, coordinator, command, engine="ray", path=path, environment=environment) as ranks,
    ):
        assert [rank.end() for rank in ranks] == [min(code, 1), 143]
    port = int(coordinator.messages("hello", 0)[0]["master_port"]) + 1
    assert coordinator.text(0) == f"at 127.0.0.1:{port}\n"
    (ended,) = coordinator.messages("ended", 0)
    assert ended["exit_code"] == code
    head, worker = ((rank.folder / "calls").read_text().splitlines() for rank in ranks)
    assert head == [f"start --head --node-ip-address=127.0.0.1 --port={port} --include-dashboard=false --block"]
    assert worker == [f"health-check --address 127.0.0.1:{port}", f"start --address=127.0.0.1:{port} --block"]


def test_slurm_passes_a_signal_on(tmp_path: Path) -> None:
    """The stand-in for scancel signals the one process that srun started; srun itself gets no signal."""
    srun = (
        "#!/bin/sh\ntrap 'echo srun was signalled' TERM\n"
        'eval "command=\\${$#}"\nsh -c "$command" & echo $! > ../task\nwait\n'
    )
    scancel = f"""\
#!/bin/sh
echo "$@" >> {tmp_path}/calls
[ "$1" != --signal=TERM ] || kill -TERM $(cat {tmp_path}/rank-0/task)
"""
    path = _tools(tmp_path / "tools", sinfo=SINFO, srun=srun, scancel=scancel)
    command = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    with (
        Coordinator(2, TOKEN, leader_only=True).running() as coordinator,
        agents(tmp_path, coordinator, command, engine="slurm", path=path) as ranks,
    ):
        coordinator.wait(lambda c: "ready" in c.text(0))
        ranks[0].process.terminate()
        assert [rank.end() for rank in ranks] == [143, 143]
    assert coordinator.text(0) == "ready\nsaved\n"
    name = "--name=stepfare-attempt-1-0"
    assert (tmp_path / "calls").read_text().splitlines() == [f"--signal=TERM {name}", name]


def test_slurm(tmp_path: Path) -> None:
    path = _tools(tmp_path / "tools", sinfo=SINFO, srun=SRUN, scontrol=SCONTROL)
    command = 'echo "rank $RANK node $NODE_RANK of $NNODES at $MASTER_ADDR"'
    with (
        Coordinator(2, TOKEN, leader_only=True).running() as coordinator,
        agents(tmp_path, coordinator, command, engine="slurm", path=path) as ranks,
    ):
        assert [rank.end() for rank in ranks] == [0, 143]
    assert coordinator.text(0) == "rank 0 node 0 of 2 at 10.0.0.7\nrank 1 node 1 of 2 at 10.0.0.7\n"
    asked = (ranks[0].folder / "calls").read_text()
    assert asked.startswith(
        "--job-name=stepfare-attempt-1-0 --nodes=2 --ntasks-per-node=1 --exclusive --kill-on-bad-exit=1 /bin/sh -c"
    )
    assert coordinator.text(1) == ""
