"""Define facts: rows of money with their words, the one table that reports, checks and files are made from.

A fact comes from a ledger entry, a charge of a FOCUS file, or a row of a bill. Amounts are decimals of any scale that
holds them exactly (:data:`COLUMNS` names the widest); null is unknown, never zero. Times are UTC, ends exclusive.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

# The types of our FOCUS files, too. Places out of 38 digits. Costs and prices: bills print a double's 17 digits of a
# thousandth of a cent; 14 digits stay before the point. Quantities: bytes and their sums need more room before it.
MONEY: Final = pa.decimal128(38, 24)
AMOUNT: Final = pa.decimal128(38, 18)
MOMENT: Final = pa.timestamp("us", tz="UTC")
TEXT: Final = pa.string()

# How many weeks before a month belong to its report: days are compared with the same days of the week.
WEEKS: Final = 9

UNALLOCATED: Final = "__unallocated__"  # where a team, project or job is not known


class FactSource(StrEnum):
    """The origin of a fact."""

    PLANNED = "planned"  # a line of an accepted plan: not money spent
    METERED = "metered"  # machines, disks and copies that ran, at our prices
    ADDED = "added"  # a fee, credit, tax or adjustment that a person wrote
    BILLED = "billed"  # a bill's row


COLUMNS: Final = pa.schema(
    [
        # Where it comes from.
        pa.field("source", TEXT, nullable=False),  # Source
        pa.field("origin", TEXT, nullable=False),  # "ledger", a bill's id, or the file's name
        pa.field("row", pa.int64(), nullable=False),  # the ledger's number, or the file's row from 1
        pa.field("key", TEXT),  # the ledger's key
        pa.field("state", TEXT, nullable=False),  # State; Planned facts: Estimated
        pa.field("category", TEXT, nullable=False),  # FOCUS ChargeCategory: Usage, Purchase, Tax, Credit, Adjustment
        pa.field("corrects", TEXT),  # a key or a closed month; "" unnamed; null: no correction
        # When.
        pa.field("month", TEXT, nullable=False),  # of the books: 2026-11
        pa.field("start", MOMENT, nullable=False),
        pa.field("end", MOMENT, nullable=False),
        pa.field("recorded_at", MOMENT),
        # Owners; null where nobody names one.
        pa.field("team", TEXT),
        pa.field("project", TEXT),
        pa.field("cost_center", TEXT),
        pa.field("job", TEXT),
        pa.field("job_digest", TEXT),
        pa.field("plan", TEXT),
        pa.field("gang", TEXT),
        pa.field("attempt", TEXT),
        pa.field("rank", pa.int32()),
        # What and where.
        pa.field("what", TEXT, nullable=False),  # router.ledger.entry.CostItem
        pa.field("use", TEXT),  # router.ledger.entry.MachineUse: work or a kind of waste; null: unknown, or no machine
        pa.field("cloud", TEXT),  # our name: aws, gcp, azure, ...; else the provider's own words
        pa.field("account", TEXT),
        pa.field("region", TEXT),
        pa.field("zone", TEXT),
        pa.field("instance_type", TEXT),
        pa.field("market", TEXT),  # on_demand, spot, reserved
        pa.field("accelerator", TEXT),
        pa.field("resource", TEXT),  # the provider's id of the machine, disk, bucket
        pa.field("sku", TEXT),
        # How much.
        pa.field("quantity", AMOUNT),  # in unit; of machines: hours of all of them
        pa.field("unit", TEXT),
        pa.field("hours", AMOUNT),  # of single machines; null of anything else
        pa.field("gpu_hours", AMOUNT),
        pa.field("useful", AMOUNT),  # steps, tokens or samples that it paid for
        pa.field("useful_unit", TEXT),  # Steps, Tokens, Samples
        pa.field("lost", AMOUNT),  # of the same, done and lost again
        # Money, null where it is not known:
        pa.field("currency", TEXT, nullable=False),
        pa.field("billed", MONEY),  # cash: what the invoice charges
        pa.field("effective", MONEY),  # accrual: with commitments spread over what they cover
        pa.field("list", MONEY),
        pa.field("on_demand", MONEY),  # the same hours at the on-demand list price of place and time
        pa.field("unpriced", pa.bool_(), nullable=False),
        pa.field("price_as_of", TEXT),
        pa.field("price_source", TEXT),
        # Of what people added, and of bills.
        pa.field("reason", TEXT),
        pa.field("who", TEXT),
        pa.field("reference", TEXT),  # invoice id, document
        # Of a part of a shared charge.
        pa.field("split_origin", TEXT),
        pa.field("split_method", TEXT),
    ]
)


def fit_column(column: Any, field: pa.Field) -> Any:
    """Return the column in the type of the field."""
    return column if column.type == field.type else pc.cast(column, field.type)
