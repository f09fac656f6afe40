"""Write figures the way pages show them: money, shares, chances, times, counts of machines. Pure functions.

Money stays exact until it is text and is rounded half to even, each amount by itself.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal

from pricing.money import Usd

MINUS = "\u2212"
MARKET_LETTERS = {"spot": "S", "on_demand": "D", "reserved": "R"}
MARKET_WORDS = {"spot": "spot", "on_demand": "on-demand", "reserved": "reserved"}
_CENT = Decimal("0.01")
_WIDE = Context(prec=100)
_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹", "KRW": "₩"}


def cents(amount: Usd) -> str:
    """Return an amount to the cent as a machine reads it, such as ``-1234.56``."""
    return cents_of(_dollars(amount))


def money(amount: Usd) -> str:
    """Return an amount to the cent, such as ``$1,234.56`` or ``−$0.50``."""
    return _in_currency(_to_unit(_dollars(amount), _CENT), "USD", ",.2f", signed=False)


def signed_money(difference: Usd) -> str:
    """Return a difference to the cent, always with its sign, such as ``+$0.50`` or ``−$0.50``; ``$0.00`` has none."""
    return _in_currency(_to_unit(_dollars(difference), _CENT), "USD", ",.2f", signed=True)


def _dollars(amount: Usd) -> Decimal:
    return Decimal(amount.nanos).scaleb(-9)


def percent(share: float, decimals: int = 0) -> str:
    """Return a share such as ``82%``."""
    return f"{share * 100:.{decimals}f}%"


def chance(probability: float | None) -> str:
    """Return a probability such as ``95%``; above 99 % it is ``>99%``, and None is ``no deadline``."""
    if probability is None:
        return "no deadline"
    return ">99%" if probability > 0.99 else percent(probability)


def stamp(moment: datetime) -> str:
    """Return a moment as a machine reads it, such as ``2026-11-21T18:00:00Z``."""
    return moment.isoformat().replace("+00:00", "Z")


def day(moment: datetime) -> str:
    """Return a day such as ``21 Nov``."""
    at = moment.astimezone(UTC)
    return f"{at.day} {at:%b}"


def clock(moment: datetime) -> str:
    """Return a time of day in UTC such as ``18:00``."""
    return f"{moment.astimezone(UTC):%H:%M}"


def day_clock(moment: datetime | None) -> str:
    """Return a moment such as ``21 Nov 18:00``; ``none`` for None."""
    return "none" if moment is None else f"{day(moment)} {clock(moment)}"


def long_day(moment: datetime) -> str:
    """Return a day such as ``Saturday 21 November 2026``."""
    at = moment.astimezone(UTC)
    return f"{at:%A} {at.day} {at:%B %Y}"


def hours(length: timedelta) -> str:
    """Return a length such as ``9.6 h``."""
    return f"{length / timedelta(hours=1):.1f} h"


def amount_of(number: float) -> str:
    """Return a number without decimals where it is whole, else with one."""
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"


def amount_in(amount: Decimal, currency: str, *, signed: bool = False) -> str:
    """Return an amount of a currency to the cent, such as ``€1,234.56`` or ``CHF 0.50``; ``signed`` adds a plus.

    An amount that would round to nothing is below a cent: ``<$0.01``.
    """
    value = _to_unit(amount, _CENT)
    if amount and not value:
        side, cent = ("<", _CENT) if amount > 0 else (">", -_CENT)
        return side + _in_currency(cent, currency, ",.2f", signed=False)
    return _in_currency(value, currency, ",.2f", signed=signed)


def tick_in(number: int, unit: float, currency: str) -> str:
    """Return the label of the tick ``number`` of an axis, with as many decimals, from cents on, as its ``unit`` has."""
    decimals = 0 if unit >= 1 else max(2, math.ceil(-math.log10(unit) - 1e-9))
    return _in_currency(Decimal(str(number * unit)), currency, f",.{decimals}f", signed=False)


def cents_of(amount: Decimal) -> str:
    """Return an amount to the cent as a machine reads it."""
    return f"{_to_unit(amount, _CENT):f}"


def _to_unit(amount: Decimal, unit: Decimal) -> Decimal:
    value = amount.quantize(unit, ROUND_HALF_EVEN, context=_WIDE)
    return value if value else abs(value)  # never minus zero


def _in_currency(value: Decimal, currency: str, form: str, *, signed: bool) -> str:
    sign = MINUS if value < 0 else "+" if signed and value > 0 else ""
    return f"{sign}{_SYMBOLS.get(currency, currency + chr(0xA0))}{format(abs(value), form)}"
