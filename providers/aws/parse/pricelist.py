"""Parser of the public price list's on-demand prices: a region's index.csv, as a stream of bytes. Pure.

AWS writes five lines of metadata ("FormatVersion", "Disclaimer", "Publication Date", "Version", "OfferCode"), a header,
and one line per SKU and term. Such a file has 100 to 300 MB, nearly all of it about other products, so that lines are
filtered as bytes first.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from pricing.book import PriceBook
from pricing.money import UsdPerHour
from providers.aws.parse.prices import NOT_HOURLY, NOT_USD, OnDemandPrices, PriceRow, read_price, resolve_prices
from providers.errors import UnreadableError
from providers.protocol import DroppedRow

SOURCE = "AWS public price list"
NAMELESS_GPU = "the public price list does not say which accelerator it has"
_METADATA_LINES = 5
_NEEDED = (
    "SKU",
    "TermType",
    "Unit",
    "PricePerUnit",
    "Currency",
    "Instance Type",
    "Tenancy",
    "Operating System",
    "CapacityStatus",
    "Pre Installed S/W",
)
# The values that a relevant line contains; every value is quoted.
_MARKS = (b'"OnDemand"', b'"Linux"', b'"Used"', b'"Shared"')
_WANTED: Mapping[str, frozenset[str]] = {
    "TermType": frozenset({"OnDemand"}),
    "Tenancy": frozenset({"Shared"}),
    "Operating System": frozenset({"Linux"}),
    "CapacityStatus": frozenset({"Used"}),
    "Pre Installed S/W": frozenset({"", "NA"}),
    # Older files do not have these columns.
    "MarketOption": frozenset({"", "OnDemand"}),
    "Location Type": frozenset({"", "AWS Region"}),
}


@dataclass(frozen=True, slots=True)
class PublicPriceList:
    """The prices of the list; ``published`` is the list's own date, None where it has none."""

    listed: OnDemandPrices
    published: date | None


def read_list(cloud: str, region: str, chunks: Iterable[bytes], book: PriceBook) -> PublicPriceList:
    """Return prices of the machines that the book knows; a type with GPUs that it does not know is dropped.

    UnreadableError when the file is cut off or is not a price list: nothing of it is used.
    """
    head, lines, last = _filter_lines(chunks)
    metadata = [_cells(line) for line in head[:_METADATA_LINES]]
    header = _cells(head[_METADATA_LINES]) if len(head) > _METADATA_LINES else []
    if missing := [name for name in _NEEDED if name not in header]:
        raise UnreadableError(cloud, f"the price list of {region} has no column {missing[0]!r}")
    if len(_cells(last)) != len(header) or last.count(b'"') % 2:
        raise UnreadableError(cloud, f"the price list of {region} ends in the middle of a line")
    rows: list[PriceRow] = []
    unknown = set()
    for cells in csv.reader(line.decode() for line in lines):
        if len(cells) != len(header):
            raise UnreadableError(cloud, f"a line in the price list of {region} is not as wide as its header")
        row = dict(zip(header, cells, strict=True))
        if any(row.get(column, "") not in wanted for column, wanted in _WANTED.items()):
            continue
        name = row["Instance Type"]
        if book.machine(cloud, name) is not None:
            rows.append((name, row["SKU"], _read_row(row)))
        elif row.get("GPU", "") not in ("", "NA", "0"):
            unknown.add(name)
    prices = resolve_prices(region, rows, len(lines))
    nameless = (DroppedRow(f"{region} {name}", NAMELESS_GPU) for name in sorted(unknown))
    return PublicPriceList(replace(prices, dropped=(*prices.dropped, *nameless)), _published(metadata))


def _read_row(row: Mapping[str, str]) -> UsdPerHour | str:
    if row["Unit"] != "Hrs":
        return NOT_HOURLY
    return read_price(row["PricePerUnit"]) if row["Currency"] == "USD" else NOT_USD


def _filter_lines(chunks: Iterable[bytes]) -> tuple[list[bytes], list[bytes], bytes]:
    """Return the metadata and header, the lines that can matter, and the last line, whichever it is."""
    head: list[bytes] = []
    relevant: list[bytes] = []
    last = rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            last = lines[-1]
        new = lines[: _METADATA_LINES + 1 - len(head)]
        head += new
        relevant += filter(_may_matter, lines[len(new) :])
    if rest:
        last = rest
        relevant += filter(_may_matter, [rest])
    return head, relevant, last


def _may_matter(line: bytes) -> bool:
    return all(mark in line for mark in _MARKS)


def _cells(line: bytes) -> Sequence[str]:
    return next(csv.reader([line.decode(errors="replace").rstrip("\r")]), [])


def _published(metadata: Iterable[Sequence[str]]) -> date | None:
    for row in metadata:
        if row[:1] == ["Publication Date"] and len(row) > 1:
            try:
                return date.fromisoformat(row[1][:10])
            except ValueError:
                return None
    return None
