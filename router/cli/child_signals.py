"""The signal dispositions that child processes inherit from the command line."""

from __future__ import annotations

import signal
from types import FrameType


def restore_child_interrupt() -> None:
    """Give child processes the default SIGINT disposition, also where ours is ignored.

    A shell starts ``command &`` and ``nohup`` with SIGINT ignored; an ignored signal stays ignored across exec, so that
    Terraform could not be asked to stop. A handler is reset by exec to the default. Ours does nothing: the command
    itself goes on ignoring Ctrl-C, as it was told to. Call it in the main thread, before the first child starts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, _ignore)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
