"""Signal dispositions that child processes inherit from the command line."""

from __future__ import annotations

import signal
from types import FrameType


def restore_child_interrupt() -> None:
    """Give child processes the default SIGINT disposition, even if this process ignores SIGINT.

    A shell starts ``command &`` and ``nohup`` with SIGINT ignored. An ignored signal stays ignored across exec, and
    Terraform could not be stopped. A handler is reset to the default by exec. The handler installed here does nothing,
    so this process keeps ignoring Ctrl-C. Call this in the main thread, before the first child starts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, _ignore)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
