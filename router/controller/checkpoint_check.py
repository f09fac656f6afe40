"""Whether the checkpoint that a job is to go on from is there and whole, before machines cost money for it: an agent
said so, and its word is not proof. Where it is not, the newest that is whole counts.

:func:`confirmed` is the edge.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace

from router.checkpoints.arrow_store import open_store
from router.checkpoints.checkpoints import good, is_sized, manifest_at
from router.checkpoints.errors import StorageError
from router.checkpoints.manifest import name_of
from router.checkpoints.object_store import Depot, opened
from router.controller.attempt_history import Chain
from router.controller.context import Site
from router.controller.workspaces import Before
from router.state.records import Attempt

NOT_WHOLE, NOT_CONFIRMED = "checkpoint not whole", "checkpoint not confirmed"
# A store that does not answer by then is not waited for.
_SECONDS, _LOOK_S = 60.0, 0.05

Opens = Callable[[str], Depot]


@dataclass(frozen=True, slots=True)
class _Found:
    """``whole``: whether what was claimed is; else the newest step that is, with its manifest; None: none is."""

    whole: bool
    step: int | None = None
    manifest: str = ""


def confirmed(site: Site, attempt: Attempt, chain: Chain, opens: Opens | None = None) -> Before:
    """What the attempt goes on from, held against the store where one of the deploy file's has it: the manifest and the
    sizes of its files. A claim that is not true is taken out of the attempts that made it, so that it counts nowhere.
    Never raises for what a store does; then the claim stands, and the journal says so."""
    before = chain.before
    store = next((url for url in sorted(site.deploy.stores_of(attempt.job)) if _is_right_in(before, url)), None)
    if store is None:
        return before
    open_one = opens or (lambda url: opened(url, lambda text: open_store(text, site.environment)))
    found = _asked(site, lambda: _look(open_one(store), before.step))
    if isinstance(found, str):
        site.store.note(attempt.id, NOT_CONFIRMED, site.clock(), step=before.step, why=found)
        return before
    if found.whole:
        return before
    first = chain.attempts[0]
    step, manifest = (
        (found.step, found.manifest) if found.step is not None else (first.first_step, first.first_manifest)
    )
    site.store.note(attempt.id, NOT_WHOLE, site.clock(), step=before.step, instead=step)
    site.tell(attempt.job, f"step {before.step} is not whole in {store.partition('?')[0]}: going on after step {step}")
    for one in chain.attempts:
        if one.phase.is_over and one.kept_step is not None and one.kept_step > step:
            site.store.update(one.id, lambda old: replace(old, kept_step=step))
    site.store.update(attempt.id, lambda mine: replace(mine, first_step=step, first_manifest=manifest))
    return Before(before.attempt, step, manifest)


def _is_right_in(before: Before, store: str) -> bool:
    """Whether the manifest is one that a store would have for that step; other layouts are a training's own matter."""
    path = store.partition("?")[0].removeprefix("file://")
    return before.manifest.removeprefix("file://") == f"{path}/{name_of(before.step)}"


def _look(depot: Depot, step: int) -> _Found:
    claimed = manifest_at(depot, step)
    if claimed is not None and is_sized(depot, claimed):
        return _Found(whole=True)
    for other in good(depot):
        if other.step < step:
            return _Found(False, other.step, depot.where(other.name))
    return _Found(whole=False)


def _asked(site: Site, look: Callable[[], _Found]) -> _Found | str:
    """What was found, or why nothing could be."""
    answer: Future[_Found] = Future()

    def ask() -> None:
        try:
            answer.set_result(look())
        except Exception as error:  # whatever a store's client does, the job goes on
            answer.set_exception(error)

    threading.Thread(target=ask, name="confirming", daemon=True).start()
    ends = time.monotonic() + _SECONDS
    while not wait([answer], _LOOK_S).done:
        if site.stop.is_set() or time.monotonic() >= ends:
            return "the store did not answer in time"
    error = answer.exception()
    if error is None:
        return answer.result()
    return str(error) if isinstance(error, StorageError) else type(error).__name__
