"""A job that needs two machines, with each engine: processes by torchrun's contract, a real Ray, a real Slurm. Once
under the bare agents, once as a user would have it, through plan and apply on the sandbox.

Slurm comes from Debian's packages: those that are not installed are unpacked into the machine's folder for temporary
files, and nothing outside of that and the given folder is written.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.agent.rendezvous import find_free_port
from router.demo.stage import DEPLOY, write_demo_files
from tests.support.agents import agents
from tests.support.busy import eventually
from tests.support.clouds import STEPFARE
from tests.support.coordinator import Coordinator
from tests.support.ray_here import ray_path
from tests.support.repository import ROOT, cached_folder, ran
from tests.support.training import TRAINER, checkpoints, losses, train

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
COMMANDS = ("sinfo", "srun", "scancel", "scontrol", "squeue")
_TIME_LIMIT = 300

_CONF = """\
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={port}
# Without it the nodes drain: they have fewer cores than they say.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=1
MpiDefault=none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A Slurm that is up. ``path`` is a folder with its commands, for a PATH; they need no other environment."""

    folder: Path
    path: Path

    def ask(self, *words: str) -> str:
        """Return the output of one of its commands; CalledProcessError."""
        command = [str(self.path / words[0]), *words[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIME_LIMIT).stdout

    def logs(self) -> str:
        """Return the logs of its daemons, for a test that fails."""
        return "\n".join(f"== {log.name}\n{log.read_text(errors='replace')}" for log in self.folder.glob("*.log"))


def can_be_had() -> bool:
    """Whether this machine has Slurm, or Debian's packages of it."""
    return _installed() or shutil.which("apt-get") is not None


@contextmanager
def slurm(folder: Path, nodes: int) -> Iterator[Slurm]:
    """Runs while the block does, with so many idle nodes, n1 and so on. RuntimeError if it does not come up."""
    root = _unpacked()
    # Sockets have short names only, and pytest's folders long ones.
    place = Path(tempfile.mkdtemp(prefix="slurm-", dir=folder if len(str(folder)) < 60 else None))
    environment = _configured(place, root, nodes)
    files = {"socket": "munge.socket", "key-file": "key", "pid-file": "munged.pid", "log-file": "munged.log"}
    options = [f"--{option}={place / name}" for option, name in {**files, "seed-file": "seed"}.items()]
    daemons = [["munged", "--foreground", "--force", *options], ["slurmctld", "-D"]]
    step = str(_program(root, "slurmstepd"))
    daemons += [["slurmd", "-D", "-N", f"n{number}", "-d", step] for number in range(1, nodes + 1)]
    found = Slurm(place, place / "bin")
    with ExitStack() as running:
        running.callback(shutil.rmtree, place, ignore_errors=True)
        for words in daemons:
            running.enter_context(_daemon(root, words, environment, place))
            if words[0] == "munged":
                eventually((place / "munge.socket").exists, 60, why=found.logs)
        eventually(lambda: _idle(found) == nodes, 60, why=found.logs)
        yield found


def _idle(found: Slurm) -> int:
    try:
        return len(found.ask("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").split())
    except subprocess.CalledProcessError:
        return 0


def _configured(place: Path, root: Path, nodes: int) -> dict[str, str]:
    """The environment of the daemons; writes what they and the commands read."""
    for name in ("state", "bin"):
        (place / name).mkdir()
    (place / "key").write_bytes(os.urandom(128))
    (place / "key").chmod(0o600)
    host = socket.gethostname().split(".")[0]
    rows = [
        f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={find_free_port()} CPUs=2 RealMemory=500"
        for number in range(1, nodes + 1)
    ]
    conf = place / "slurm.conf"
    plugins = next(path.parent for path in root.glob("usr/lib/*/slurm-wlm/libslurmfull.so"))
    conf.write_text(
        _CONF.format(
            host=host,
            user=getpass.getuser(),
            folder=place,
            plugins=plugins,
            port=find_free_port(),
            nodes="\n".join(rows),
        )
    )
    environment = {"PATH": os.environ["PATH"], "SLURM_CONF": str(conf)}
    if root != Path("/"):
        environment["LD_LIBRARY_PATH"] = f"{plugins.parent}:{plugins}"
    exports = " ".join(f"{name}='{value}'" for name, value in environment.items() if name != "PATH")
    for name in COMMANDS:
        script = place / "bin" / name
        script.write_text(f'#!/bin/sh\nexport {exports}\nexec {_program(root, name)} "$@"\n')
        script.chmod(0o755)
    return environment


