"""Commands ``stepfare destroy`` and ``sweep``: release machines, and find orphans by tag, in state and folders."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.money import Usd
from pricing.problems import InvalidInputError
from pricing.units import format_count
from router.cli import console
from router.cli.completion import complete_plans
from router.cli.console import ExitCode
from router.cli.options import TableOutput, YesOption, option_error
from router.cli.site_options import (
    DEFAULT_FILES,
    SettingsOptions,
    WaitOption,
    acting_user,
    exit_on_second_interrupt,
    interrupt_on_sigterm,
    lock_provisioning,
    open_controller_session,
)
from router.render.record_table import RecordTable, TableColumn, json_document
from router.render.tables import format_table, format_usd
from router.state.errors import LeaseHeldError, StateError, UnreadableError

if TYPE_CHECKING:
    from router.controller.context import ControllerContext
    from router.controller.history.attempt_history import AttemptHistory
    from router.controller.sweep import Orphan, OrphanReport
    from router.state.records import Attempt
    from router.state.rows import SalvagedRow

_DESTROYED = "destroyed on request"
_GIVEN_UP = "waits for a place, and will not be made again"


def destroy(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PLAN|JOB|ATTEMPT]...",
            autocompletion=complete_plans,
            help="Plan files or digests, jobs, attempts.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Release everything.")] = False,
    yes: YesOption = False,
    wait: WaitOption = "5m",
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> ExitCode:
    """Release every machine of these plans, jobs or attempts.

    The trainings are asked to save and stop first, as with an interruption notice of a cloud.

    \b
    stepfare destroy plan.json
    stepfare destroy llama2-7b-sft-chat --yes
    stepfare destroy --all

    The exit code is 5 if something could not be released; run it again.
    """
    from router.controller.history.attempt_history import give_up

    if everything == bool(targets):
        raise InvalidInputError.single(
            "name what is to be released, or all of it", remedy="PLAN, JOB or ATTEMPT; or --all"
        )
    # Agents may report while their machines are released; their last reports must not be lost.
    with open_controller_session(settings_files, listen=True, makes=False) as (_, site):
        now, lock = site.clock(), lock_provisioning(site, wait)
        alive, damaged = _select_attempts(site, targets or [])
        waiting = _select_waiting(site, targets or [])
        if not alive and not waiting and not damaged:
            console.out("nothing runs that fits")
            return ExitCode.OK
        rows = [(a.job, a.phase.value, f"{a.cloud}/{a.region}", str(a.machines), _spent(site, a), a.id) for a in alive]
        rows += [(row.values.get("job", "?"), "unreadable", "?", "?", "?", row.key[0]) for row in damaged]
        console.note(
            format_table(
                ("JOB", "STATE", "PLACE", "MACHINES", "SPENT", "ATTEMPT"),
                rows,
                frozenset({"MACHINES", "SPENT"}),
                {},
                console.screen(sys.stderr),
            )
        )
        told = {chain.last.job for chain in waiting}
        for chain in waiting:
            console.note(f"{chain.last.job} {_GIVEN_UP}")
        gangs = format_count(len(alive) + len(waiting) + len(damaged), "gang")
        if not console.confirm(f"Release {gangs}?", yes=yes):
            console.note("nothing was released")
            return ExitCode.OK
        with lock:
            # The previous lock owner may have moved gangs, or placed those that waited.
            (alive, damaged), waiting = _select_attempts(site, targets or []), _select_waiting(site, targets or [])
            names = [*(a.id for a in alive), *(row.key[0] for row in damaged)]
            site.store.audit.add(acting_user(), "destroy", "", Usd(0), now, attempts=names)
            for chain in waiting:
                give_up(site.store, chain, "stopped", _DESTROYED, now)
                if chain.last.job not in told:  # a place for it was just being tried
                    console.note(f"{chain.last.job} {_GIVEN_UP}")
            mended, failed = _mend(site, damaged)
            alive += mended
            released = len(alive) + failed
            failed += _release(site, alive)
        console.out(f"{released - failed} released" + (f", {failed} not" if failed else ""))
        return ExitCode.PARTIAL if failed else ExitCode.OK


def _spent(site: ControllerContext, attempt: Attempt) -> str:
    from router.controller.history.metering import cost_so_far

    try:
        return format_usd(cost_so_far(site.store.attempts.nodes(attempt.id), site.clock()))
    except UnreadableError:
        return "?"  # the release reports the error


def _select_attempts(site: ControllerContext, targets: list[str]) -> tuple[list[Attempt], list[SalvagedRow]]:
    """Return the attempts that are not over, and those whose row cannot be read and has to be mended first."""
    wanted = {_plan_or_name(text) for text in targets}
    unreadable: list[UnreadableError] = []
    attempts = site.store.attempts.find(skipped=unreadable)
    damaged = [site.store.attempts.salvage(error.key[0])[0] for error in unreadable]
    alive = [a for a in attempts if not a.phase.is_over]
    known = {name for a in attempts for name in _names(a)} | {name for row in damaged for name in _names_of(row)}
    for name in sorted(wanted - known):
        raise InvalidInputError.single(
            f"no plan, job or attempt is called {name}", remedy="see `stepfare status --all`"
        )
    alive = [a for a in alive if not wanted or wanted & _names(a)]
    return alive, [row for row in damaged if not wanted or wanted & _names_of(row)]


def _names(attempt: Attempt) -> set[str]:
    return {attempt.id, attempt.job, attempt.plan, f"plan-{attempt.plan[:12]}"}


def _names_of(row: SalvagedRow) -> set[str]:
    plan = row.values.get("plan", "")
    return {row.key[0], *(name for name in (row.values.get("job"), plan, plan and f"plan-{plan[:12]}") if name)}


def _mend(site: ControllerContext, damaged: list[SalvagedRow]) -> tuple[list[Attempt], int]:
    """Return the attempts whose rows were mended, and how many could not be."""
    from router.controller.release.damaged_rows import mend_gang

    mended = []
    for row in damaged:
        try:
            mended.append(mend_gang(site, row.key[0]))
        except StateError as error:
            site.tell(row.key[0], f"not released: {error} ({error.remedy})")
    return mended, len(damaged) - len(mended)


def _select_waiting(site: ControllerContext, targets: list[str]) -> list[AttemptHistory]:
    from router.controller.history.attempt_history import resumable_histories

    timeouts, wanted = site.deploy.timeouts, {_plan_or_name(text) for text in targets}
    ended_attempts = site.store.attempts.ended_last(site.clock() - timeouts.retry_for)
    jobs = resumable_histories(site.store, ended_attempts, crashes=timeouts.max_crashes)
    return [history for history in jobs if not wanted or wanted & _names(history.last)]


def _plan_or_name(text: str) -> str:
    from router.config.plan_files import read_plan
    from router.planning.document.plan_json import plan_content

    path = Path(text)
    if path.suffix == ".json" and path.is_file():
        digest: str = plan_content(read_plan(path))["digest"]
        return digest
    return text


def _release(site: ControllerContext, attempts: list[Attempt]) -> int:
    from concurrent.futures import ThreadPoolExecutor

    from router.controller.history.lifecycle import NotReleasedError
    from router.controller.release.release import release

    def one(attempt: Attempt) -> bool:
        reason = "finished" if attempt.result == "finished" else "stopped"
        site.tell(attempt.job, f"releasing {attempt.id}")
        try:
            release(site, attempt, reason, _DESTROYED)
        except (NotReleasedError, StateError, OSError) as error:
            # A gang that cannot be released or read must not stop the release of the others.
            remedy = f" ({error.remedy})" if isinstance(error, StateError) and error.remedy else ""
            site.tell(attempt.job, f"not released: {error}{remedy}")
            return False
        return True

    with interrupt_on_sigterm(), ThreadPoolExecutor(site.deploy.parallel) as pool:
        try:
            return sum(not done for done in pool.map(one, attempts))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            exit_on_second_interrupt("stopping: releases under way are completed, the rest keeps running")
            raise


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
        raise option_error("--state", "is no id of a state", "write it as in `state.id`")
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
    from router.controller.context import apply_lock
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
    return json_document(document)
