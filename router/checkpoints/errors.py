"""What can go wrong with checkpoints on durable storage. No message holds a secret."""

from __future__ import annotations


class StorageError(Exception):
    """Something could not be done; ``remedy`` says what would help."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class NotWholeError(StorageError):
    """A checkpoint is torn, was changed, or has gone: another one has to do."""


class OutOfTimeError(StorageError):
    """The time was over. What was copied stays and need not be copied again."""


class CancelledError(StorageError):
    """Somebody wanted something else to be done first."""
