"""Restore a state and its run directories from a backup."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pricing.atomic_file import publish_file
from pricing.money import Usd
from router.app.settings import AppSettings, open_state
from router.controller.workspace.run_folders import restore_files
from router.state.database_url import DatabaseFile, parse_database_url
from router.state.errors import ExistsError
from router.state.state_backup import check_backup, read_stored_files
from router.state.store import StateStore

RESTORED = "state restore"  # the action's name in the audit log


def restore_state(
    opened: AppSettings, file: Path, now: datetime, at: datetime, who: str
) -> tuple[str, tuple[str, ...]]:
    """Restore a backup where the state is missing; return the state's id, and the run directories that were written.

    Repeating it after a crash is harmless. ``at``: the time of the audit log. Raises StateError, DamagedError,
    ExistsError.
    """
    check_backup(file)
    place = parse_database_url(opened.state_url)
    if isinstance(place, DatabaseFile) and place.path.exists():
        raise ExistsError(f"{place} is there already", "move it away, or name another state")
    run_folders = restore_files(opened.runs, read_stored_files(file))
    # A file gets its name only when all of it is written.
    new = place.path.with_name(f"{place.path.name}.restored") if isinstance(place, DatabaseFile) else None
    if new is not None:
        _remove(new)
    with StateStore.open(opened.state_url if new is None else f"sqlite:///{new}", now=now) as store:
        restored = store.whole.restore(file)
        store.audit.add(who, RESTORED, restored.hash, Usd(0), at, file=file.name, head=restored.head)
    if new is not None and isinstance(place, DatabaseFile):
        publish_file(new, place.path)
        _remove(new)
    with open_state(opened, now, new_state=True) as store:
        return store.id, run_folders


def _remove(database: Path) -> None:
    for name in (database, *(database.with_name(f"{database.name}{end}") for end in ("-wal", "-shm", ".lock"))):
        name.unlink(missing_ok=True)
