"""`stepfare serve` as a process with a home of its own, on a database that several of them share."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from tests.support.clouds import STEPFARE
from tests.support.listening import listening_port
from tests.support.postgres_here import PASSWORD


@dataclass
class ServeProcess:
    """A server; ``port`` 0 takes a free one, which stays its own.

    ``command`` is `stepfare` or a stand-in for it, ``entries`` are more lines of the deploy file.
    """

    folder: Path
    state: str
    token: str
    port: int = 0
    process: subprocess.Popen[str] | None = None
    command: tuple[str, ...] = (str(STEPFARE),)
    environment: Mapping[str, str] = field(default_factory=dict)
    entries: str = ""

    def start(self) -> None:
        self.begin()
        self.wait_until_listening()

    def begin(self) -> None:
        self.folder.mkdir(exist_ok=True)
        deploy = self.folder / "deploy.yaml"
        deploy.write_text(f"state: {self.state}\nconsole: {{tokens: true}}\n{self.entries}", encoding="utf-8")
        own = {"STEPFARE_HOME": str(self.folder), "PGPASSWORD": PASSWORD}
        words = [*self.command, "serve", "--port", str(self.port), "--deploy", str(deploy)]
        # A session of its own: a signal to the group reaches its children too, and nobody else.
        self.process = subprocess.Popen(
            words,
            env={**os.environ, **own, **self.environment},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_listening(self) -> None:
        assert self.process is not None
        self.port = listening_port(self.process)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def get(self, path: str, **more: Any) -> requests.Response:
        return requests.get(self.url(path), headers=self.headers(), timeout=30, **more)

    def post(self, path: str, content: object, key: str) -> requests.Response:
        headers = {**self.headers(), "Idempotency-Key": key}
        return requests.post(self.url(path), json=content, headers=headers, timeout=30)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Accept": "*/*"}

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(60)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code
