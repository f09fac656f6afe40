"""A training with an uploader beside it: what comes back when the training ends, and when. Without pyarrow, because
this process stays for as long as the training."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType

URL = "STEPFARE_CHECKPOINT_URL"
# An uploader that died is started again after so long; the pause doubles.
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
# One that is killed while it copies what is left gets so many successors.
_LAST_TRIES = 3
_LOOK_SECONDS = 0.05
# A signal to the whole group reaches a bystander in it within this time.
_GROUP_SECONDS = 0.2
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNALLED = 128


def beside(
    command: Sequence[str], uploader: Sequence[str], environment: Mapping[str, str], tell: Callable[[str], None]
) -> int:
    """Runs both in this process group until the command has ended and the uploader is done. The command's exit code
    (128 + the signal that ended it), or the uploader's where only that failed. OSError when the command cannot be
    started.

    The uploader reads its standard input: when that ends, it is to copy what is left and to end; until then it is
    started again whenever it dies. Signals reach the command once, whether they were meant for this process alone or
    for its group.
    """
    got: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        got.append(number)

    before = {number: signal.signal(number, note) for number in _FORWARDED}
    try:
        training = subprocess.Popen(list(command), env=dict(environment), stdin=subprocess.DEVNULL)
        try:
            with _Bystander() as bystander:
                return _until_both_end(training, uploader, environment, bystander, got, tell)
        finally:
            training.kill()
            training.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _until_both_end(
    training: subprocess.Popen[bytes],
    uploader: Sequence[str],
    environment: Mapping[str, str],
    bystander: _Bystander,
    got: list[int],
    tell: Callable[[str], None],
) -> int:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(list(uploader), env=dict(environment), stdin=subprocess.PIPE)

    copying, pause, started = start(), _PAUSE, time.monotonic()
    while training.poll() is None:
        time.sleep(_LOOK_SECONDS)
        while got:
            number = got.pop(0)
            if not bystander.saw(number):
                training.send_signal(number)
        if copying.poll() is not None and time.monotonic() - started >= pause:
            tell(f"the uploader ended with {copying.returncode} and is started again")
            copying, started, pause = start(), time.monotonic(), min(_LONGEST_PAUSE, 2 * pause)
    copied = _finish(copying if copying.poll() is None else start())
    for _ in range(_LAST_TRIES):
        if copied >= 0:
            break
        tell("the uploader was killed and is started again")
        copied = _finish(start())
    trained = training.returncode
    if trained:
        return trained if trained > 0 else _SIGNALLED - trained
    return copied if copied >= 0 else _SIGNALLED - copied


def _finish(copying: subprocess.Popen[bytes]) -> int:
    """Has it copy what is left; how it ended."""
    assert copying.stdin is not None
    with suppress(OSError):
        copying.stdin.close()
    return copying.wait()


class _Bystander:
    """A process of this group that a signal to the group ends: so that one knows that there was one."""

    def __enter__(self) -> _Bystander:
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def saw(self, number: int) -> bool:
        """Whether the signal that this process just got went to the whole group."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GROUP_SECONDS)
        if self._process.poll() is None:
            return False
        seen = self._process.returncode == -number
        self._process.communicate()
        self.__enter__()
        return seen
