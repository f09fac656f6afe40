"""Fabrics: what a job and a machine need so that the network between machines is used, as the clouds document it.

Every row of ``tables/fabrics.csv`` has its source and date. A fabric without a row is not counted on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from pricing.table_rows import parse_rows, read_table


@dataclass(frozen=True, slots=True)
class Fabric:
    """The needs of one fabric of a cloud; lists are separated by spaces, "" is none.

    ``setup``: the script that a new machine runs, with its arguments (containers in the version that is documented);
    None where the machine's image has everything. ``environment``, ``script``, ``folders``, ``libraries`` and
    ``present`` are for the agent, whose ``FabricSetup`` says what they mean.
    """

    cloud: str
    fabric: str
    setup: str | None
    environment: str
    script: str
    folders: str
    libraries: str
    present: str
    source: str
    as_of: str
    note: str


@cache
def fabrics() -> tuple[Fabric, ...]:
    """Return the rows of ``tables/fabrics.csv``."""
    return parse_rows(Fabric, read_table("fabrics"))


def find_fabric(cloud: str, fabric: str) -> Fabric | None:
    """Return the row of the fabric; None where the cloud has none."""
    return next((row for row in fabrics() if (row.cloud, row.fabric) == (cloud, fabric)), None)
