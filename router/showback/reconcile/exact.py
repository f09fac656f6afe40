"""Compute exact decimals in DuckDB: whole numbers of the last digit, parts by time, parts by weight. Pure.

DuckDB multiplies two decimals of 38 digits into doubles or an error. So an amount becomes a whole number of its last
digit (HUGEINT), is divided there, and becomes a decimal again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.showback.facts import AMOUNT, MONEY

if TYPE_CHECKING:
    import duckdb

_E12: Final = f"{10**12}::HUGEINT"
_E24: Final = f"{10**24}::HUGEINT"
_E6: Final = f"{10**6}::HUGEINT"
_E18: Final = f"{10**18}::HUGEINT"
MONEY_SQL: Final = f"DECIMAL({MONEY.precision}, {MONEY.scale})"
AMOUNT_SQL: Final = f"DECIMAL({AMOUNT.precision}, {AMOUNT.scale})"

_MACROS: Final = f"""
CREATE OR REPLACE TEMP MACRO rc_money_units(x) AS (replace(x::{MONEY_SQL}::VARCHAR, '.', '')::HUGEINT);
CREATE OR REPLACE TEMP MACRO rc_amount_units(x) AS (replace(x::{AMOUNT_SQL}::VARCHAR, '.', '')::HUGEINT);
CREATE OR REPLACE TEMP MACRO rc_money(u) AS (
    (u // {_E24})::DECIMAL(14, 0)::{MONEY_SQL}
    + ((u % {_E24}) // {_E12})::DECIMAL(13, 0) * 0.000000000001::DECIMAL(24, 12)
    + (u % {_E12})::DECIMAL(13, 0) * 0.000000000000000000000001::DECIMAL(25, 24));
CREATE OR REPLACE TEMP MACRO rc_amount(u) AS (
    (u // {_E18})::DECIMAL(20, 0)::{AMOUNT_SQL}
    + ((u % {_E18}) // {_E6})::DECIMAL(13, 0) * 0.000000000001::DECIMAL(24, 12)
    + (u % {_E6})::DECIMAL(7, 0) * 0.000000000000000001::DECIMAL(18, 18));
CREATE OR REPLACE TEMP MACRO rc_until(v, ticks, whole) AS
    ((v // whole::HUGEINT) * ticks::HUGEINT + ((v % whole::HUGEINT) * ticks::HUGEINT) // whole::HUGEINT);
CREATE OR REPLACE TEMP MACRO rc_between(v, a, b, s, e) AS
    (rc_until(v, b - s, e - s) - rc_until(v, a - s, e - s));
"""


def define_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the macros in the connection.

    ``rc_money_units(x)``, ``rc_amount_units(x)``: whole numbers of the 24th, of the 18th digit; ``rc_money(u)``,
    ``rc_amount(u)`` back. ``rc_until(v, ticks, whole)``: v x ticks / whole, cut toward zero, with no product of more
    than 38 digits while ``whole`` is below 2^63. ``rc_between(v, a, b, s, e)``: of a value that is spread evenly from s
    to e the part between a and b. Parts between the same edges add up to the value, whatever was cut.
    """
    connection.execute(_MACROS)
