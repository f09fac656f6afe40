"""Runs a training with an uploader beside it, and decides the exit code.

It does not import pyarrow, because this process stays for as long as the training.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType

URL = "STEPFARE_CHECKPOINT_URL"
# The pause before an uploader that died is started again; it doubles up to the longest.
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
# The number of successors of an uploader that is killed during the final copying.
_LAST_TRIES = 3
_LOOK_SECONDS = 0.05
# The time within which a signal to the whole group reaches a bystander in it.
_GROUP_SECONDS = 0.2
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNALLED = 128


def run_with_uploader(
    command: Sequence[str], uploader: Sequence[str], environment: Mapping[str, str], tell: Callable[[str], None]
) -> int:
    """Run both in this process group until the command has ended and the uploader is done; return the exit code.

    It is the command's (128 + the signal that ended it), or the uploader's where only that failed. OSError when the
    command cannot be started.

    The uploader reads its standard input: when that ends, it is to copy the rest and to end; until then it is started
    again whenever it dies. Signals reach the command once, whether they were meant for this process alone or for its
    group.
    """
    received_signals: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        received_signals.append(number)

    before = {number: signal.signal(number, note) for number in _FORWARDED}
    try:
        training = subprocess.Popen(list(command), env=dict(environment), stdin=subprocess.DEVNULL)
        try:
            with _Bystander() as bystander:
                return _wait_for_both(training, uploader, environment, bystander, received_signals, tell)
        finally:
            training.kill()
            training.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_for_both(
    training: subprocess.Popen[bytes],
    uploader: Sequence[str],
    environment: Mapping[str, str],
    bystander: _Bystander,
    received_signals: list[int],
    tell: Callable[[str], None],
) -> int:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(list(uploader), env=dict(environment), stdin=subprocess.PIPE)

    uploading, pause, started = start(), _PAUSE, time.monotonic()
    while training.poll() is None:
        time.sleep(_LOOK_SECONDS)
        while received_signals:
            number = received_signals.pop(0)
            if not bystander.saw(number):
                training.send_signal(number)
        if uploading.poll() is not None and time.monotonic() - started >= pause:
            tell(f"the uploader ended with {uploading.returncode} and is started again")
            uploading, started, pause = start(), time.monotonic(), min(_LONGEST_PAUSE, 2 * pause)
    upload_code = _finish_upload(uploading if uploading.poll() is None else start())
    for _ in range(_LAST_TRIES):
        if upload_code >= 0:
            break
        tell("the uploader was killed and is started again")
        upload_code = _finish_upload(start())
    training_code = training.returncode
    if training_code:
        return training_code if training_code > 0 else _SIGNALLED - training_code
    return upload_code if upload_code >= 0 else _SIGNALLED - upload_code


def _finish_upload(uploading: subprocess.Popen[bytes]) -> int:
    assert uploading.stdin is not None
    with suppress(OSError):
        uploading.stdin.close()
    return uploading.wait()


class _Bystander:
    """A process of this group that a signal to the group ends, which shows that there was one."""

    def __enter__(self) -> _Bystander:
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def saw(self, number: int) -> bool:
        """Return whether the signal that this process just received went to the whole group."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GROUP_SECONDS)
        if self._process.poll() is None:
            return False
        seen = self._process.returncode == -number
        self._process.communicate()
        self.__enter__()
        return seen
