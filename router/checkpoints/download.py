"""Downloads the newest complete checkpoints of one store to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

from router.checkpoints.checkpoints import CopyJournal, find_complete_checkpoints, has_expected_sizes, read_manifest
from router.checkpoints.errors import IncompleteCheckpointError, StorageError
from router.checkpoints.manifest import CheckpointManifest
from router.checkpoints.object_store import CheckpointStore
from router.checkpoints.rate_limit import TransferLimits
from router.checkpoints.transfer import PARALLEL, TransferResult, transfer_checkpoint


def download_checkpoints(
    source: CheckpointStore,
    target: CheckpointStore,
    pace: TransferLimits,
    *,
    step: int | None = None,
    least: int = 0,
    parallel: int = PARALLEL,
    journal: CopyJournal | None = None,
    passed: Callable[[int, str], None],
) -> Iterator[TransferResult]:
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
            moved = transfer_checkpoint(source, manifest, target, pace, parallel=parallel, journal=journal)
        except IncompleteCheckpointError as error:
            passed(manifest.step, str(error))
            continue
        yield moved


def _select_manifests(
    source: CheckpointStore, step: int | None, least: int, passed: Callable[[int, str], None]
) -> Iterator[CheckpointManifest]:
    try:
        if step is None:
            yield from takewhile(lambda manifest: manifest.step >= least, find_complete_checkpoints(source, passed))
            return
        manifest = read_manifest(source, step)
        if manifest is None or not has_expected_sizes(source, manifest):
            passed(step, "it is not there, or not whole")
            return
        yield manifest
    except OSError as error:
        raise StorageError(f"{source.url}: {error}") from error
