"""Errors of checkpoints on durable storage. No message holds a secret."""

from __future__ import annotations


class StorageError(Exception):
    """An operation on durable storage failed; ``remedy`` says what would help."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class IncompleteCheckpointError(StorageError):
    """A checkpoint is torn, was changed, or is gone: use another one."""


class OutOfTimeError(StorageError):
    """The time was over. Files that were copied stay and need not be copied again."""


class CancelledError(StorageError):
    """The transfer was cancelled because something else is to be done first."""
