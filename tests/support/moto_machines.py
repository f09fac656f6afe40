"""Machines for a moto server: what runs on an instance while moto says that it runs."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import yaml

_POLL_S = 0.3
_CONFIG = "agent.json"
# Returns the user data of each machine that runs, by its id; it is read once.
Look = Callable[[], Mapping[str, Callable[[], str]]]


@dataclass
class Machines:
    """Plays every machine that ``look`` names. ``sick``: ranks that boot and never start anything. ``gpus``: what
    nvidia-smi lists, a line a GPU; without any nobody asks for a driver. ``settings``: more of a machine's agent."""

    look: Look
    folder: Path
    sick: frozenset[int] = frozenset()
    gpus: Sequence[str] = ()
    settings: Callable[[str], Mapping[str, Any]] = lambda _: {}
    booted: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def play(self) -> None:
        while not self._over.wait(_POLL_S):
            alive = self.look()
            for name, read in alive.items():
                if name not in self.booted:
                    self._boot(name, read())
            for name in set(self._running) - set(alive):
                _end(self._running.pop(name))

    def end(self) -> None:
        self._over.set()
        for process in self._running.values():
            _end(process)

    def _boot(self, name: str, text: str) -> None:
        assert text.startswith("#cloud-config\n")
        told = yaml.safe_load(text)
        root = self.folder / name.replace("/", "_")
        files = {entry["path"]: entry["content"] for entry in told["write_files"]}
        config = json.loads(files["/etc/stepfare/agent.json"])
        self.booted[name] = config["rank"]
        if config["rank"] in self.sick:
            return
        for path, content in files.items():
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
            place.chmod(0o600)
        for key in ("workdir", "token_file", "env_file", "log_folder", "spool_folder"):
            config[key] = str(root / config[key].lstrip("/"))
        # So many machines share one here, and nobody waits for minutes.
        config |= {"heartbeat_seconds": 0.5, "master_port": 0, "gpus": bool(self.gpus), **self.settings(name)}
        place = root / "etc/stepfare" / _CONFIG
        place.write_text(json.dumps(config))
        fetch = next(words for words in told["runcmd"] if words[0].endswith("fetch-agent.sh"))
        with urllib.request.urlopen(fetch[1], timeout=10) as answer:
            agent = answer.read()
        assert hashlib.sha256(agent).hexdigest() == fetch[2]
        (root / "agent.pyz").write_bytes(agent)
        tool = root / "bin" / "nvidia-smi"
        if self.gpus:
            tool.parent.mkdir()
            lines = "\n".join(self.gpus)
            tool.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
            tool.chmod(0o755)
        environment = {"PATH": f"{tool.parent}:{os.environ['PATH']}", "HOME": str(root)}
        with (root / "stderr").open("wb") as stderr:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-I", root / "agent.pyz", place],
                env=environment,
                stderr=stderr,
                start_new_session=True,
            )


@contextmanager
def played(machines: Machines) -> Iterator[Machines]:
    """Plays them while the block runs."""

    def play() -> None:
        try:
            machines.play()
        except Exception as error:  # a thread's end would go unnoticed
            machines.problems.append(repr(error))

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield machines
    finally:
        machines.end()
        thread.join(10)
    assert not machines.problems, machines.problems


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(5)


def instances(url: str, regions: Sequence[str]) -> Look:
    """Looks at every instance that carries our tag, in these regions."""
    clients = [
        boto3.client("ec2", region, endpoint_url=url, aws_access_key_id="x", aws_secret_access_key="x")
        for region in regions
    ]

    def look() -> Mapping[str, Callable[[], str]]:
        alive: dict[str, Callable[[], str]] = {}
        for ec2 in clients:
            ours = [
                {"Name": "tag-key", "Values": ["stepfare_attempt"]},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ]
            for page in ec2.describe_instances(Filters=ours)["Reservations"]:
                for instance in page["Instances"]:
                    alive[instance["InstanceId"]] = partial(_user_data, ec2, instance["InstanceId"])
        return alive

    return look


def _user_data(ec2: Any, name: str) -> str:
    asked = ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
    return gzip.decompress(base64.b64decode(base64.b64decode(asked["UserData"]["Value"]))).decode()


@contextmanager
def machines(
    url: str, regions: Sequence[str], folder: Path, sick: frozenset[int] = frozenset(), gpus: Sequence[str] = ()
) -> Iterator[Machines]:
    """Plays them while the block runs."""
    with played(Machines(instances(url, regions), folder, sick, gpus)) as found:
        yield found
