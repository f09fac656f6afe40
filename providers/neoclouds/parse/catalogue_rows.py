"""Content of a catalogue before it is matched with the book: one :class:`CatalogueListing` for each price."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

from pricing.machines import Accelerator
from pricing.money import UsdPerHour
from pricing.places import Market
from providers.protocol import DroppedRow

NOT_ABOVE_ZERO = "the price is 0"
CELLS = "has more or fewer cells than the header"
FRACTION = "sold with a part of an accelerator"

_NANO = Decimal("1e-9")
_LARGEST_PRICE = Decimal(10**6)


@dataclass(frozen=True, slots=True)
class CatalogueListing:
    """One price of one machine type in one place, in the catalogue's own words.

    ``line`` is the row's line; ``location`` may be a region or a zone, ``zone`` a zone where a column of its own says
    it. ``accelerator_gib`` is of one accelerator; ``cap`` how many machines are for sale; ``model`` the accelerator
    where it is known already. None is not stated.
    """

    line: int
    instance_type: str
    location: str
    zone: str | None
    market: Market
    usd_per_hour: UsdPerHour
    accelerator: str
    accelerator_count: int
    accelerator_gib: float | None
    vcpus: int | None
    memory_gib: float | None
    cap: int | None = None
    model: Accelerator | None = None


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is not what the format promises.

    It holds line, column ("" for the whole row), what is wrong (the same words for the same fault) and the cell's text.
    ``location`` is "" where even that is not known.
    """

    line: int
    column: str
    what: str
    cell: str
    row: str
    location: str


RowParser = Callable[[int, list[str]], list[CatalogueListing] | str]


@dataclass
class CatalogueContent:
    """The content of one catalogue.

    ``locations`` are all places that it names, also those without accelerators; ``unsure`` those of which a price could
    not be used.
    """

    listings: list[CatalogueListing] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    left_out: list[DroppedRow] = field(default_factory=list)
    locations: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    rows: int = 0

    def leave_out(self, row: str, why: str, location: str, *, sure: bool = True) -> None:
        """Record a row that was understood and cannot be used.

        Not ``sure``: the machine may be sold there all the same, at a price that the row does not tell.
        """
        self.left_out.append(DroppedRow(row, why))
        if not sure or why == NOT_ABOVE_ZERO:
            self.unsure.add(location)

    def take(
        self, line: int, row: list[str], columns: Mapping[str, int], label: str, location: str, read: RowParser
    ) -> None:
        """Add the listings that ``read`` makes of a row; record why where it gives a reason or the cell is wrong."""
        try:
            found = read(line, row)
        except WrongCellError as wrong:
            self.bad.append(BadRow(line, wrong.column, str(wrong), row[columns[wrong.column]], label, location))
            return
        if isinstance(found, str):
            self.leave_out(label, found, location)
        else:
            self.listings += found

    def skip(self, beginnings: tuple[str, ...]) -> None:
        """Leave out machines whose names begin so: each stands for several machines."""
        for listing in self.listings if beginnings else ():
            if listing.instance_type.startswith(beginnings):
                row = f"{listing.location} {listing.instance_type} {listing.accelerator}"
                self.leave_out(row, "accelerators are attached to it at will", listing.location)
        self.listings = [one for one in self.listings if not one.instance_type.startswith(beginnings or ("\0",))]


class NotACatalogueError(ValueError):
    """The table as a whole cannot be read: ``line``, ``column`` ("" if none) and what is wrong with it."""

    def __init__(self, line: int, column: str, what: str) -> None:
        super().__init__(what)
        self.line = line
        self.column = column
        self.what = what


def read_table(lines: Iterable[str], needed: Sequence[str]) -> tuple[dict[str, int], Iterator[tuple[int, list[str]]]]:
    """Return the position of each column, and the rows with their line numbers; blank rows are ignored.

    NotACatalogueError, here or while the rows are read: no header, a needed column missing or there twice, no CSV.
    """
    reader = csv.reader(lines, strict=True)
    rows = _rows(reader)
    number, header = next(rows, (1, []))
    names = [name.strip() for name in header]
    if not any(names):
        raise NotACatalogueError(number, "", "is empty: not even a header row")
    for name in needed:
        if names.count(name) != 1:
            raise NotACatalogueError(number, name, "column is there twice" if name in names else "missing column")
    return {name: index for index, name in enumerate(names)}, rows


def _rows(reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    try:
        for row in reader:
            if row:
                yield reader.line_num, row  # type: ignore[attr-defined]
    except csv.Error as error:
        raise NotACatalogueError(reader.line_num, "", f"is not CSV: {error}") from None  # type: ignore[attr-defined]


class WrongCellError(ValueError):
    """A cell is not what its column promises: ``column`` and, as the message, what is wrong."""

    def __init__(self, column: str, what: str) -> None:
        super().__init__(what)
        self.column = column


class CellParser:
    """Parse the cells of one table; WrongCellError for a bad one. Most texts repeat, so each is parsed once."""

    def __init__(self) -> None:
        self._prices: dict[str, UsdPerHour] = {}
        self._numbers: dict[str, float] = {}

    def price(self, column: str, text: str) -> UsdPerHour:
        """Parse a price of 0 or more as catalogues write it.

        They are written from binary floats: 3 x 3.29 reads 9.870000000000001. What lies behind the ninth decimal is
        that noise and is rounded off; the nano-dollar is the smallest unit stored.
        """
        price = self._prices.get(text)
        if price is None:
            price = self._prices[text] = UsdPerHour.parse(_amount(column, text).quantize(_NANO, ROUND_HALF_EVEN))
        return price

    def number(self, column: str, text: str) -> float | None:
        """Parse a number of 0 or more; None for a blank cell."""
        if not text:
            return None
        value = self._numbers.get(text)
        if value is None:
            try:
                value = float(text)
            except ValueError:
                raise WrongCellError(column, "is not a number") from None
            if not 0 <= value < 1e9:  # The comparison is false for NaN as well.
                raise WrongCellError(column, "is not a number of 0 or more")
            self._numbers[text] = value
        return value

    def whole(self, column: str, text: str) -> int | None:
        """Parse a whole number, also when written 8.0; None for a fraction or a blank cell."""
        value = self.number(column, text)
        return int(value) if value is not None and value == int(value) else None


def _amount(column: str, text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise WrongCellError(column, "is not a number") from None
    if not value.is_finite():
        raise WrongCellError(column, "is not a number")
    if value < 0:
        raise WrongCellError(column, "is below 0")
    if value > _LARGEST_PRICE:
        raise WrongCellError(column, "is above a million dollars an hour")
    return value
