"""Backends of Terraform's state: locked, one place for each attempt, no credential in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Backend:
    """The backend that holds Terraform's state: ``local`` (in the run directory), or s3, gcs, azurerm, http, pg.

    ``settings`` are not secret; credentials reach a backend through the environment only. The setting that says where
    one state lies must contain ``{attempt}``, since two attempts in one state would destroy each other's machines.
    """

    kind: str = "local"
    settings: Mapping[str, str | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(sorted(self.settings.items()))))
        if self.kind not in _STATE_PLACE:
            raise ValueError(f"backend {self.kind!r} is unknown; one of {', '.join(sorted(_STATE_PLACE))}")
        secret = sorted(name for name in self.settings if _SECRET_SETTING.search(name))
        if secret:
            raise ValueError(
                f"backend {self.kind}: {', '.join(secret)} may be secret: set it in the environment instead"
            )
        if any("@" in value.partition("://")[2].partition("/")[0] for value in self._texts()):
            raise ValueError(f"backend {self.kind}: an address with a user or password: set them in the environment")
        place = _STATE_PLACE[self.kind]
        if place is None and self.settings:
            raise ValueError(f"backend {self.kind} takes no settings: its state lies in the run directory")
        if place is not None and "{attempt}" not in str(self.settings.get(place, "")):
            raise ValueError(
                f"backend {self.kind}: {place} must contain {{attempt}}: each attempt has a state of its own"
            )
        lock = _LOCK_SETTINGS.get(self.kind)
        if lock is not None and not any(self.settings.get(name) for name in lock):
            raise ValueError(
                f"backend {self.kind} locks nothing without {' or '.join(lock)}: two runs could write at once"
            )

    def _texts(self) -> list[str]:
        return [value for value in self.settings.values() if isinstance(value, str)]

    def of(self, attempt: str) -> dict[str, str | bool]:
        """Return the settings with ``{attempt}`` filled in."""
        return {
            name: value.replace("{attempt}", attempt) if isinstance(value, str) else value
            for name, value in self.settings.items()
        }


# The setting of each backend that tells one state from another.
_STATE_PLACE: Final[Mapping[str, str | None]] = {
    "local": None,
    "s3": "key",
    "gcs": "prefix",
    "azurerm": "key",
    "http": "address",
    "pg": "schema_name",
}
# Backends that lock only when told to, and the settings that tell them.
_LOCK_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("use_lockfile", "dynamodb_table"),
    "http": ("lock_address",),
}
_SECRET_SETTING: Final = re.compile(r"secret|password|token|credential|access_key|encryption_key|conn_str|private|cert")
