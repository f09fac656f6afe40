"""A gang that goes because it wants to: it is told to save, and goes when the next one is whole."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from pricing.book import PriceBook
from router.agent import control
from router.controller.attempt_history import chain_of
from router.controller.checkpoint_transfer import goes_on_from, told
from router.controller.context import Site
from router.controller.release import release
from router.coordinator.saves import saved_for
from router.state.records import Attempt, Phase

# For a checkpoint that nothing presses for.
SAVES_WITHIN_S = 300.0
_POLL_S = 0.2


def order_save(site: Site, attempt: Attempt, name: str, reason: str, phase: Phase | None = None) -> bool:
    """Tells every rank to save (and puts the attempt into that phase), unless it was changed in between or is over.
    ``name`` is the order's id, ``reason`` a word of :mod:`router.agent.control`."""
    now = site.wall_clock()

    def ordered(current: Attempt) -> Attempt | None:
        if current.phase is not attempt.phase or not current.phase.is_up or current.result:
            return None
        return replace(
            current,
            phase=phase or current.phase,
            order_id=name,
            order_reason=reason,
            order_seconds=SAVES_WITHIN_S,
            ordered_at=now,
        )

    return site.store.update(attempt.id, ordered).order_id == name


def hand_over(site: Site, old: Attempt, new: Attempt, reason: str, message: str, book: PriceBook) -> None:
    """The old gang saves and is released; the new one, all of whose ranks wait for that, goes on from there, once the
    last checkpoint is in its region. Called again it goes on where it was. NotReleasedError."""
    name = f"move-{new.id}"
    current = site.store.attempt(old.id) or old
    if order_save(site, current, name, control.ORDERED):
        _wait(site, old, name)
    # It may save once more when it is stopped, and machines take longer to go than a training.
    tried = threading.Event()
    with ThreadPoolExecutor(1, "handing over") as pool:
        following = pool.submit(_follow, site, old, new, book, tried)
        try:
            release(site, site.store.attempt(old.id) or old, reason, message)
        finally:
            tried.set()
    following.result()


def _follow(site: Site, old: Attempt, new: Attempt, book: PriceBook, tried: threading.Event) -> None:
    """Once nobody of the old gang can save any more, the new one is told what it goes on from. Until then, and while
    that is copied, the coordinator lets it wait (:mod:`router.coordinator.succession`)."""
    while not _is_done(site, old):
        if tried.wait(_POLL_S) and not _is_done(site, old):
            return
    before = goes_on_from(site, book, new, chain_of(site.store, new))
    site.store.update(new.id, partial(told, before))


def _is_done(site: Site, old: Attempt) -> bool:
    now = site.store.attempt(old.id)
    return now is None or now.phase.is_over or all(node.ended_reason for node in site.store.nodes(old.id))


def _wait(site: Site, attempt: Attempt, name: str) -> None:
    ends = time.monotonic() + SAVES_WITHIN_S
    while time.monotonic() < ends and not site.stop.is_set():
        answers, now = saved_for(site.store, attempt.id, name), site.store.attempt(attempt.id)
        if answers.is_saved or len(answers.failed) == attempt.machines:
            return
        if now is None or now.result or not now.phase.is_up:
            return
        time.sleep(_POLL_S)
