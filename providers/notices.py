"""Interruption notices that a cloud sends outside its machines.

They arrive even when nothing runs on the machine any more. The docstrings are the contract. Methods raise nothing but
:class:`providers.errors.ProviderError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from providers.protocol import NoticeKind


@dataclass(frozen=True, slots=True)
class CloudNotice:
    """A machine is preempted, may be soon, or was.

    ``seconds``: how long it has from ``at`` on, which is the cloud's time; None: not known. ``id``: the one under which
    the machine itself hears the same notice, as far as that can be known. ``is_going``: it is too late to ask the
    machine for anything.
    """

    cloud: str
    machine_id: str
    kind: NoticeKind
    seconds: float | None
    at: datetime
    id: str
    what: str
    is_going: bool = False


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """One message of a queue with its notices; without any it concerns no machine of ours."""

    receipt: str = field(repr=False)
    notices: tuple[CloudNotice, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueBatch:
    """The messages that one read of a queue gave.

    ``unreadable`` messages were left there, for its dead-letter queue.
    """

    letters: tuple[QueueMessage, ...] = ()
    unreadable: int = 0


class NoticeQueue(Protocol):
    """One queue of notices, made by :func:`providers.registry.open_notices`; making it touches no network.

    For one thread.
    """

    #: Its name, as in the registry.
    cloud: str

    def receive(self, wait_s: float) -> QueueBatch:
        """Wait until there is a message, at most ``wait_s``. Messages that are not :meth:`done` come again."""

    def done(self, letters: Sequence[QueueMessage]) -> None:
        """Remove these messages from the queue. One that could not be removed comes again."""
