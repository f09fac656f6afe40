"""The context of a query: settings, state, clock and the identity that asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from router.access.identity import Identity
from router.app.settings import AppSettings
from router.state.store import StateStore


@dataclass(frozen=True, slots=True)
class QueryContext:
    """Settings, an open state, a clock, and who asks.

    Queries raise AccessDeniedError, StateError and InvalidInputError.
    """

    settings: AppSettings
    store: StateStore
    clock: Callable[[], datetime]
    identity: Identity

    @property
    def night(self) -> str:
        """Return the name of the plans that are tonight's."""
        return self.settings.deploy.console.night

    def asked_by(self, identity: Identity) -> QueryContext:
        """Return the same context for somebody else."""
        return replace(self, identity=identity)
