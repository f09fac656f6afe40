"""``stepfare state backup`` and ``restore``: everything that must not be lost in one file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.clock import chosen_clock, wall_clock
from router.cli.console import CommandError, ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, explained, opened_store, who

if TYPE_CHECKING:
    from router.app.settings import Opened


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, compressed.")],
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Write the whole state and the run directories into a file, while no command makes or releases machines.

    Only its owner can read it: Terraform's states may hold what machines were told. Those that lie in a remote backend
    are not in it; nor is the output of jobs.

    \b
    stepfare state backup /mnt/safe/state-2026-11-23.gz
    """
    from router.controller.run_folders import backed_up
    from router.controller.worker_pool import LOCK
    from router.state.lock_owner import Holder

    with opened_store(deploy, clouds, makes=False) as (opened, store):
        if not opened.has_state:
            raise CommandError("there is no state to write", remedy="see `state` of the deploy file")
        with store.lease(LOCK, Holder.of_this_process(), wall_clock):
            done = store.whole.write(file, backed_up(opened.runs))
        console.note(f"{file}: state {store.id}, {done.entries + done.archived} ledger entries")
    return ExitCode.OK


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `state backup` wrote.")],
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Put a backup into the place of a state that is missing: all of it or nothing. Run directories that are there stay
    as they are. What was made after the backup is found by `sweep`.

    \b
    stepfare state restore /mnt/safe/state-2026-11-23.gz
    """
    import os

    from router.app.settings import Files, read_files
    from router.app.state_identity import restore_state

    with explained():
        opened: Opened = read_files(Files(deploy, clouds), dict(os.environ))  # noqa: TID251
        state_id, made = restore_state(opened, file, wall_clock(), chosen_clock()(), who())
    console.note(f"state {state_id} is there again, and {len(made)} run directories that were missing")
    console.note("look for what was made after the backup: `stepfare sweep`")
    return ExitCode.OK
