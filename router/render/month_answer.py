"""Write the answer of a month in words for its page and for a terminal: one sentence, its change, tiles. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from router.render.figures import amount_in, percent
from router.render.showback_view import HALF_CENT, MonthPage


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount to the cent among words, which a page marks up for programs; ``signed`` adds a plus."""

    value: Decimal
    currency: str
    signed: bool = False

    def __str__(self) -> str:
        """Return it as people read it."""
        return amount_in(self.value, self.currency, signed=self.signed)


Words = tuple[str | Amount, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure of the month and a remark on it; ``budget_used`` is the share that a page draws, ``tag`` its mark."""

    title: str
    value: Words
    note: Words
    tag: str = ""
    budget_used: Decimal | None = None


def plain_words(words: Words) -> str:
    """Return the words as one text."""
    return "".join(map(str, words))


def month_sentence(page: MonthPage) -> Words:
    """Return what was spent, how much of the budget, how far from plan and why, and who is over a budget."""
    return (
        f"{page.month.begins:%B}{'' if page.is_over else ' so far'}: ",
        *_spent_words(page),
        *_budget_words(page),
        *_plan_words(page),
        *_over_words(page),
        ".",
    )


def change_sentence(page: MonthPage) -> Words:
    """Return how the month differs from the one before it, and why; no words where it does not, or nobody knows."""
    change = page.total["change"]
    if not change:
        return ()
    team = page.change_team
    most: Words = () if team is None else (f"; the most in {team.words} (", _signed(page, team.amount), ")")
    more = f" {'more' if change > 0 else 'less'} than {page.month_before:%B}"
    return (Amount(abs(change), page.currency), more, *_change_words(page, None, ": "), *most, ".")


def month_tiles(page: MonthPage) -> tuple[Tile, ...]:
    """Return the tiles of the month."""
    return (_spent_tile(page), _budget_tile(page), _end_tile(page), _change_tile(page), _waste_tile(page))


def _signed(page: MonthPage, value: Decimal) -> Amount:
    return Amount(value, page.currency, signed=True)


def _exact(page: MonthPage, value: Decimal) -> Amount:
    return Amount(value, page.currency)


def running_words(running: Decimal | None, currency: str) -> Words:
    """Return what machines cost that still run, which a budget counts beside what is spent; no words for nothing."""
    return () if running is None or running < HALF_CENT else (Amount(running, currency), " still running")


def _spent_words(page: MonthPage) -> Words:
    if page.spent_so_far is None:
        return ("what was spent is unknown",)
    ahead: Words = (", ", *_ahead_words(page)) if page.charged_ahead else ()
    return (_exact(page, page.spent_so_far), " spent", *ahead)


def _ahead_words(page: MonthPage) -> Words:
    return (_exact(page, page.charged_ahead), " charged for days to come")


def _budget_words(page: MonthPage) -> Words:
    if page.total["budget_used"] is not None:
        running = running_words(page.total["running"], page.currency)
        share = f"{percent(float(page.total['budget_used']))} of the budget"
        return (" and ", *running, f": {share}") if running else (f", {share}",)
    return (", no budget for all",) if page.knows_budgets else ()


def _plan_words(page: MonthPage) -> Words:
    whole = page.main.whole
    if whole is None or abs(whole) < HALF_CENT:
        return ()
    cause = f", {page.cause}" if page.cause else ""
    return ("; ", _exact(page, abs(whole)), f" {'over' if whole > 0 else 'under'} plan{cause}")


def _over_words(page: MonthPage) -> Words:
    if page.over is None:
        return ()
    if not page.over:
        return ("; nobody is over a budget",)
    verb = "is over its budget" if len(page.over) == 1 else "are over their budgets"
    return (f"; {', '.join(page.over)} {verb}",)


def _change_words(page: MonthPage, max_changes: int | None, first: str) -> Iterator[str | Amount]:
    for number, each in enumerate(page.change[:max_changes]):
        yield first if number == 0 else ", "
        yield _signed(page, each.amount)
        yield f" {each.words}"


def _others(pairs: Iterable[tuple[Decimal, str]]) -> Iterator[str | Amount]:
    for number, (value, currency) in enumerate(pairs):
        if number:
            yield " and "
        yield Amount(value, currency)


def _spent_tile(page: MonthPage) -> Tile:
    value: Words = ("unknown",)
    ahead: Words = ()
    if page.spent is not None and page.spent_so_far is not None:
        value = (_exact(page, page.spent_so_far),)
        ahead = ("with ", *_ahead_words(page), " ", _exact(page, page.spent), "; ") if page.charged_ahead else ()
    if page.others:
        return Tile("Spent", value, (*ahead, "and ", *_others(page.others), ", kept apart: currencies are not added"))
    return Tile("Spent", value, (*ahead, f"{page.report.basis} cost, one currency"))


def _budget_tile(page: MonthPage) -> Tile:
    used, budget = page.total["budget_used"], page.total["budget"]
    if used is None:
        if not page.knows_budgets:
            return Tile("Budget used", ("unknown",), ("budgets were not looked at",))
        where = "for the whole month: `stepfare budget set` sets one; a limits file's budgets bind plans alone"
        return Tile("Budget used", ("none set",), (where,))
    left = budget * (1 - used)
    running = running_words(page.total["running"], page.currency)
    note = (
        *(_exact(page, abs(left)), f" {'left' if left >= 0 else 'over'} of ", _exact(page, budget)),
        *((" with ", *running) if running else ()),
    )
    return Tile("Budget used", (percent(float(used), 1),), note, "over" if used > 1 else "", used)


def _end_tile(page: MonthPage) -> Tile:
    total = page.total
    if total["forecast"] is not None:
        ends = (_exact(page, total["forecast_low"]), " to ", _exact(page, total["forecast_high"]))
        return Tile("Month end", ("~", _exact(page, total["forecast"])), (*ends, ", four times in five"))
    share = total["estimated_share"]
    estimated = "share estimated unknown" if share is None else f"{percent(float(share), 1)} estimated"
    over = "the month is over; " if page.is_over else ""
    return Tile("Month end", ("no forecast",), (f"{over}{estimated}, ", *_billed_words(page, share)))


def _billed_words(page: MonthPage, estimated: Decimal | None) -> Words:
    """Return what is on no bill yet; where bills were not matched with anything, how far they reach."""
    if page.not_billed is not None:
        return (_exact(page, page.not_billed), " not billed yet")
    if estimated == 1 or page.has_no_bill:
        return ("nothing billed yet",)
    return (page.bills_through,)


def _change_tile(page: MonthPage) -> Tile:
    if page.total["change"] is None:
        return Tile("On last month", ("unknown",), ("no month before it is on record",))
    note = ("from ", _exact(page, page.total["last_month"]), *_change_words(page, 2, "; "))
    return Tile("On last month", (_signed(page, page.total["change"]),), note)


def _waste_tile(page: MonthPage) -> Tile:
    waste = page.waste_total
    if waste is None:
        others = (f" in {page.currency}; ", *_others(page.waste_others)) if page.waste_others else ()
        return Tile("Waste", ("none",), ("no waste was metered or billed", *others))
    largest = page.waste[0] if page.waste else None
    most: Words = () if largest is None or largest.cost is None else ("; ", _exact(page, largest.cost))
    name = f" {largest.name.lower()}" if largest is not None and most else ""
    share = percent(float(waste / page.spent), 1) if page.spent else "unknown share"
    return Tile("Waste", (share,), (_exact(page, waste), *most, name))
