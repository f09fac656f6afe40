"""Notify people when a budget passes a mark, once per mark, month and amount."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from router.controller.events import EventLevel, GangEvent, render_message
from router.controller.notify_channels import Channel
from router.controller.notify_settings import EventKind
from router.ledger.budget import BudgetStatus
from router.ledger.month import Month
from router.state.store import StateStore

_MOST_NAMED = 20
_FORECAST = "forecast"


def report_budget_marks(
    store: StateStore,
    to: Sequence[Channel],
    wanted: Collection[EventKind],
    month: Month,
    standings: Iterable[BudgetStatus],
) -> tuple[str, ...]:
    """Send each channel one message about all new budget marks, and return the names of channels that failed.

    A mark counts as reported when one channel took the message; where none did, the next call tries again. Two
    concurrent calls may report it twice.
    """
    if EventKind.BUDGET not in wanted or not to:
        return ()
    unreported = [
        (keys, _event(month, standing)) for standing in standings if (keys := _unreported_keys(store, month, standing))
    ]
    if not unreported:
        return ()
    text = render_message([event for _, event in unreported], _MOST_NAMED)
    failed = tuple(channel.name for channel in to if not channel.send(*text))
    if len(failed) < len(to):
        for keys, _ in unreported:
            for key in keys:
                store.values.set(key, "told")
    return failed


def _unreported_keys(store: StateStore, month: Month, standing: BudgetStatus) -> list[str]:
    """Return the keys of current marks that were not reported yet."""
    return [key for key in _keys(month, standing) if store.values.get(key) is None]


def _keys(month: Month, standing: BudgetStatus) -> Iterator[str]:
    marks = [*map(str, standing.passed), *([_FORECAST] if standing.will_be_over else [])]
    # The key holds the amount, so a changed budget reports its marks anew.
    return (f"told budget {month} {standing.budget.title} {standing.usd} {mark}" for mark in marks)


def _event(month: Month, standing: BudgetStatus) -> GangEvent:
    budget, spent = standing.budget, f"${standing.used.dollars():,.2f} of ${standing.usd.dollars():,.2f}"
    used = "" if standing.percent is None else f" ({standing.percent} %)"
    kind = "hard budget" if budget.hard else "budget"
    text = f"{budget.title}: {spent}{used} of the {kind} of {month} is spent"
    if standing.is_over and budget.hard:
        text += "; plans and orders that go over it are refused"
    if standing.will_be_over and standing.forecast is not None:
        text += f"; at this pace the month comes to ${standing.forecast.dollars():,.2f}"
    level = EventLevel.ERROR if standing.is_over and budget.hard else EventLevel.WARNING
    return GangEvent(f"budget {month}", budget.title, EventKind.BUDGET, level, text)
