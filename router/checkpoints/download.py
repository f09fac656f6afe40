"""Downloads the newest complete checkpoints of one store to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

from router.checkpoints.checkpoints import Journal, good, is_sized, manifest_at
from router.checkpoints.errors import NotWholeError, StorageError
from router.checkpoints.manifest import Manifest
from router.checkpoints.object_store import Depot
from router.checkpoints.rate_limit import Pace
from router.checkpoints.transfer import PARALLEL, Moved, transfer


def bring(
    source: Depot,
    target: Depot,
    pace: Pace,
    *,
    step: int | None = None,
    least: int = 0,
    parallel: int = PARALLEL,
    journal: Journal | None = None,
    passed: Callable[[int, str], None],
) -> Iterator[Moved]:
    """Copy checkpoints, the newest first, for as long as the caller asks for more.

    Only that of ``step``, if one is named, and none before ``least``. ``passed`` is called with the reason for
    checkpoints that are incomplete, or cannot be copied in the remaining time.

    StorageError, of which OutOfTimeError and CancelledError are kinds.
    """
    for manifest in _select_manifests(source, step, least, passed):
        if not pace.can_end(manifest.bytes):
            passed(manifest.step, f"{manifest.bytes / 1e9:,.1f} GB cannot be copied in {pace.left:,.0f} s")
            continue
        try:
            moved = transfer(source, manifest, target, pace, parallel=parallel, journal=journal)
        except NotWholeError as error:
            passed(manifest.step, str(error))
            continue
        yield moved


def _select_manifests(
    source: Depot, step: int | None, least: int, passed: Callable[[int, str], None]
) -> Iterator[Manifest]:
    try:
        if step is None:
            yield from takewhile(lambda manifest: manifest.step >= least, good(source, passed))
            return
        manifest = manifest_at(source, step)
        if manifest is None or not is_sized(source, manifest):
            passed(step, "it is not there, or not whole")
            return
        yield manifest
    except OSError as error:
        raise StorageError(f"{source.url}: {error}") from error
