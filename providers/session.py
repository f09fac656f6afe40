"""Session of an adapter: its settings, the book, the moment and the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Settings load neither a price book nor the library of retries.
    from pricing.book import PriceBook
    from providers.caller import Caller


# The option of the settings that names the queue of notices.
QUEUE_OPTION = "interruption_queue"


@dataclass(frozen=True, slots=True)
class Settings:
    """One cloud's part of the clouds file. Everything may be left out.

    ``endpoints`` replaces the public address of a service of that cloud, by its name there; ``options`` holds what the
    adapter documents (profile, project, subscription ...), never a secret; ``regions`` limits a refresh to these
    (empty: all); ``document`` is the content of the cloud's own file where it has one (the static pool, the sandbox
    script). ``credentials`` False leaves the account alone and uses public sources only.
    """

    endpoints: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    regions: tuple[str, ...] = ()
    credentials: bool = True
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 20.0
    document: object = None


@dataclass(frozen=True)
class Session:
    """The inputs of an adapter.

    ``book`` provides machines, accelerators and regions; its offers are not used. ``now`` dates what is fetched.
    """

    settings: Settings
    book: PriceBook
    now: datetime
    caller: Caller
