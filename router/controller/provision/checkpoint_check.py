"""Check that the checkpoint a job is to resume from is complete before machines cost money for it.

An agent reported the checkpoint, and its word is no proof. Where the checkpoint is missing or incomplete, the newest
complete one counts. :func:`confirm_checkpoint` is the edge.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import TypeVar

from router.checkpoints.arrow_store import open_arrow_store
from router.checkpoints.checkpoints import find_complete_checkpoints, has_expected_sizes, read_manifest
from router.checkpoints.manifest import manifest_name
from router.checkpoints.object_store import CheckpointStore, StorageError, open_checkpoint_store
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import AttemptHistory, ResumePoint
from router.state.records import Attempt

NOT_WHOLE, NOT_CONFIRMED = "checkpoint not whole", "checkpoint not confirmed"
# A store that does not answer within this time is no longer waited for.
_TIMEOUT_S, _POLL_S = 60.0, 0.05

OpenStore = Callable[[str], CheckpointStore]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _StoreFailure:
    reason: str


def confirm_checkpoint(
    site: ControllerContext, attempt: Attempt, chain: AttemptHistory, opens: OpenStore | None = None
) -> ResumePoint:
    """Return what the attempt resumes from, checked against the store if one of the deploy file holds it.

    The manifest and the sizes of its files are checked. A false claim is removed from the attempts that made it, so
    that it counts nowhere. Never raises for what a store does: the claim then stands, and the journal says so.
    """
    before = chain.before
    store = next((url for url in sorted(site.deploy.stores_of(attempt.job)) if _is_named_by_store(before, url)), None)
    if store is None:
        return before
    open_one = opens or store_opener(site)
    instead = _ask_store(site, lambda: _find_instead(open_one(store), before, chain.attempts[0]))
    if isinstance(instead, _StoreFailure):
        site.store.journal.note(attempt.id, NOT_CONFIRMED, site.clock(), step=before.step, why=instead.reason)
        return before
    if instead is None:
        return before
    step = instead.step
    site.store.journal.note(attempt.id, NOT_WHOLE, site.clock(), step=before.step, instead=step)
    site.tell(attempt.job, f"step {before.step} is not whole in {store.partition('?')[0]}: resuming after step {step}")
    for earlier in chain.attempts:
        if earlier.phase.is_over and earlier.kept_step is not None and earlier.kept_step > step:
            site.store.attempts.update(earlier.id, lambda old: replace(old, kept_step=step))
    site.store.attempts.update(attempt.id, lambda mine: replace(mine, first_step=step, first_manifest=instead.manifest))
    return instead


def _is_named_by_store(before: ResumePoint, store: str) -> bool:
    # Other layouts are the training's own matter.
    path = store.partition("?")[0].removeprefix("file://")
    return before.manifest.removeprefix("file://") == f"{path}/{manifest_name(before.step)}"


def _find_instead(store: CheckpointStore, before: ResumePoint, first: Attempt) -> ResumePoint | None:
    """Return the newest complete checkpoint, else what the ``first`` attempt began with; None if the claim holds."""
    claimed = read_manifest(store, before.step)
    if claimed is not None and has_expected_sizes(store, claimed):
        return None
    for other in find_complete_checkpoints(store):
        if other.step < before.step:
            return ResumePoint(before.attempt, other.step, store.where(other.name))
    return ResumePoint(before.attempt, first.first_step, first.first_manifest)


def _ask_store(site: ControllerContext, check: Callable[[], ResumePoint | None]) -> ResumePoint | _StoreFailure | None:
    answer = run_in_thread(check, "confirming")
    ends = time.monotonic() + _TIMEOUT_S
    while not wait([answer], _POLL_S).done:
        if site.stop.is_set() or time.monotonic() >= ends:
            return _StoreFailure("the store did not answer in time")
    error = answer.exception()
    if error is None:
        return answer.result()
    return _StoreFailure(str(error) if isinstance(error, StorageError) else type(error).__name__)


def run_in_thread(do: Callable[[], Result], name: str) -> Future[Result]:
    """Begin the work in a thread of its own, so that a store that does not answer delays nobody."""
    result: Future[Result] = Future()

    def run() -> None:
        try:
            result.set_result(do())
        except Exception as error:  # The job resumes whatever a store's client raises.
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


def store_opener(site: ControllerContext) -> OpenStore:
    """Return what opens the store at a URL, with the credentials of the site's environment."""
    return lambda url: open_checkpoint_store(url, lambda text: open_arrow_store(text, site.environment))
