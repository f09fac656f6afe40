"""Commands ``stepfare data list`` and ``remove``: the copies of training data in buckets near machines."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.money import ZERO
from pricing.units import format_count
from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.options import WideListOutput, YesOption, option_error, wall_clock
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, acting_user, open_state_store
from router.render.record_table import RecordTable, TableColumn
from router.render.tables import format_timestamp

if TYPE_CHECKING:
    from router.state.data_copies import DataCopy
    from router.state.records import Attempt
    from router.state.store import StateStore

# Name of the action in the audit log.
REMOVE = "remove data"
_COPIED, _USED, _WHOLE, _EXPIRED, _PARTIAL = "being copied", "in use", "whole", "expired", "not whole"


def list_copies(settings_files: SettingsOptions = DEFAULT_FILES, output: WideListOutput = "table") -> None:
    """List the copies of data that were made for jobs: owner, size and end date. No cloud is asked.

    A copy is being copied by a command that runs, in use by a gang, whole, expired (no plan counts on it any more), or
    not whole (its making was interrupted).

    \b
    stepfare data list
    stepfare data list -o wide
    """
    now = wall_clock()
    with open_state_store(settings_files, makes=False) as (_, store):
        copies = store.data_copies.all()
        table = _copy_table(_users(store, copies), now, _in_progress(store, copies))
    if output == "wide" and copies:
        console.out(table.text(copies, console.screen(), wide=True))
    else:
        console.print_table(output, "copies", table, copies, "there are no copies of data")


def remove(
    uri: Annotated[str | None, typer.Argument(metavar="[URI]", help="The data, as the job file has them.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Remove every copy whose end date is past.")] = False,
    region: Annotated[
        str | None, typer.Option(metavar="CLOUD/REGION", help="Only the copy in this region. Default: all.")
    ] = None,
    yes: YesOption = False,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> ExitCode:
    """Remove copies of data from their buckets, and forget them. The data themselves stay where they are.

    What is below the folder of the copy is removed, nothing else. A copy that a gang uses stays. The audit log records
    who removed it.

    \b
    stepfare data remove s3://corpus/tokens --region gcp/us-central1
    stepfare data remove --expired --yes

    Exit codes: 0; 1 a gang uses it, or its bucket cannot be changed; 2 no such copy; 5 some of several stay.
    """
    if (uri is None) is not expired:
        raise option_error("URI", "needs either URI or --expired", "see `stepfare data list`")
    now = wall_clock()
    with open_state_store(settings_files, makes=False) as (_, store):
        chosen = _choose(store.data_copies.all(), uri, region, now)
        used = _users(store, chosen)
        free = [copy for copy in chosen if copy not in used]
        for copy in chosen:
            user = used.get(copy)
            console.note(_title(copy) if user is None else f"{_title(copy)} stays: {user.id} of {user.job} uses it")
        if used and not free and not expired:
            raise CommandError("a gang uses it", remedy="release the gang first: `stepfare destroy`")
        what = f"{format_count(len(free), 'copy', 'copies')} ({_size(sum(copy.bytes for copy in free))})"
        if not free or not console.confirm(f"Remove {what}?", yes=yes):
            console.note("nothing was removed")
            return ExitCode.OK
        failures = [why for copy in free if (why := _remove_copy(store, copy, now))]
    for why in failures:
        console.note(why, "error")
    if len(failures) == len(free):
        return ExitCode.FAILURE
    console.note(f"{format_count(len(free) - len(failures), 'copy', 'copies')} removed")
    return ExitCode.PARTIAL if failures or (used and not expired) else ExitCode.OK


def _choose(copies: Sequence[DataCopy], uri: str | None, region: str | None, now: datetime) -> list[DataCopy]:
    """Return the copies that are meant, for None those that are expired. InvalidInputError where there is none."""
    from router.controller.provision.checkpoint_transfer import display_url

    there = [copy for copy in copies if region in (None, str(copy.place))]
    if uri is None:
        return [copy for copy in there if copy.until <= now]
    copies_of_uri = [copy for copy in there if uri in (copy.uri, display_url(copy.uri))]
    if not copies_of_uri:
        what = f"no copy of {display_url(uri)} is known" + ("" if region is None else f" in {region}")
        raise option_error("URI", what, "see `stepfare data list`")
    return copies_of_uri


def _users(store: StateStore, copies: Sequence[DataCopy]) -> Mapping[DataCopy, Attempt]:
    from router.controller.provision.data_transfer import attempts_using

    return attempts_using(store, copies) if copies else {}


def _in_progress(store: StateStore, copies: Sequence[DataCopy]) -> Collection[DataCopy]:
    from router.controller.provision.data_transfer import copies_in_progress

    return copies_in_progress(store, copies, wall_clock) if copies else ()


def _remove_copy(store: StateStore, copy: DataCopy, now: datetime) -> str:
    """Remove the objects of a copy, then its record; return why that could not be done, "" where it could."""
    from router.checkpoints.arrow_store import open_arrow_store
    from router.checkpoints.object_store import StorageError, open_checkpoint_store

    # From now on no plan counts on it, however far the removal gets.
    store.data_copies.put(replace(copy, made_at=None))
    try:
        folder = open_checkpoint_store(copy.url, lambda url: open_arrow_store(url, dict(os.environ)))  # noqa: TID251
        folder.remove_below("", frozenset())
    except (StorageError, OSError) as error:
        return f"{_title(copy)} is not removed: {error}"
    store.data_copies.remove([copy])
    shown = _copy_table({}, now).record(copy)
    store.audit.add(acting_user(), REMOVE, "", ZERO, now, **{key: shown[key] for key in ("uri", "region", "url")})
    return ""


def _title(copy: DataCopy) -> str:
    from router.controller.provision.checkpoint_transfer import display_url

    return f"the copy of {display_url(copy.uri)} in {copy.place}"


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"


def _copy_table(
    used: Mapping[DataCopy, Attempt], now: datetime, in_progress: Collection[DataCopy] = ()
) -> RecordTable[DataCopy]:
    from router.controller.provision.checkpoint_transfer import display_url

    def state(copy: DataCopy) -> str:
        if copy in in_progress:
            return _COPIED
        if copy in used:
            return _USED
        return _PARTIAL if copy.made_at is None else _WHOLE if copy.is_usable(now) else _EXPIRED

    def user(copy: DataCopy) -> str | None:
        return used[copy].id if copy in used else None

    return RecordTable(
        (
            TableColumn("uri", lambda copy: display_url(copy.uri), "DATA", least=16),
            TableColumn("region", lambda copy: str(copy.place), "REGION"),
            TableColumn("team", lambda copy: copy.team, "OWNER", width=16),
            TableColumn("bytes", lambda copy: copy.bytes, "SIZE", _size, right=True),
            TableColumn("files", lambda copy: copy.files, "FILES", "{:,}".format, right=True, wide=True),
            TableColumn("begun_at", lambda copy: copy.begun_at),
            TableColumn("made_at", lambda copy: copy.made_at, "MADE", format_timestamp, wide=True),
            TableColumn("until", lambda copy: copy.until, "UNTIL", format_timestamp),
            TableColumn("state", state, "STATE"),
            TableColumn("attempt", user, "USED BY", wide=True),
            TableColumn("url", lambda copy: display_url(copy.url), "COPY", wide=True),
        )
    )
