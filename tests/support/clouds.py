"""Clouds files that lead to local services, and the command as a user runs it: a process with a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.azure_service import SUBSCRIPTION
from tests.support.forked import run_forked

STEPFARE = Path(sys.executable).with_name("stepfare")
NOW = "2026-11-21T18:00:00+00:00"
CANARY = "canary-secret-4711"

# What each adapter calls by an address that can be replaced.
ENDPOINTS: Mapping[str, tuple[str, ...]] = {
    "aws": ("ec2", "pricing", "servicequotas", "sts", "sqs", "price_list", "spot_advisor"),
    "gcp": ("compute", "billing"),
    "azure": ("prices", "management"),
    "lambda": ("catalogue", "market"),
    "nebius": ("catalogue", "market"),
    "runpod": ("catalogue", "market"),
    "verda": ("catalogue", "market"),
    "vast": ("catalogue", "market"),
}
OPTIONS: Mapping[str, Mapping[str, str]] = {"gcp": {"project": "p1"}, "azure": {"subscription": SUBSCRIPTION}}


def clouds_file(folder: Path, urls: Mapping[str, str], **more: Any) -> Path:
    """A clouds file in which all services of a cloud are at one address; ``more`` as the entry of a cloud."""
    entries: dict[str, Any] = {
        cloud: {"endpoints": dict.fromkeys(ENDPOINTS[cloud], url), "options": dict(OPTIONS.get(cloud, {}))}
        for cloud, url in urls.items()
    }
    for cloud, entry in more.items():
        entries.setdefault(cloud, {}).update(entry)
    path = folder / "clouds.yaml"
    path.write_text(yaml.safe_dump({"clouds": entries}), encoding="utf-8")
    return path


def environment(home: Path, *, account: bool = True) -> dict[str, str]:
    """Nothing of this machine's accounts; with ``account`` an AWS key whose secret is the canary."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    keys = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": CANARY, "AWS_DEFAULT_REGION": "us-east-1"}
    quiet = {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true", "NO_COLOR": "1"}
    return {**kept, **quiet, **(keys if account else {}), "STEPFARE_HOME": str(home), "HOME": str(home)}


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def command(home: Path, *arguments: object, account: bool = True) -> Ran:
    """``stepfare`` in a process of its own. No output may hold the canary."""
    home.mkdir(parents=True, exist_ok=True)
    done = run_forked(arguments, environment=environment(home, account=account))
    return _without_secrets(Ran(done.returncode, done.stdout, done.stderr))


# A process begins with the peak of the one that it was forked from, so a small one starts the command and measures it.
_MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[2:])
_, status, used = os.wait4(process.pid, 0)
open(sys.argv[1], "w").write(str(used.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def command_with_memory(home: Path, *arguments: object) -> tuple[Ran, float]:
    """The installed script, and the most memory that it had, in MiB."""
    home.mkdir(parents=True, exist_ok=True)
    out, err, peak = home / ".stdout", home / ".stderr", home / ".peak"
    words = [sys.executable, "-c", _MEASURE, str(peak), str(STEPFARE), *map(str, arguments)]
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(words, env=environment(home), stdout=stdout, stderr=stderr, start_new_session=True)
        try:
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return _without_secrets(Ran(code, out.read_text(), err.read_text())), int(peak.read_text()) / 1024


def _without_secrets(ran: Ran) -> Ran:
    assert CANARY not in ran.out + ran.err
    assert "Traceback" not in ran.err, ran.err
    return ran


def everything_written(home: Path) -> bytes:
    """All bytes of all files below the home, for canaries."""
    return b"".join(path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file())
