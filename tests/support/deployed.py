"""`stepfare apply` and its friends as a user runs them: a home of its own, a plan on the sandbox cloud, processes.

A site is copied from one that was planned once, because planning takes longer than applying. Its state is its own, so
that sites side by side do not take each other's machines for theirs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from router.config.job_files import load_jobs
from router.jobs.job_json import job_json
from router.planning.document.plan_json import plan_content, plan_from_json
from router.state.store import StateStore
from tests.support.busy import on_a_busy_machine
from tests.support.deployed_engine import Holds, write_engine
from tests.support.forked import ForkedCommand
from tests.support.new_state import open_state
from tests.support.repository import ROOT

LONGEST_S = 90.0
REGION, TYPE = "sandbox-east", "h100.1x"
ZONE_A, ZONE_B = f"{REGION}-a", f"{REGION}-b"
# Ends when it is told to, and takes its time.
WAITS = "trap 'sleep 0.7; exit 0' TERM; while :; do sleep 60 & wait; done"
SANDBOX: dict[str, Any] = {
    "start": "2026-01-01T00:00:00Z",
    "regions": [
        {
            "name": REGION,
            "country": "US",
            "continent": "NA",
            "geo": "NA",
            "residency_group": "US",
            "city": "Springfield",
            "zones": [ZONE_A, ZONE_B],
        }
    ],
    "machines": [
        {
            "type": TYPE,
            "accelerator": "H100",
            "accelerators": 1,
            "vcpus": 24,
            "memory_gib": 256,
            "fabric": "ethernet",
            "inter_node_gbps": 25,
        }
    ],
    "prices": [
        {"machine": TYPE, "region": REGION, "steps": [{"at": "0h", "usd": "5.60"}]},
        {"machine": TYPE, "region": REGION, "zone": ZONE_A, "market": "spot", "steps": [{"at": "0h", "usd": "2.10"}]},
        {"machine": TYPE, "region": REGION, "zone": ZONE_B, "market": "spot", "steps": [{"at": "0h", "usd": "2.40"}]},
    ],
}


def job(name: str, command: str = WAITS, *, machines: int = 3, **more: Any) -> dict[str, Any]:
    """A job of a few minutes on that many machines; ``more`` are fields of the job, ``run`` of its run."""
    run = {"engine": "command", "command": command, **more.pop("run", {})}
    return {
        "name": name, "team": "team-a", "cost_center": "cc-1", "steps": 1000, "deadline": "+6h",
        "workload": {"profile": [{
            "accelerator": "H100", "count": machines, "seconds_per_step": 0.5, "fabric": "ethernet", "source": "a test",
        }]},
        "gang": {"accelerators": f"H100:{machines}"}, "checkpoint": {"size_gib": 0.001}, "startup": "1m", "run": run,
        **more,
    }  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        """All of it, its lines joined: messages are wrapped to the width of a terminal."""
        return " ".join((self.out + self.err).split())


class Running:
    """A command that runs; its output goes to files, so that it never waits for a reader."""

    def __init__(
        self, arguments: Sequence[object], environment: Mapping[str, str], folder: Path, module: str | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "stdout", folder / "stderr"
        self._out.touch()
        self._err.touch()
        self.process = ForkedCommand(
            arguments, environment=environment, folder=folder, stdout=self._out, stderr=self._err, module=module
        )

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait(self, seconds: float = LONGEST_S) -> Ran:
        """What it said, once it has ended. It never shows a traceback."""
        try:
            code = self.process.wait(on_a_busy_machine(seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"still running after {seconds:g} s: {self._err.read_text()}") from None
        ran = Ran(code, self._out.read_text(), self._err.read_text())
        assert "Traceback" not in ran.err, ran.err
        return ran


@dataclass
class Site:
    """One installation: ``folder`` holds its home, its plan and its files; ``digest`` is the plan's, ``state`` the id
    of its state."""

    folder: Path
    digest: str
    state: str
    holds: Holds
    _commands: int = 0
    _running: list[Running] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STEPFARE_", "AWS_"))}
        path = os.pathsep.join((str(self.folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
        return {
            **kept, "PATH": path, "HOME": str(self.folder), "NO_COLOR": "1", "COLUMNS": "100",
            "STEPFARE_HOME": str(self.home), "STEPFARE_CLOUDS": str(self.folder / "clouds.yaml"),
            "STEPFARE_SANDBOX": str(self.folder / "cloud"), "PYTHONPATH": str(ROOT),
        }  # fmt: skip

    def start(self, *arguments: object, held: bool = False, environment: Mapping[str, str] | None = None) -> Running:
        """Starts `stepfare`, at the prices of the sandbox; ``held``: one that stops where ``holds`` says."""
        self._commands += 1
        if at_prices(arguments) and "--book" not in arguments and (self.home / "books" / "sandbox").exists():
            arguments = (*arguments, "--book", "sandbox")
        said, known = self.folder / "said" / str(self._commands), environment or self.environment
        if held:
            running = Running((self.holds.folder, *arguments), known, said, "tests.support.held_command")
        else:
            running = Running(arguments, known, said)
        self._running.append(running)
        return running

    def run(self, *arguments: object, environment: Mapping[str, str] | None = None, seconds: float = LONGEST_S) -> Ran:
        """`stepfare` until it has ended."""
        return self.start(*arguments, environment=environment).wait(seconds)

    def apply(self, *options: object) -> Ran:
        return self.run("apply", self.plan, "--yes", *options)

    @contextmanager
    def store(self) -> Iterator[StateStore]:
        with open_state(self.home / "state.db", datetime.now(UTC)) as store:
            yield store

    def stock(self, *lines: str) -> None:
        """What the sandbox has, how long a start takes, which nodes are sick (terraform/modules/sandbox/start.sh)."""
        file = self.folder / "cloud" / "stock"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in lines))

    def deploy(self, **content: Any) -> None:
        """Writes the deploy file. Gangs go on by ``greedy`` unless it says otherwise (``policy=None``: leaves it out):
        most tests are of machines and states, and with hours to its deadline the default would wait for spot."""
        wanted = {"policy": "greedy", **content}
        (self.home / "deploy.yaml").write_text(yaml.safe_dump({k: v for k, v in wanted.items() if v is not None}))

    def end(self) -> None:
        """Ends whatever a test that failed has left."""
        self.holds.free_all()
        for running in self._running:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait()
        _end_all(f"{self.folder}/".encode())


class Template:
    """A site that was planned once: ``jobs`` in one plan, ``cloud`` what its sandbox sells. Copies of it are sites,
    with ``engine`` (None: embedded)."""

    def __init__(
        self,
        folder: Path,
        jobs: Sequence[Mapping[str, Any]],
        engine: Path | None = None,
        cloud: Mapping[str, Any] = SANDBOX,
    ) -> None:
        self.folder, self._engine = folder, engine
        folder.mkdir(parents=True)
        (folder / "sandbox.yaml").write_text(yaml.safe_dump(cloud))
        (folder / "clouds.yaml").write_text(yaml.safe_dump({"clouds": {"sandbox": {"file": "sandbox.yaml"}}}))
        (folder / "limits.yaml").write_text(yaml.safe_dump({"clouds": ["sandbox"]}))
        (folder / "jobs.yaml").write_text(yaml.safe_dump_all(jobs))
        site = Site(folder, "", "", Holds(folder / "holds"))
        for words in (
            ("prices", "refresh", "--cloud", "sandbox"),
            ("plan", "jobs.yaml", "--limits", "limits.yaml", "--out", "plan.json"),
        ):
            said = folder / "said"
            done = site.run(*[folder / str(w) if str(w).endswith((".yaml", ".json")) else w for w in words])
            assert done.code == 0, done.err
            shutil.rmtree(said)

    def site(self, folder: Path) -> Site:
        """A copy with a state of its own, which knows the jobs as after `plan --out`."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("sandbox.yaml", "clouds.yaml", "limits.yaml", "jobs.yaml", "plan.json"):
            shutil.copy2(self.folder / name, folder / name)
        shutil.copytree(self.folder / "home" / "books", folder / "home" / "books")
        text = (folder / "plan.json").read_text()
        holds = Holds(folder / "holds")
        write_engine(folder / "bin", holds, self._engine)
        now = datetime.now(UTC)
        with open_state(folder / "home" / "state.db", now) as store:
            jobs = load_jobs([folder / "jobs.yaml"], now).jobs
            store.plans.put_jobs({job.digest: job_json(job) for job in jobs}, now)
            site = Site(folder, plan_content(plan_from_json(text, "plan.json"))["digest"], store.id, holds)
        site.deploy()
        return site


NewSite = Callable[[Template], Site]
_planned: dict[tuple[str, str], Template] = {}


def planned(folder: Path, name: str, *jobs: Mapping[str, Any]) -> Template:
    """The template of that name below the folder of a test run (``tmp_path_factory.getbasetemp()``), planned once."""
    key = (str(folder), name)
    if key not in _planned:
        _planned[key] = Template(folder / f"planned-{name}", jobs)
    return _planned[key]


def at_prices(arguments: Sequence[object]) -> bool:
    """Whether these are the words of a command that looks up prices."""
    first, second = (*arguments, "", "")[:2]
    return first in {"apply", "watch", "quote"} or (first == "plan" and second not in {"show", "diff"})


def _end_all(mark: bytes) -> None:
    """Every process whose environment speaks of a site's folder, for as long as there is one."""
    for _ in range(20):
        found = [pid for pid, environment in environments() if mark in environment and pid != os.getpid()]
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def environments() -> Iterator[tuple[int, bytes]]:
    """Pid and environment of every process of this user; one that only waits to be reaped has none."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                environment = (folder / "environ").read_bytes()
                if environment:
                    yield int(folder.name), environment
