"""Parser of catalogues as ``gpuhunt`` writes them: one CSV row for each machine type, place and market.

The columns are ``gpuhunt._internal.storage.CATALOG_V2_FIELDS``; those that older ones lack may be missing here too.
Several clouds in one file have a column ``provider`` in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pricing.places import Market
from providers.neoclouds.parse.catalogue_rows import (
    CELLS,
    FRACTION,
    NOT_ABOVE_ZERO,
    BadRow,
    CatalogueContent,
    CatalogueListing,
    CellParser,
    WrongCellError,
    read_table,
)

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


NEEDED = ("instance_name", "location", "price", "gpu_count", "gpu_name", "spot")
_MARKETS = {"true": Market.SPOT, "false": Market.ON_DEMAND}


def read_catalogue(lines: Iterable[str], naming_of: Callable[[str], NamingRule]) -> dict[str, CatalogueContent]:
    """Return the content of the catalogue, by its ``provider`` column ("" where it has none).

    ``naming_of`` is called with that value. Machines without accelerators are ignored. NotACatalogueError when it is no
    such table.
    """
    columns, rows = read_table(lines, NEEDED)
    width = len(columns)
    at_provider = columns.get("provider", -1)
    at_name, at_place, at_count = columns["instance_name"], columns["location"], columns["gpu_count"]
    readings: dict[str, CatalogueContent] = {}
    readers: dict[str, _RowReader] = {}
    for line, row in rows:
        short = len(row) != width
        provider = "" if at_provider < 0 or short else row[at_provider].strip()
        reading = readings.get(provider)
        if reading is None:
            reading = readings[provider] = CatalogueContent()
            readers[provider] = _RowReader(columns, naming_of(provider))
        reading.rows += 1
        if short:
            reading.bad.append(BadRow(line, "", CELLS, "", ",".join(row)[:60], ""))
            continue
        location = row[at_place].strip()
        if location:
            reading.locations.add(location)
        if row[at_count] == "0":
            continue
        reading.take(line, row, columns, f"{row[at_name]} in {location}", location, readers[provider].read)
    return readings or {"": CatalogueContent()}


class _RowReader:
    """Read rows of one cloud in one table."""

    def __init__(self, columns: dict[str, int], naming: NamingRule) -> None:
        self._naming = naming
        self._cells = CellParser()
        self._needed = tuple(columns[name] for name in NEEDED)
        self._optional = tuple(columns.get(name, -1) for name in ("gpu_memory", "cpu", "memory", "flags"))

    def read(self, line: int, row: list[str]) -> list[CatalogueListing] | str:
        """Return the listing, none for a machine without accelerators, or why it is left out."""
        name, location, price_text, count_text, gpu, spot = [row[at].strip() for at in self._needed]
        if not count_text:
            raise WrongCellError("gpu_count", "is blank")
        count = self._cells.whole("gpu_count", count_text)
        if count == 0:
            return []
        if not (name and location and gpu):
            raise WrongCellError("instance_name" if not name else "gpu_name" if location else "location", "is blank")
        market = _MARKETS.get(spot.lower())
        if market is None:
            raise WrongCellError("spot", "is neither True nor False")
        price = self._cells.price("price", price_text)
        gpu_memory, cpu, memory, flags = [row[at] if at >= 0 else "" for at in self._optional]
        accelerator_gib = self._cells.number("gpu_memory", gpu_memory)
        vcpus, memory_gib = self._cells.whole("cpu", cpu), self._cells.number("memory", memory)
        if count is None:
            return FRACTION
        if price.nanos == 0:
            return NOT_ABOVE_ZERO
        machine = self._naming.machine(name, count, location, flags)
        place = (line, machine, location, None, market, price)
        return [CatalogueListing(*place, gpu, count, accelerator_gib, vcpus, memory_gib)]
