"""A host of a static pool for tests: a process that answers SSH on this machine (standin/ssh_host.py)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.busy import eventually
from tests.support.terraform_standin import STANDIN, standin_python


@dataclass(frozen=True)
class Host:
    """Where it answers, and the folder that is the home of whoever logs in."""

    home: Path
    described: dict[str, Any]

    @property
    def key(self) -> str:
        """The file with the private key that it lets in."""
        return str(self.home / "key")

    def entry(self, **other: object) -> dict[str, Any]:
        return {"address": "127.0.0.1", **self.described, **other}


@contextmanager
def ssh_host(home: Path) -> Iterator[Host]:
    """A host for as long as the block lasts."""
    home.mkdir(parents=True)
    python = standin_python("requirements-ssh.txt")
    with subprocess.Popen([str(python), str(STANDIN / "ssh_host.py"), str(home)]) as process:
        try:
            eventually(lambda: (home / "host.json").exists() or process.poll() is not None, why="for the host")
            yield Host(home, json.loads((home / "host.json").read_text()))
        finally:
            process.terminate()
