"""A small Slurm on this machine: munged, slurmctld and a slurmd for each node, from Debian's packages, in a folder.

Packages that are not installed are downloaded once and unpacked into the machine's folder for temporary files; nothing
is installed, and nothing outside of that and the given folder is written.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from tests.support.ports import free_port

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
        """What one of its commands says; CalledProcessError."""
        command = [str(self.path / words[0]), *words[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIME_LIMIT).stdout

    def logs(self) -> str:
        """What its daemons wrote, for a test that fails."""
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
                _wait(lambda: (place / "munge.socket").exists(), found)
        _wait(lambda: _idle(found) == nodes, found)
        yield found


def _idle(found: Slurm) -> int:
    try:
        return len(found.ask("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").split())
    except subprocess.CalledProcessError:
        return 0


def _wait(until: Callable[[], bool], found: Slurm) -> None:
    limit = time.monotonic() + 60
    while not until():
        if time.monotonic() > limit:
            raise RuntimeError(f"Slurm does not come up\n{found.logs()}")
        time.sleep(0.1)


def _configured(place: Path, root: Path, nodes: int) -> dict[str, str]:
    """The environment of the daemons; writes what they and the commands read."""
    for name in ("state", "bin"):
        (place / name).mkdir()
    (place / "key").write_bytes(os.urandom(128))
    (place / "key").chmod(0o600)
    host = socket.gethostname().split(".")[0]
    rows = [
        f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 RealMemory=500"
        for number in range(1, nodes + 1)
    ]
    conf = place / "slurm.conf"
    plugins = next(path.parent for path in root.glob("usr/lib/*/slurm-wlm/libslurmfull.so"))
    conf.write_text(
        _CONF.format(
            host=host, user=getpass.getuser(), folder=place, plugins=plugins, port=free_port(), nodes="\n".join(rows)
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
    """Where the packages lie: the root folder where they are installed, else one of our own, filled when it is new."""
    if _installed():
        return Path("/")
    wanted = _missing()
    digest = hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"stepfare-slurm-{digest}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            archives = folder / "archives"
            archives.mkdir(parents=True)
            _apt("download", *wanted, cwd=archives)
            for archive in sorted(archives.glob("*.deb")):
                subprocess.run(["dpkg", "-x", archive, folder], check=True, timeout=_TIME_LIMIT)
            (folder / "ready").touch()
    return folder


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
