"""Determine how accepted quotes ended, from attempts and the ledger."""

from __future__ import annotations

from pricing.money import ZERO
from router.config.quote_files import QuoteAcceptance
from router.controller.lifecycle import RESUMABLE_REASONS
from router.ledger.entry import LedgerEntryKind
from router.quotes.outcomes import JobEnding
from router.quotes.quote import Quote
from router.state.store import StateStore

_FINISHED, _STOPPED = "finished", "stopped"


def quote_ending(quote: Quote, accepted: QuoteAcceptance, store: StateStore) -> JobEnding | None:
    """Return the ending of a quote's plan: the cost of all its metered machines, and when the training was done.

    None where the plan was not applied, is still running, or was stopped by a person. Raises StateError.
    """
    attempts = store.attempts.find(plan=accepted.plan, job=quote.job)
    if not attempts or any(not a.phase.is_over for a in attempts):
        return None
    done = [a.result_at for a in attempts if a.result == _FINISHED and a.result_at is not None]
    if not done and (attempts[-1].reason in RESUMABLE_REASONS or any(a.reason == _STOPPED for a in attempts)):
        return None
    entries = store.ledger.entries(kind=LedgerEntryKind.METERED, job=quote.job)
    usd = sum((entry.usd for entry in entries if entry.plan == accepted.plan), ZERO)
    return JobEnding(usd, min(done, default=None))
