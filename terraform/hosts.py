"""Existing machines, as the module ``static`` reaches them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LARGEST_PORT: Final = 65_535
# Names and addresses, IPv6 too, but nothing that a shell or SSH would take for something else.
_ADDRESS: Final = re.compile(r"[A-Za-z0-9:](?:[A-Za-z0-9:._-]*[A-Za-z0-9:])?")
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_HOST_KEY: Final = re.compile(r"(?:ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+(?: [^\r\n]*)?")


@dataclass(frozen=True, slots=True)
class Host:
    """One existing host: its SSH address and the user to log in as.

    ``host_key`` is its public key (``ssh-ed25519 AAAA...``); None: any key is accepted. ``private_address`` is where
    the gang reaches it; None: ``address`` too. ValueError for an invalid value.
    """

    address: str
    port: int = 22
    user: str = "root"
    host_key: str | None = None
    private_address: str | None = None

    def __post_init__(self) -> None:
        for what, text in (("address", self.address), ("private address", self.private_address)):
            if text is not None and not _ADDRESS.fullmatch(text):
                raise ValueError(f"{what} {text!r} of a host is neither a name nor an IP address")
        if not 1 <= self.port <= LARGEST_PORT:
            raise ValueError(f"host {self.address}: port {self.port} is not 1 to {LARGEST_PORT}")
        if not _USER.fullmatch(self.user):
            raise ValueError(f"host {self.address}: {self.user!r} is not the name of a user")
        # The message does not quote the key, because it may be the private one.
        if self.host_key is not None and not _HOST_KEY.fullmatch(self.host_key):
            raise ValueError(
                f"host {self.address}: host_key is not one line of a public key, e.g. ssh-ed25519 AAAA... name"
            )
