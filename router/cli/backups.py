"""Commands ``backup``, ``restore`` and ``archive`` of ``stepfare ledger`` and ``state``: both as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.money import Usd
from pricing.units import format_count
from router.cli import console
from router.cli.console import CommandError
from router.cli.options import NewFileArgument, chosen_clock, parse_month, wall_clock
from router.cli.site_options import (
    DEFAULT_FILES,
    SettingsOptions,
    acting_user,
    open_state_store,
    read_own_settings,
    translate_errors,
)
from router.files.missing_file import check_file

if TYPE_CHECKING:
    from router.app.settings import AppSettings


def backup_ledger(
    file: NewFileArgument,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Back up the whole ledger to a file: as of one moment, checked, and verified by reading it again.

    The same ledger gives the same file. It holds no secrets, and nothing of the state but the ledger.

    \b
    stepfare ledger backup books-2026-11-22.gz
    stepfare ledger backup /mnt/safe/books.gz --deploy deploy.yaml
    """
    with open_state_store(settings_files, makes=False) as (_, store):
        done = store.backups.write(file)
    console.note(f"{file}: {format_count(done.entries + done.archived, 'entry', 'entries')}, the last one's hash:")
    console.out(done.hash)


def restore_ledger(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `ledger backup` wrote.")],
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Restore a backup into a state whose ledger is empty, all or nothing; the database may be another one.

    \b
    stepfare ledger restore books-2026-11-22.gz
    stepfare ledger restore books.gz --deploy postgresql.yaml
    """
    check_file(file)
    with open_state_store(settings_files) as (_, store):
        done = store.backups.restore(file)
        store.audit.add(
            acting_user(), "ledger restore", done.hash, Usd(0), chosen_clock()(), file=file.name, head=done.head
        )
    console.note(f"restored {format_count(done.entries + done.archived, 'entry', 'entries')}, the last one's hash:")
    console.out(done.hash)


def archive_ledger(
    file: NewFileArgument,
    before: Annotated[str, typer.Option(metavar="MONTH", help="Archive months before this one; all must be closed.")],
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Move the entries of closed months into a file, after it was written to disk and verified.

    Numbers, keys, hashes and the sums of each month stay in the ledger, so that the hash chain can be checked and no
    entry can be added twice.

    \b
    stepfare ledger archive books-2024.gz --before 2025-01
    stepfare ledger verify --archive books-2024.gz
    """
    month, now = parse_month("--before", before), chosen_clock()()
    with open_state_store(settings_files, makes=False) as (_, store):
        archived = store.archives.archive(month, file, who=acting_user(), at=now)
        store.audit.add(
            archived.who, "ledger archive", archived.sha256, Usd(0), now, file=archived.file, entries=archived.entries
        )
    console.note(
        f"{file}: {format_count(archived.entries, 'entry', 'entries')} of months before {month}; keep it, with its sum:"
    )
    console.out(archived.sha256)


def backup_state(
    file: NewFileArgument,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Back up the whole state and the run directories to a file, while no command provisions or releases machines.

    Only the owner can read the file, because Terraform states may contain secrets given to machines. Terraform states
    in a remote backend and the output of jobs are not included.

    \b
    stepfare state backup /mnt/safe/state-2026-11-23.gz
    """
    from router.controller.context import APPLY_LOCK
    from router.controller.workspace.run_folders import files_to_back_up
    from router.state.lock_owner import LockOwner

    with open_state_store(settings_files, makes=False) as (opened, store):
        if not opened.has_state:
            raise CommandError("there is no state to write", remedy="see `state` of the deploy file")
        with store.lease(APPLY_LOCK, LockOwner.of_this_process(), wall_clock):
            written = store.whole.write(file, files_to_back_up(opened.runs))
        console.note(f"{file}: state {store.id}, {written.entries + written.archived} ledger entries")


def restore_state(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `state backup` wrote.")],
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Restore a missing state from a backup, all or nothing.

    Existing run directories stay unchanged. `sweep` finds machines provisioned after the backup.

    \b
    stepfare state restore /mnt/safe/state-2026-11-23.gz
    """

    from router.app.state_restoration import restore_state

    check_file(file)
    with translate_errors():
        opened: AppSettings = read_own_settings(settings_files)
        state_id, made = restore_state(opened, file, wall_clock(), chosen_clock()(), acting_user())
    console.note(f"state {state_id} is there again, and {len(made)} run directories that were missing")
    console.note("look for what was made after the backup: `stepfare sweep`")
