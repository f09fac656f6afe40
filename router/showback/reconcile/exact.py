"""Compute exact decimals in DuckDB: whole numbers of the last digit, parts by time, parts by weight. Pure.

DuckDB multiplies two decimals of 38 digits into doubles or an error. So an amount becomes a whole number of its last
digit (HUGEINT), is divided there, and becomes a decimal again. Divisions of both take longest by far: a
product with the last digit makes a decimal without any, and doubles find a quotient that whole numbers then correct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.showback.facts import AMOUNT, MONEY

if TYPE_CHECKING:
    import duckdb

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
