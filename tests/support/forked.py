"""Commands in processes of their own that start at once: forked from a process that has their libraries loaded.

A new interpreter needs seconds for these imports, and tests start hundreds of commands. A forked process has a pid, an
environment, a folder and files of its own, and can be killed like any other. Tests of how the program starts, and of
what its help imports, run the installed script.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from pathlib import Path

from router.cli.main import main
from tests.support.repository import ROOT

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.support.forked_libraries"])
# An exit code can be read once, and a start reads those of all processes that have ended: one thread at a time.
_EXIT_CODES = threading.Lock()


class ForkedCommand:
    """A running command, with the methods of :class:`subprocess.Popen` that tests use. Its output goes to two files.

    It is ``stepfare`` with these arguments, or ``module`` run as a program. It leads a session of its own.
    """

    def __init__(
        self,
        arguments: Sequence[object],
        *,
        environment: Mapping[str, str],
        stdout: Path,
        stderr: Path,
        folder: Path = ROOT,
        module: str | None = None,
    ) -> None:
        words = tuple(map(str, arguments))
        self.args = (module or "stepfare", *words)
        self._process = _CONTEXT.Process(
            target=_run, args=(module, words, dict(environment), str(folder), str(stdout), str(stderr)), daemon=False
        )
        with _EXIT_CODES:
            self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """The exit code, or the signal that ended it below zero; None while it runs."""
        with _EXIT_CODES:
            return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when the process ends. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        connection.wait([self._process.sentinel], timeout)
        code = self.returncode
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it still runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(
    arguments: Sequence[object], *, environment: Mapping[str, str], folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run ``stepfare`` with these arguments until it ends, and return its exit code and output."""
    with tempfile.TemporaryDirectory(prefix="stepfare-said-") as said:
        out, err = Path(said) / "stdout", Path(said) / "stderr"
        command = ForkedCommand(arguments, environment=environment, stdout=out, stderr=err, folder=folder)
        try:
            code = command.wait()
        except BaseException:
            command.kill()
            raise
        texts = (path.read_text(encoding="utf-8") if path.exists() else "" for path in (out, err))
        return subprocess.CompletedProcess(command.args, code, *texts)


def _run(
    module: str | None, words: Sequence[str], environment: Mapping[str, str], folder: str, stdout: str, stderr: str
) -> None:
    os.setsid()
    # Whoever runs the tests in the background may have made everybody deaf to it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in ((1, stdout), (2, stderr)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["stepfare", *words]
    if module is None:
        main()
    else:
        runpy.run_module(module, run_name="__main__")
