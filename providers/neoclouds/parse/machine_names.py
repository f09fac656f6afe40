"""Names of a catalogue's machine types in the book, where the catalogue's own name does not suffice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SECURE, COMMUNITY, CLUSTER = "SECURE", "COMMUNITY", "CLUSTER"


@dataclass(frozen=True)
class NamingRule:
    """The naming rule of one cloud's machine types.

    By default the catalogue's name, with ``_`` for blanks. Where a catalogue names the accelerator instead of the
    machine (``by_count``), the name is ``8x_H100-SXM_SECURE``: how many, which (``names`` shortens the catalogue's),
    and the tier: a cluster by its flag, otherwise secure in a data centre (``US-TX-3``) and community in a country
    (``US``).
    """

    by_count: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    cluster_flag: str = ""

    def machine(self, name: str, count: int, location: str, flags: str) -> str:
        """Return the name of a machine with ``count`` accelerators that the catalogue lists at ``location``."""
        if not self.by_count:
            return name.replace(" ", "_")
        short = self.names.get(name) or name.replace(" ", "-")
        tier = SECURE if "-" in location else COMMUNITY
        if self.cluster_flag and self.cluster_flag in flags.split():
            tier = CLUSTER
        return f"{count}x_{short}_{tier}"
