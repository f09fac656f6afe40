"""Commands ``stepfare state backup`` and ``restore``: back up state and run directories to one file, and restore it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.options import chosen_clock, wall_clock
from router.cli.output_options import NewFileArgument
from router.cli.site_options import (
    DEFAULT_FILES,
    SettingsOptions,
    acting_user,
    open_state_store,
    read_own_settings,
    translate_errors,
)

if TYPE_CHECKING:
    from router.app.settings import AppSettings


def backup(
    file: NewFileArgument,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> ExitCode:
    """Back up the whole state and the run directories to a file, while no command provisions or releases machines.

    Only the owner can read the file, because Terraform states may contain secrets given to machines. Terraform states
    in a remote backend and the output of jobs are not included.

    \b
    stepfare state backup /mnt/safe/state-2026-11-23.gz
    """
    from router.controller.supervise.worker_pool import APPLY_LOCK
    from router.controller.workspace.run_folders import files_to_back_up
    from router.state.lock_owner import LockOwner

    with open_state_store(settings_files, makes=False) as (opened, store):
        if not opened.has_state:
            raise CommandError("there is no state to write", remedy="see `state` of the deploy file")
        with store.lease(APPLY_LOCK, LockOwner.of_this_process(), wall_clock):
            written = store.whole.write(file, files_to_back_up(opened.runs))
        console.note(f"{file}: state {store.id}, {written.entries + written.archived} ledger entries")
    return ExitCode.OK


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `state backup` wrote.")],
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> ExitCode:
    """Restore a missing state from a backup, all or nothing.

    Existing run directories stay unchanged. `sweep` finds machines provisioned after the backup.

    \b
    stepfare state restore /mnt/safe/state-2026-11-23.gz
    """

    from router.app.state_restoration import restore_state
    from router.files.missing_file import check_file

    check_file(file)
    with translate_errors():
        opened: AppSettings = read_own_settings(settings_files)
        state_id, made = restore_state(opened, file, wall_clock(), chosen_clock()(), acting_user())
    console.note(f"state {state_id} is there again, and {len(made)} run directories that were missing")
    console.note("look for what was made after the backup: `stepfare sweep`")
    return ExitCode.OK
