"""Define facts: rows of money with their words, the one table that reports, checks and files are made from.

A fact comes from a ledger entry, a charge of a FOCUS file, or a row of a bill. Amounts are decimals of any scale that
holds them exactly (:data:`COLUMNS` names the widest); null is unknown, never zero. Times are UTC, ends exclusive.

DuckDB multiplies two decimals of 38 digits into doubles or an error. So an amount becomes a whole number of its last
digit (HUGEINT) there, is divided, and becomes a decimal again. Divisions of both take longest by far: a product with
the last digit makes a decimal without any, and doubles find a quotient that whole numbers then correct.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import duckdb

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


MONEY_SQL: Final = f"DECIMAL({MONEY.precision}, {MONEY.scale})"
AMOUNT_SQL: Final = f"DECIMAL({AMOUNT.precision}, {AMOUNT.scale})"

DAY_US: Final = 86_400 * 10**6

# Of a quotient below it, a second division by doubles leaves less than one.
_MOST_QUOTIENT: Final = "1e29"

_MACROS: Final = f"""
CREATE OR REPLACE TEMP MACRO rc_money_units(x) AS (replace(x::{MONEY_SQL}::VARCHAR, '.', '')::HUGEINT);
CREATE OR REPLACE TEMP MACRO rc_amount_units(x) AS (replace(x::{AMOUNT_SQL}::VARCHAR, '.', '')::HUGEINT);
CREATE OR REPLACE TEMP MACRO rc_money(u) AS (u::DECIMAL(38, 0) * 0.{"0" * (MONEY.scale - 1)}1::{MONEY_SQL});
CREATE OR REPLACE TEMP MACRO rc_amount(u) AS (u::DECIMAL(38, 0) * 0.{"0" * (AMOUNT.scale - 1)}1::{AMOUNT_SQL});
CREATE OR REPLACE TEMP MACRO rc_about(v, d) AS ((v::DOUBLE / d::DOUBLE)::HUGEINT);
CREATE OR REPLACE TEMP MACRO rc_nearly(v, d) AS (rc_about(v, d) + rc_about(v - rc_about(v, d) * d, d));
CREATE OR REPLACE TEMP MACRO rc_divided(v, d) AS (
    CASE WHEN v >= 0 AND d > 0 AND v::DOUBLE < {_MOST_QUOTIENT} * d::DOUBLE
    THEN rc_nearly(v, d) - (v < rc_nearly(v, d) * d)::INTEGER + (v >= (rc_nearly(v, d) + 1) * d)::INTEGER
    ELSE v // d END);
CREATE OR REPLACE TEMP MACRO rc_until(v, ticks, whole) AS
    ((v // whole::HUGEINT) * ticks::HUGEINT + ((v % whole::HUGEINT) * ticks::HUGEINT) // whole::HUGEINT);
CREATE OR REPLACE TEMP MACRO rc_between(v, a, b, s, e) AS
    (rc_until(v, b - s, e - s) - rc_until(v, a - s, e - s));
"""


def define_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the macros in the connection.

    ``rc_money_units(x)``, ``rc_amount_units(x)``: whole numbers of the 24th, of the 18th digit; ``rc_money(u)``,
    ``rc_amount(u)`` back. ``rc_divided(v, d)``: v // d, cut toward zero, in a sixth of the time where it is not below
    zero; its arguments are columns, for each stands in it a dozen times. ``rc_until(v, ticks, whole)``: v x ticks /
    whole, cut toward zero, with no product of more than 38 digits while ``whole`` is below 2^63.
    ``rc_between(v, a, b, s, e)``: of a value that is spread evenly from s to e the part between a and b. Parts between
    the same edges add up to the value, whatever was cut.
    """
    connection.execute(_MACROS)
