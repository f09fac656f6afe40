"""Command ``stepfare sweep``: find orphans by tag in the clouds, in the state and in run directories."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.console import ExitCode
from router.cli.options import TableOutput
from router.cli.site_options import (
    DEFAULT_FILES,
    SettingsOptions,
    WaitOption,
    acting_user,
    lock_provisioning,
    open_controller_session,
)
from router.render.record_table import RecordTable, TableColumn
from router.state.errors import LeaseHeldError

if TYPE_CHECKING:
    from router.controller.context import ControllerContext
    from router.controller.sweep import Orphan, OrphanReport


def sweep(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Release the orphans instead of only listing them.")] = False,
    cloud: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this cloud. Default: those in use or in the clouds file."),
    ] = None,
    state: Annotated[
        str,
        typer.Option(metavar="ID", help="Also release resources of this state, which must be lost."),
    ] = "",
    wait: WaitOption = "5m",
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TableOutput = "table",
) -> ExitCode:
    """Find and delete orphaned resources.

    Orphans are machines with our tag but without an attempt, attempts that a crash left half provisioned, and processes
    left in run directories. Machines that have vanished although the state lists them are reported too. Machines of
    other installations are shown and never touched.

    \b
    stepfare sweep
    stepfare sweep --yes
    stepfare sweep --state s0123456789 --yes

    The exit code is 5 if a cloud could not be asked or something could not be released.
    """
    from router.cli.clouds import refuse_unknown_clouds
    from router.controller.sweep import find_orphans, release_orphans

    refuse_unknown_clouds(cloud or [])
    if state and not re.fullmatch(r"s[0-9a-f]{10}", state):
        raise InvalidInputError.single("is no id of a state", field="--state", remedy="write it as in `state.id`")
    with open_controller_session(settings_files, listen=yes, makes=yes, new_state=bool(state)) as (opened, site):
        used = {attempt.cloud for attempt in site.store.attempts.find(skipped=[])}
        chosen = sorted(cloud or used | {name for name, entry in opened.clouds.clouds.clouds.items() if entry.enabled})
        regions = {name: opened.clouds.settings(name).regions for name in chosen}
        if not yes:
            result = _look(site, chosen, regions, state)
            console.out(_json(result, {}) if output == "json" else _text(result, {}, cleaned=False))
            return ExitCode.PARTIAL if result.gaps else ExitCode.OK
        with lock_provisioning(site, wait):
            # The lock keeps machines that another command is provisioning from being taken for orphans.
            result = find_orphans(site, chosen, regions, adopted=state)
            results = {id(orphan): trouble for orphan, trouble in release_orphans(site, result.orphans)}
            if results:
                site.store.audit.add(
                    acting_user(),
                    "sweep",
                    "",
                    Usd(0),
                    site.clock(),
                    released=len(results),
                    **({"adopted": state} if state else {}),
                )
        console.out(_json(result, results) if output == "json" else _text(result, results, cleaned=True))
        return ExitCode.PARTIAL if result.gaps or any(results.values()) else ExitCode.OK


def _look(
    site: ControllerContext, clouds: Sequence[str], regions: Mapping[str, Sequence[str]], state: str
) -> OrphanReport:
    from router.controller.supervise.worker_pool import apply_lock
    from router.controller.sweep import find_orphans

    try:
        with apply_lock(site):
            return find_orphans(site, clouds, regions, adopted=state)
    except LeaseHeldError as error:
        console.note(f"{error}: what it is at is left out")
        return find_orphans(site, clouds, regions, others_work=True, adopted=state)


def _text(result: OrphanReport, results: dict[int, str], *, cleaned: bool) -> str:
    table = _orphan_table(results, cleaned=cleaned).text(result.orphans, console.screen())
    lines = [table] if result.orphans else ["no orphans"]
    lines += [f"gone, though the state has it: {attempt} rank {rank}" for attempt, rank in result.lost]
    lines += [f"could not be asked: {gap}" for gap in result.gaps]
    if any(o.ours for o in result.orphans) and not cleaned:
        lines.append("release them with `stepfare sweep --yes`")
    return "\n".join(lines)


def _orphan_table(results: dict[int, str], *, cleaned: bool) -> RecordTable[Orphan]:
    """Return the table of orphans; ``results`` has what stood against the release of each, "" where it is released."""

    def outcome(orphan: Orphan) -> str:
        if not cleaned or not orphan.ours:
            return "ours" if orphan.ours else "of another state"
        trouble = results.get(id(orphan))
        return "not looked at" if trouble is None else trouble or "released"

    return RecordTable(
        (
            TableColumn("what", lambda orphan: orphan.what, "WHAT"),
            TableColumn("where", lambda orphan: orphan.where, "WHERE", width=40),
            TableColumn("attempt", lambda orphan: orphan.attempt, "ATTEMPT"),
            TableColumn("", outcome, ""),
            TableColumn("ours", lambda orphan: orphan.ours),
            TableColumn("released", lambda orphan: results.get(id(orphan)) == ""),
            TableColumn("trouble", lambda orphan: results.get(id(orphan)) or None),
        )
    )


def _json(result: OrphanReport, results: dict[int, str]) -> str:
    document = {
        "orphans": _orphan_table(results, cleaned=True).records(result.orphans),
        "lost": [{"attempt": attempt, "rank": rank} for attempt, rank in result.lost],
        "gaps": list(result.gaps),
    }
    return console.as_document(document)
