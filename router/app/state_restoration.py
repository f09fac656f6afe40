"""Restore a state and its run directories from a backup, and make the home of ``stepfare serve --demo`` of one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pricing.atomic_file import make_private_folder, publish_file
from pricing.money import Usd
from router.app.settings import AppSettings, open_state, read_settings
from router.controller.workspace.run_folders import restore_files
from router.showback.bill_import import import_bills
from router.showback.bill_store import BillStore
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


#: The moment at which everything is looked at: what tonight's plan ordered first is done or runs.
DEMO_AT = datetime(2026, 11, 21, 22, 40, tzinfo=UTC)
#: Who looks at the demo, and may approve there.
DEMO_USER = "demo"
APPROVAL_RULES = f"""\
# Who may approve plans in the demo.
approvers:
- {{name: {DEMO_USER}}}
- {{name: ana}}
no_approval_up_to: "$40000"
max_age: 24h
"""


def write_demo_home(home: Path) -> None:
    """Write the demo into a folder that does not exist or is empty. OSError."""
    make_private_folder(home)
    rules = home / "approval.yaml"
    rules.write_text(APPROVAL_RULES, encoding="utf-8")
    (home / "deploy.yaml").write_text(f"approval_rules: {rules.resolve()}\n", encoding="utf-8")
    data = files("router.demo").joinpath("console")
    _copy_folder(data, home)
    settings = replace(read_settings({}, home / "deploy.yaml"), folder=home)
    backup = home / "state.backup"
    restore_state(settings, backup, DEMO_AT, DEMO_AT, f"{DEMO_USER}@demo")
    backup.unlink()
    import_bills(sorted(home.glob("bill-*.csv")), BillStore(home / "bills"), DEMO_AT)


def _copy_folder(source: Traversable, folder: Path) -> None:
    make_private_folder(folder)
    for each in source.iterdir():
        if each.is_dir():
            _copy_folder(each, folder / each.name)
        else:
            (folder / each.name).write_bytes(each.read_bytes())
