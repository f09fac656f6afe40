"""A PostgreSQL server for tests, from the binaries of a wheel.

They are unpacked once for one content of postgres/requirements.txt and kept in the machine's folder for temporary
files. The wheel's own Python code is not used: as root it makes a system user and opens every folder above its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from router.agent.rendezvous import find_free_port
from tests.support.repository import ROOT, cached_folder

REQUIREMENTS = ROOT / "tests" / "support" / "postgres" / "requirements.txt"
USER = "stepfare"
PASSWORD = "s3cret/pass word"
PASSWORD_IN_URL = "s3cret%2Fpass%20word"

# Any Python will do that the wheel was made for: nothing of it is run.
_WHEEL_FOR = "3.12"
_TIME_LIMIT = 300
# A disk that is slow or full of other work makes a start after a crash long.
_START_SECONDS = 300
_LOG_SHOWN = 4_000
_SHARED = "shared"
# PostgreSQL refuses to run as root.
_NOBODY = "nobody"


def binaries() -> Path:
    """The folder with `initdb` and `postgres`, fetched from the package index when it is missing (12 MB)."""
    content = REQUIREMENTS.read_bytes() + _WHEEL_FOR.encode()

    def make(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        wanted = ["--only-binary=:all:", "--python-version", _WHEEL_FOR, "--target", str(folder / "wheel")]
        subprocess.run([*pip, *wanted, "-r", str(REQUIREMENTS)], check=True, timeout=_TIME_LIMIT)

    return cached_folder("postgres", content, make) / "wheel" / "pgserver" / "pginstall" / "bin"


class PostgresHere:
    """A server with data of its own in `folder`; on a socket there for its owner, on a port for USER with PASSWORD."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._bin = binaries()
        self._durable = durable
        self._folder = folder
        nobody = {"user": _NOBODY, "group": pwd.getpwnam(_NOBODY).pw_gid, "extra_groups": []}
        self._as: dict[str, Any] = nobody if _is_root() else {}
        self._names = (f"state{i}" for i in itertools.count())
        self._process: subprocess.Popen[bytes] | None = None
        self.port = find_free_port()

    def make(self) -> None:
        if _is_root():
            shutil.chown(self._folder, _NOBODY)
        options = ["-U", "postgres", "--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--no-sync"]
        command = [str(self._bin / "initdb"), "-D", str(self._folder / "data"), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=_TIME_LIMIT, cwd="/", **self._as)
        self.start()
        self.say(f"CREATE ROLE {USER} LOGIN CREATEDB PASSWORD '{PASSWORD}'")
        self.say(f"CREATE DATABASE {_SHARED} OWNER {USER}")

    def start(self) -> None:
        """Starts it and waits until it answers."""
        options = ["-k", str(self._folder), "-p", str(self.port), "-c", "listen_addresses=127.0.0.1"]
        # The machine does not lose its power here, and there are hundreds of databases to put on its disk.
        options += [] if self._durable else ["-c", "fsync=off"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(self._folder / "data"), *options],
                stdout=log,
                stderr=log,
                cwd="/",
                **self._as,
            )
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.say("SELECT 1")
            except psycopg.OperationalError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise AssertionError((self._folder / "log").read_text()[-_LOG_SHOWN:]) from None
                time.sleep(0.05)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: at once but in order. SIGQUIT: as if it crashed."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_START_SECONDS)
            self._process = None

    def say(self, statement: str, database: str = "postgres") -> None:
        where = f"host={self._folder} port={self.port} user=postgres dbname={database}"
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(statement.encode())

    def new_database(self) -> str:
        """The name of a new and empty one, which belongs to USER."""
        name = next(self._names)
        self.say(f"CREATE DATABASE {name} OWNER {USER}")
        return name

    def url(self, database: str, *, password: str = PASSWORD_IN_URL, scheme: str = "postgresql") -> str:
        return f"{scheme}://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def url_of_new_schema(self) -> str:
        """A place of its own in one database: a hundred times less to write than a database is."""
        name = next(self._names)
        self.say(f"CREATE SCHEMA {name} AUTHORIZATION {USER}", _SHARED)
        return f"{self.url(_SHARED)}?options=-csearch_path%3D{name}"


@contextlib.contextmanager
def postgres_here(*, durable: bool = False) -> Iterator[PostgresHere]:
    """A server that runs while the block does; its data are removed then. ``durable``: it waits for the disk."""
    # Not pytest's folder: its owner alone may enter that one, and a socket's path has to be short.
    folder = Path(tempfile.mkdtemp(prefix="stepfare-pg-"))
    server = PostgresHere(folder, durable=durable)
    try:
        server.make()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _is_root() -> bool:
    return os.geteuid() == 0