@contextmanager
def _daemon(root: Path, words: Sequence[str], environment: Mapping[str, str], place: Path) -> Iterator[None]:
    with (place / f"{'-'.join(words[:1])}.out.log").open("ab") as out:
        process = subprocess.Popen(
            [str(_program(root, words[0])), *words[1:]], env=environment, stdout=out, stderr=out, cwd=place
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _program(root: Path, name: str) -> Path:
    """Debian's packages link the names without ending when they are installed."""
    for candidate in (f"usr/sbin/{name}", f"usr/sbin/{name}-wlm", f"usr/bin/{name}"):
        if (root / candidate).exists():
            return root / candidate
    raise RuntimeError(f"there is no {name} in {root}")


def _installed() -> bool:
    return all(shutil.which(name, path="/usr/sbin") for name in ("slurmctld", "slurmd", "munged"))


def _unpacked() -> Path:
    """Return the folder of the packages: the root where they are installed, else one of our own, filled once."""
    if _installed():
        return Path("/")
    wanted = _missing()

    def make(folder: Path) -> None:
        archives = folder / "archives"
        archives.mkdir()
        _apt("download", *wanted, cwd=archives)
        for archive in sorted(archives.glob("*.deb")):
            subprocess.run(["dpkg", "-x", archive, folder], check=True, timeout=_TIME_LIMIT)

    return cached_folder("slurm", " ".join(wanted).encode(), make)


def _missing() -> list[str]:
    """The packages that Slurm needs and this machine has not, each as name=version."""
    words = ("install", "--simulate", "--no-install-recommends", *PACKAGES)
    try:
        said = _apt(*words)
    except subprocess.CalledProcessError:  # the lists were never fetched, or are old
        _apt("update")
        said = _apt(*words)
    found = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", said, re.MULTILINE)
    return sorted(f"{name}={version}" for name, version in found)


def _apt(*words: str, cwd: Path | None = None) -> str:
    command = ["apt-get", "-qq", *words] if words[0] != "install" else ["apt-get", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIME_LIMIT, cwd=cwd).stdout


pytestmark = pytest.mark.slow

STEPS = 60
TOKEN = "token-of-the-attempt-5f3a"
RAY_JOB = ROOT / "tests" / "support" / "engines" / "ray_job.py"
ENGINES = ("torchrun", "ray", "slurm")
# A stopped Ray worker drains for up to 30 seconds.
LONGEST_S = 180


@dataclass(frozen=True)
class Engine:
    """One engine on this machine. ``path`` goes before the PATH of the machines."""

    name: str
    path: str
    python: str

    def command(self, folder: Path, steps: int = STEPS) -> str:
        """What the job runs, with the checkpoints in a folder."""
        options = [str(TRAINER), "--steps", str(steps), "--checkpoint-dir", str(folder), "--report-every", "20"]
        return shlex.join([self.python, *([str(RAY_JOB)] if self.name == "ray" else []), *options])

    @property
    def leader_only(self) -> bool:
        """Whether the result of rank 0 is the gang's."""
        return self.name != "torchrun"


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    here = str(Path(sys.executable).parent)
    if request.param == "ray":
        yield Engine("ray", str(ray_path()), "python3")
    elif request.param == "slurm":
        if not can_be_had():
            pytest.skip("Slurm comes from Debian's packages here")
        with slurm(tmp_path_factory.mktemp("slurm"), 2) as found:
            yield Engine("slurm", f"{found.path}{os.pathsep}{here}", "python")
    else:
        yield Engine("torchrun", here, "python")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    folder = tmp_path_factory.mktemp("alone")
    train("--steps", STEPS, "--checkpoint-dir", folder)
    return losses(folder)


def _check(engine: Engine, logs: Mapping[int, str], folder: Path, alone: Mapping[int, float]) -> None:
    """Two ranks took part, by what they said themselves; on two nodes of Ray or Slurm where there are such; and what
    they learnt is what one alone learns."""
    said = "".join(logs.values())
    ended = re.findall(r"^rank (\d) of 2 ends after step (\d+)/(\d+)$", said, re.MULTILINE)
    assert sorted(ended) == [("0", str(STEPS), str(STEPS)), ("1", str(STEPS), str(STEPS))], said
    if engine.name == "torchrun":
        assert [f"rank {rank} of 2 ends" in logs[rank] for rank in range(2)] == [True, True]
    else:
        assert "of 2 ends" not in logs[1]
    if engine.name == "ray":
        nodes = re.findall(r"^node ([0-9a-f]+) rank (\d) code 0$", said, re.MULTILINE)
        assert [rank for _, rank in nodes] == ["0", "1"]
        assert len({node for node, _ in nodes}) == 2
    if engine.name == "slurm":
        nodes = re.findall(r"^on (n\d)$", said, re.MULTILINE)
        assert sorted(node for node in nodes) == ["n1", "n2"]
    assert losses(folder) == alone
    assert checkpoints(folder) == ["step-00000050.ckpt", f"step-{STEPS:08d}.ckpt"]


def _named(engine: Engine, command: str) -> str:
    return f"echo on $SLURMD_NODENAME; {command}" if engine.name == "slurm" else command


def test_two_ranks_under_the_agents(engine: Engine, alone: dict[int, float], tmp_path: Path) -> None:
    command = _named(engine, engine.command(tmp_path / "checkpoints"))
    with (
        Coordinator(2, TOKEN, leader_only=engine.leader_only).running() as coordinator,
        agents(tmp_path, coordinator, command, engine=engine.name, path=engine.path, grace_seconds=40.0) as ranks,
    ):
        codes = [rank.end(LONGEST_S) for rank in ranks]
    logs = {rank: coordinator.text(rank) for rank in range(2)}
    assert codes == [0, 143 if engine.leader_only else 0], logs
    _check(engine, logs, tmp_path / "checkpoints", alone)


def test_two_machines_by_plan_and_apply(engine: Engine, alone: dict[int, float], tmp_path: Path) -> None:
    stage = _Stage(tmp_path / "stage", engine)
    stage.job(_named(engine, engine.command(stage.folder / "checkpoints")))
    stage.run("prices", "refresh", "--cloud", "sandbox")
    stage.run("plan", "job.yaml", "--book", "sandbox", "--limits", "limits.yaml", "--out", "plan.json")
    stage.run("apply", "plan.json", "--book", "sandbox", "--limits", "limits.yaml", "--yes", "--follow")
    (gang,) = json.loads(stage.run("status", "--all", "-o", "json"))["gangs"]
    assert (gang["state"], gang["result"], gang["machines"]) == ("finished", "finished", 2)
    assert {node["instance_type"] for node in gang["nodes"]} == {"h100.1x"}
    assert gang["gone_at"] is not None
    assert float(gang["spent_usd"]) > 0
    logs = {rank: stage.run("logs", "letters", "--rank", str(rank)) for rank in range(2)}
    _check(engine, logs, stage.folder / "checkpoints", alone)
    swept: dict[str, Any] = json.loads(stage.run("sweep", "-o", "json"))
    assert [orphan for orphan in swept["orphans"] if orphan["ours"]] == []


@pytest.mark.parametrize("engine", ["torchrun", "slurm"], indirect=True)
def test_a_failing_job_fails_the_gang(engine: Engine, tmp_path: Path) -> None:
    stage = _Stage(tmp_path / "stage", engine)
    stage.job("echo going; exit 9")
    stage.run("prices", "refresh", "--cloud", "sandbox")
    stage.run("plan", "job.yaml", "--book", "sandbox", "--limits", "limits.yaml", "--out", "plan.json")
    said = stage.run("apply", "plan.json", "--book", "sandbox", "--limits", "limits.yaml", "--yes", "--follow", code=5)
    failed = re.search(r"rank (\d) crashed with exit code (\d+)", stage.run("status", "--all"))
    assert failed is not None, said
    printed = stage.run("logs", "letters", "--rank", failed[1])
    assert "going" in printed
    # Of the codes of all tasks srun gives back the highest, also of one that it ended because another had failed.
    assert failed[2] in (("9",) if engine.name == "torchrun" else ("9", "143"))
    assert engine.name == "torchrun" or "Exited with exit code 9" in printed


class _Stage:
    """The demo's cloud with a job for an engine, and the commands there."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder, self._engine = folder, engine
        write_demo_files(folder, STEPS, 0)
        # With hours to its deadline a training that Slurm ended by a signal would wait for cheaper spot.
        (folder / DEPLOY).write_text("policy: greedy\n")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STEPFARE_", "AWS_"))}
        home = {"HOME": str(folder), "STEPFARE_HOME": str(folder / "home"), "STEPFARE_DEPLOY": str(folder / DEPLOY)}
        path = os.pathsep.join([engine.path, os.environ["PATH"]])
        self._environment = {**kept, **home, "STEPFARE_CLOUDS": str(folder / "clouds.yaml"), "PATH": path}

    def job(self, command: str) -> None:
        path = self.folder / "job.yaml"
        job = yaml.safe_load(path.read_text())
        job["run"] = {"engine": self._engine.name, "command": command}
        path.write_text(yaml.safe_dump(job))

    def run(self, *words: str, code: int = 0) -> str:
        """Standard output of one command, which has to end with that code."""
        done = ran([str(STEPFARE), *words], cwd=self.folder, env=self._environment, timeout=LONGEST_S)
        printed = {str(log): log.read_text() for log in (self.folder / "home" / "logs").glob("*/*.log")}
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{printed}"
        return done.stdout
