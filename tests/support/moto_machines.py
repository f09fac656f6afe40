"""Machines for a moto server: what runs on an instance while moto says that it runs. Each reads its user data as
cloud-init would, puts the files below a folder of its own, fetches the agent and starts it; when moto says that the
instance is gone, the agent's processes are."""

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import yaml

_POLL_S = 0.3
_CONFIG = "agent.json"


@dataclass
class Machines:
    """Plays every instance that carries our tag, in these regions. ``sick``: ranks that boot and never start
    anything. ``gpus``: what nvidia-smi lists, a line a GPU; without any nobody asks for a driver."""

    url: str
    regions: Sequence[str]
    folder: Path
    sick: frozenset[int] = frozenset()
    gpus: Sequence[str] = ()
    booted: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def play(self) -> None:
        """Until told to end."""
        clients = [
            boto3.client("ec2", region, endpoint_url=self.url, aws_access_key_id="x", aws_secret_access_key="x")
            for region in self.regions
        ]
        while not self._over.wait(_POLL_S):
            alive: set[str] = set()
            for ec2 in clients:
                ours = [
                    {"Name": "tag-key", "Values": ["stepfare_attempt"]},
                    {"Name": "instance-state-name", "Values": ["pending", "running"]},
                ]
                for page in ec2.describe_instances(Filters=ours)["Reservations"]:
                    for instance in page["Instances"]:
                        name = instance["InstanceId"]
                        alive.add(name)
                        if name not in self.booted:
                            self._boot(ec2, name)
            for name in set(self._running) - alive:
                _end(self._running.pop(name))

    def end(self) -> None:
        """Switches everything off."""
        self._over.set()
        for process in self._running.values():
            _end(process)

    def _boot(self, ec2: Any, name: str) -> None:
        asked = ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
        text = gzip.decompress(base64.b64decode(base64.b64decode(asked["UserData"]["Value"]))).decode()
        assert text.startswith("#cloud-config\n")
        told = yaml.safe_load(text)
        root = self.folder / name
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
        config |= {"heartbeat_seconds": 0.5, "master_port": 0, "gpus": bool(self.gpus)}
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
def machines(
    url: str, regions: Sequence[str], folder: Path, sick: frozenset[int] = frozenset(), gpus: Sequence[str] = ()
) -> Iterator[Machines]:
    """Plays them while the block runs."""
    played = Machines(url, regions, folder, sick, gpus)

    def play() -> None:
        try:
            played.play()
        except Exception as error:  # a thread's end would go unnoticed
            played.problems.append(repr(error))

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield played
    finally:
        played.end()
        thread.join(10)
    assert not played.problems, played.problems


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(5)
