"""Tells people that a budget passes a mark, once for each mark, month and amount."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from router.config.notify_entry import Happening
from router.controller.events import Event, Level, message
from router.controller.notify_channels import Channel
from router.ledger.budget import Standing
from router.ledger.month import Month
from router.state.store import Store

_MOST_NAMED = 20
_FORECAST = "forecast"


def tell(
    store: Store, to: Sequence[Channel], wanted: Collection[Happening], month: Month, found: Iterable[Standing]
) -> tuple[str, ...]:
    """One message to each channel about all that is new; the names of channels that did not take it. It counts as told
    when one channel took it, and is tried again at the next call where none did. Two calls at once may tell twice."""
    if Happening.BUDGET not in wanted or not to:
        return ()
    new = [(keys, _event(month, standing)) for standing in found if (keys := _new(store, month, standing))]
    if not new:
        return ()
    text = message([event for _, event in new], _MOST_NAMED)
    silent = tuple(channel.name for channel in to if not channel.send(*text))
    if len(silent) < len(to):
        for keys, _ in new:
            for key in keys:
                store.set_value(key, "told")
    return silent


def _new(store: Store, month: Month, standing: Standing) -> list[str]:
    """What was not told yet of what is so."""
    return [key for key in _keys(month, standing) if store.value(key) is None]


def _keys(month: Month, standing: Standing) -> Iterator[str]:
    marks = [*map(str, standing.passed), *([_FORECAST] if standing.will_be_over else [])]
    # Another amount is another budget: its marks are passed anew.
    return (f"told budget {month} {standing.budget.title} {standing.usd} {mark}" for mark in marks)


def _event(month: Month, standing: Standing) -> Event:
    budget, spent = standing.budget, f"${standing.used.dollars():,.2f} of ${standing.usd.dollars():,.2f}"
    used = "" if standing.percent is None else f" ({standing.percent} %)"
    kind = "hard budget" if budget.hard else "budget"
    text = f"{budget.title}: {spent}{used} of the {kind} of {month} is spent"
    if standing.is_over and budget.hard:
        text += "; plans and orders that go over it are refused"
    if standing.will_be_over and standing.forecast is not None:
        text += f"; at this pace the month comes to ${standing.forecast.dollars():,.2f}"
    level = Level.ERROR if standing.is_over and budget.hard else Level.WARNING
    return Event(f"budget {month}", budget.title, Happening.BUDGET, level, text)
