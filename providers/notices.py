"""What a cloud announces about machines outside of them: heard here also when nothing runs on the machine any more.

The doc comments are the contract. Methods raise nothing but :class:`providers.errors.ProviderError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from providers.protocol import NoticeKind

# The option of the session's settings that names the queue.
QUEUE = "interruption_queue"


@dataclass(frozen=True, slots=True)
class CloudNotice:
    """A machine is taken back, may be soon, or was. ``seconds``: how long it has from ``at`` on, which is the cloud's
    time; None: not known. ``id``: what the machine itself hears the same announcement as, as far as that can be known.
    ``is_going``: it is too late to ask the machine for anything."""

    cloud: str
    machine_id: str
    kind: NoticeKind
    seconds: float | None
    at: datetime
    id: str
    what: str
    is_going: bool = False


@dataclass(frozen=True, slots=True)
class Letter:
    """One message of a queue; ``notice`` None: it is about something that concerns nobody here."""

    receipt: str = field(repr=False)
    notice: CloudNotice | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What a look at a queue gave. ``unreadable`` messages were left there, for its dead-letter queue."""

    letters: tuple[Letter, ...] = ()
    unreadable: int = 0


class Announcements(Protocol):
    """One queue. Made by :func:`providers.registry.open_notices`; making it touches no network. For one thread."""

    @property
    def cloud(self) -> str:
        """Its name, as in the registry."""

    def receive(self, wait_s: float) -> Batch:
        """Waits so long at most until there is something. What is not :meth:`done` comes again."""

    def done(self, letters: Sequence[Letter]) -> None:
        """Takes these out of the queue. One that could not be taken out comes again."""
