"""Ray in an environment of its own, made once for one content of engines/ray.txt and kept in the machine's folder for
temporary files: it is no dependency of this project."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from router.agent.rendezvous import find_free_port
from tests.support.repository import ROOT, cached_folder

REQUIREMENTS = ROOT / "tests" / "support" / "engines" / "ray.txt"
_TIME_LIMIT = 600


def ray_path() -> Path:
    """The folder to put before a PATH, with ``ray`` and its ``python3``. Made when it is missing: 300 MB, about 20
    seconds, from the package index."""

    def make(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True, timeout=_TIME_LIMIT)

    return cached_folder("ray", REQUIREMENTS.read_bytes() + sys.version.encode(), make) / "bin"


@dataclass(frozen=True)
class RayCluster:
    """A cluster on this machine: its address, and the environment in which this project's Python has Ray."""

    address: str
    environment: Mapping[str, str]


@contextmanager
def ray_cluster(nodes: int) -> Iterator[RayCluster]:
    """Run a cluster of so many nodes with one core each, all with the code of this repository."""
    (packages,) = ray_path().parent.glob("lib/python*/site-packages")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{packages}", "RAY_USAGE_STATS_ENABLED": "0"}
    port, client_port = find_free_port(), find_free_port()
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        head = ["--head", f"--port={port}", f"--ray-client-server-port={client_port}", f"--temp-dir={folder}"]
        options = [[*head, "--include-dashboard=false"], *[[f"--address=127.0.0.1:{port}"]] * (nodes - 1)]
        started: list[subprocess.Popen[bytes]] = []
        try:
            for words in options:
                started.append(_start_node(words, environment, Path(folder) / f"node-{len(started)}.log"))
                _wait_for_nodes(f"127.0.0.1:{port}", len(started), environment)
            cluster = RayCluster(f"ray://127.0.0.1:{client_port}", environment)
            _wait_for_nodes(cluster.address, nodes, environment)
            yield cluster
        finally:
            for process in reversed(started):
                _end(process)


def _start_node(words: list[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *words, "--num-cpus=1", "--block"]
    with log.open("wb") as said:
        return subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True, cwd=ROOT)


_WAIT = """\
import sys, time, ray

address, nodes, until = sys.argv[1], int(sys.argv[2]), time.monotonic() + 120
while True:
    try:
        ray.init(address, logging_level="ERROR", log_to_driver=False)
        if sum(node["Alive"] for node in ray.nodes()) == nodes:
            break
        ray.shutdown()
    except (ConnectionError, RuntimeError):
        pass
    if time.monotonic() > until:
        sys.exit(f"{address} has no {nodes} nodes")
    time.sleep(0.2)
"""


def _wait_for_nodes(address: str, nodes: int, environment: Mapping[str, str]) -> None:
    """Wait until so many nodes answer at an address; a busy machine needs a while for the first client."""
    command = [sys.executable, "-c", _WAIT, address, str(nodes)]
    subprocess.run(command, env=environment, check=True, timeout=_TIME_LIMIT, cwd=ROOT)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a node with everything that it has started: it leads a session of its own."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
