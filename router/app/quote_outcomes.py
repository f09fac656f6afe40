"""Determine how accepted quotes ended, from attempts and the ledger."""

from __future__ import annotations

from pricing.money import ZERO
from router.config.quote_files import Acceptance
from router.controller.lifecycle import GOES_ON
from router.ledger.entry import Kind
from router.quotes.outcomes import Ending
from router.quotes.quote import Quote
from router.state.store import Store

_FINISHED, _STOPPED = "finished", "stopped"


def ending(quote: Quote, accepted: Acceptance, store: Store) -> Ending | None:
    """Return the ending of a quote's plan: the cost of all its metered machines, and when the training was done.

    None where the plan was not applied, is still running, or was stopped by a person. Raises StateError.
    """
    attempts = store.attempts(plan=accepted.plan, job=quote.job)
    if not attempts or any(not a.phase.is_over for a in attempts):
        return None
    done = [a.result_at for a in attempts if a.result == _FINISHED and a.result_at is not None]
    if not done and (attempts[-1].reason in GOES_ON or any(a.reason == _STOPPED for a in attempts)):
        return None
    entries = store.ledger.entries(kind=Kind.METERED, job=quote.job)
    usd = sum((entry.usd for entry in entries if entry.plan == accepted.plan), ZERO)
    return Ending(usd, min(done, default=None))
