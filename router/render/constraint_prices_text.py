"""Prices of a job's rules as text and JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from pricing.units import format_count
from router.planning.what_if.constraint_prices import ConstraintPrice
from router.render.tables import format_usd, wrap_text


def prices_text(prices: Sequence[ConstraintPrice]) -> str:
    """Return a line for each rule: what the plan gains without it, and how sure that is."""
    if not prices:
        return "It has no rule to price.\n"
    lines = ["What its rules cost the plan, planned again without each; others may move"]
    lines += [wrap_text(f"{price.rule}: {_gain(price)}", "  ") for price in prices]
    return "\n".join(lines) + "\n"


def _gain(price: ConstraintPrice) -> str:
    sure = "" if price.basis == "resolved" else "at least "
    gain = f"{sure}{_money_or_jobs(price)}"
    if price.instead:
        gain += f", else {price.instead}"
    if price.basis == "resolved":
        return gain
    return f"{gain} (the search did not close: {format_usd(price.gap_usd)} are open)"


def _money_or_jobs(price: ConstraintPrice) -> str:
    money = price.saves_usd
    if price.places:
        bill = f"{format_usd(-money)} more" if money.nanos < 0 else f"{format_usd(money)} less"
        return f"{format_count(price.places, 'more job')}, and the plan then costs {bill}"
    return format_usd(money) if money.nanos else "nothing"


def price_content(price: ConstraintPrice) -> dict[str, object]:
    """Return the price as JSON has it, amounts of money as decimal strings."""
    return {
        "rule": price.rule,
        "basis": price.basis,
        "saves_usd": str(price.saves_usd),
        "gap_usd": str(price.gap_usd),
        "places": price.places,
        "instead": price.instead,
    }
