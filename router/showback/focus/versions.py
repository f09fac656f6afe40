"""Define which columns each version of FOCUS has, how a header tells its version, and which columns were renamed. Pure.

1.3 named who sells and whose hardware it is (ServiceProviderName, HostProviderName) where ProviderName and
PublisherName had stood; 1.4 removed the old names. Nothing else was renamed: going up adds empty columns, going down
drops columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Final

from router.showback.focus.columns import BY_NAME, FOCUS_COLUMNS, OWN_COLUMNS, FocusColumn

VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
NEWEST = "1.4"
# What OCI writes: names of a preview of 1.0.
_PREVIEW_NAMES = {
    "Provider": "ProviderName",
    "Publisher": "PublisherName",
    "InvoiceIssuer": "InvoiceIssuerName",
    "Region": "RegionId",
    "UsageQuantity": "ConsumedQuantity",
    "UsageUnit": "ConsumedUnit",
}
_OCI = "oci_"
RENAMED_COLUMNS = {"ProviderName": "ServiceProviderName", "PublisherName": "HostProviderName"}

# Without these a file is not Cost and Usage; no other FOCUS data set has them.
_REQUIRED = frozenset({"BilledCost", "EffectiveCost", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory"})


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@cache
def columns_of(version: str) -> tuple[FocusColumn, ...]:
    """Return the columns of FOCUS ``version`` in their written order; KeyError for an unknown version."""
    if version not in VERSIONS:
        raise KeyError(version)
    at = _number(version)
    return tuple(
        column
        for column in FOCUS_COLUMNS
        if _number(column.since) <= at and (column.removed is None or at < _number(column.removed))
    )


@cache
def written_columns(version: str) -> tuple[FocusColumn, ...]:
    """Return the columns of a file of ours of that version: all columns of FOCUS, then ours."""
    return (*columns_of(version), *OWN_COLUMNS)


# The names of the columns of a stored bill that every bill has.
NEWEST_NAMES: Final = tuple(column.name for column in written_columns(NEWEST))


def bare_name(name: str) -> str:
    """Return the name of a column without capitals, blanks, dashes and underscores."""
    return name.casefold().translate(str.maketrans("", "", " -_"))


_BY_BARE_NAME = {bare_name(name): name for name in BY_NAME}


def find_column(name: str) -> str | None:
    """Return the column of FOCUS, or ours, that a name means, whatever its capitals and blanks; None for none."""
    return _BY_BARE_NAME.get(bare_name(name))


def match_names(header: Sequence[str]) -> dict[str, list[str]]:
    """Map each column that a header writes in another way than FOCUS does to the names that it has there."""
    of_oci = any(name.casefold().startswith(_OCI) for name in header)
    names_by_column: dict[str, list[str]] = {}
    for name in header:
        column = find_column(name) or (_PREVIEW_NAMES.get(name) if of_oci else None)
        if column is not None and column != name and column not in header:
            names_by_column.setdefault(column, []).append(name)
    return names_by_column


def detect_version(header: Collection[str]) -> str | None:
    """Return the oldest version that has the newest FOCUS column of a header; None for no Cost and Usage file.

    A header without ProviderName and PublisherName that has what replaced them is 1.4, even with no column that is new
    in 1.4: in 1.3 the old names were still mandatory.
    """
    names = frozenset(header)
    if _REQUIRED - names:
        return None
    known = [column for column in FOCUS_COLUMNS if column.name in names and column.removed is None]
    version = max((column.since for column in known), key=_number)
    return NEWEST if version == "1.3" and not names & RENAMED_COLUMNS.keys() else version


def match_columns(header: Collection[str]) -> dict[str, str]:
    """Map each column of the newest version, and ours, that a header can fill to the column of the header."""
    names = frozenset(header)
    filled = {column.name: column.name for column in written_columns(NEWEST) if column.name in names}
    for old, new in RENAMED_COLUMNS.items():
        if old in names:
            filled.setdefault(new, old)
    return filled
