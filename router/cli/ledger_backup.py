"""Commands ``stepfare ledger backup``, ``restore`` and ``archive``: the ledger as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pricing.units import format_count
from router.cli import console
from router.cli.console import ExitCode
from router.cli.ledger_options import parse_month
from router.cli.output_options import NewFileArgument
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, acting_user, open_state_store


def backup(
    file: NewFileArgument,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> ExitCode:
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
    return ExitCode.OK


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `ledger backup` wrote.")],
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> ExitCode:
    """Restore a backup into a state whose ledger is empty, all or nothing; the database may be another one.

    \b
    stepfare ledger restore books-2026-11-22.gz
    stepfare ledger restore books.gz --deploy postgresql.yaml
    """
    from pricing.money import Usd
    from router.cli.options import chosen_clock
    from router.files.missing_file import check_file

    check_file(file)
    with open_state_store(settings_files) as (_, store):
        done = store.backups.restore(file)
        store.audit.add(
            acting_user(), "ledger restore", done.hash, Usd(0), chosen_clock()(), file=file.name, head=done.head
        )
    console.note(f"restored {format_count(done.entries + done.archived, 'entry', 'entries')}, the last one's hash:")
    console.out(done.hash)
    return ExitCode.OK


def archive(
    file: NewFileArgument,
    before: Annotated[str, typer.Option(metavar="MONTH", help="Archive months before this one; all must be closed.")],
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> ExitCode:
    """Move the entries of closed months into a file, after it was written to disk and verified.

    Numbers, keys, hashes and the sums of each month stay in the ledger, so that the hash chain can be checked and no
    entry can be added twice.

    \b
    stepfare ledger archive books-2024.gz --before 2025-01
    stepfare ledger verify --archive books-2024.gz
    """
    from pricing.money import Usd
    from router.cli.options import chosen_clock

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
    return ExitCode.OK
