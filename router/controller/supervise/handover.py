"""Hand over from a running gang to its replacement without a gap in saved work.

The old gang saves and leaves once the new one is ready.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from pricing.book import PriceBook
from router.agent import protocol
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import history_of
from router.controller.provision.checkpoint_transfer import prepare_resume_point, with_resume_point
from router.controller.release.release import release
from router.coordinator.saves import save_answers
from router.state.records import Attempt, Phase

# The time limit for a checkpoint without time pressure.
SAVES_WITHIN_S = 300.0
_POLL_S = 0.2


def order_save(
    site: ControllerContext,
    attempt: Attempt,
    name: str,
    reason: str,
    phase: Phase | None = None,
    within_s: float = SAVES_WITHIN_S,
) -> bool:
    """Order every rank to save, optionally moving the attempt to ``phase``, and return whether the order was written.

    It is not written if the attempt was changed meanwhile or is over. ``name`` is the order's id, ``reason`` a word of
    :mod:`router.agent.protocol`.
    """
    now = site.wall_clock()

    def with_order(current: Attempt) -> Attempt | None:
        if current.phase is not attempt.phase or not current.phase.is_up or current.result:
            return None
        return replace(
            current,
            phase=phase or current.phase,
            order_id=name,
            order_reason=reason,
            order_seconds=within_s,
            ordered_at=now,
        )

    return site.store.attempts.update(attempt.id, with_order).order_id == name


def hand_over(site: ControllerContext, old: Attempt, new: Attempt, reason: str, message: str, book: PriceBook) -> None:
    """Save and release the old gang, and let the new one resume from its last checkpoint.

    All ranks of the new gang wait until that checkpoint is in their region. A repeated call resumes where the last one
    stopped. Raises NotReleasedError.
    """
    name = f"move-{new.id}"
    current = site.store.attempts.get(old.id) or old
    if order_save(site, current, name, protocol.ORDERED):
        _wait_for_save(site, old, name)
    # The training may save once more when it is stopped, and its machines take longer to end than it does.
    release_tried = threading.Event()
    with ThreadPoolExecutor(1, "handing over") as pool:
        following = pool.submit(_resume_after, site, old, new, book, release_tried)
        try:
            release(site, site.store.attempts.get(old.id) or old, reason, message)
        finally:
            release_tried.set()
    following.result()


def _resume_after(
    site: ControllerContext, old: Attempt, new: Attempt, book: PriceBook, release_tried: threading.Event
) -> None:
    """Tell the new gang what it resumes from, once nobody of the old gang can save any more.

    Until then, and while the checkpoint is copied, the coordinator lets the new gang wait
    (:mod:`router.coordinator.gang_session`).
    """
    while not _can_save_no_more(site, old):
        if release_tried.wait(_POLL_S) and not _can_save_no_more(site, old):
            return
    before = prepare_resume_point(site, book, new, history_of(site.store, new))
    site.store.attempts.update(new.id, partial(with_resume_point, before))


def _can_save_no_more(site: ControllerContext, old: Attempt) -> bool:
    current = site.store.attempts.get(old.id)
    return (
        current is None or current.phase.is_over or all(node.ended_reason for node in site.store.attempts.nodes(old.id))
    )


def _wait_for_save(site: ControllerContext, attempt: Attempt, name: str) -> None:
    ends = time.monotonic() + SAVES_WITHIN_S
    while time.monotonic() < ends and not site.stop.is_set():
        answers, now = save_answers(site.store, attempt.id, name), site.store.attempts.get(attempt.id)
        if answers.is_saved or len(answers.failed) == attempt.machines:
            return
        if now is None or now.result or not now.phase.is_up:
            return
        time.sleep(_POLL_S)
