"""Find out whether a cloud has credentials on this machine, without network and without returning their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from providers.registry import CLOUDS


@dataclass(frozen=True, slots=True)
class CredentialPresence:
    """Whether credentials were found: ``place`` says where, ``remedy`` what to do where there are none."""

    cloud: str
    place: str
    remedy: str

    @property
    def found(self) -> bool:
        """Return whether there are any."""
        return bool(self.place)


def find_credentials(cloud: str, environment: Mapping[str, str], home: Path) -> CredentialPresence:
    """Return whether ``cloud`` (a key of ``CLOUDS``) has credentials here; they may still be refused or expired.

    Roles of machines are not looked for, since only a network service knows them.
    """
    places = CLOUDS[cloud].credential_places
    if places is None:
        return CredentialPresence(cloud, "", "needs none: its public prices are compared with")
    for group in places.variables:
        if all(environment.get(variable) for variable in group):
            return CredentialPresence(cloud, f"{group[0]} in the environment", "")
    for file in places.files:
        if _matches(file.path(environment, home), file.pattern):
            named = bool(file.variable and environment.get(file.variable))
            return CredentialPresence(
                cloud, f"the place that {file.variable} names" if named else f"~/{file.default}", ""
            )
    return CredentialPresence(cloud, "", places.remedy)


def _matches(path: Path, pattern: str) -> bool:
    try:
        return re.search(pattern, path.read_text(encoding="utf-8-sig", errors="replace")) is not None
    except (OSError, ValueError):  # A missing file, a folder, a name with NUL.
        return False
