"""``stepfare destroy``: releases machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.console import ExitCode
from router.cli.site_options import (
    CLOUDS_HELP,
    DEPLOY_HELP,
    WAIT_HELP,
    in_turn,
    leave_when_asked_again,
    opened_site,
    terminated_as_interrupted,
    who,
)
from router.render.tables import columns, dollars

if TYPE_CHECKING:
    from router.controller.attempt_history import Chain
    from router.controller.context import Site
    from router.state.errors import UnreadableError
    from router.state.records import Attempt

_DESTROYED = "destroyed on request"


def destroy(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PLAN|JOB|ATTEMPT]...", help="A plan's file or digest, jobs, attempts."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that is there.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Annotated[str, typer.Option(metavar="DURATION", help=WAIT_HELP)] = "5m",
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Release every machine of these plans, jobs or attempts. Training is asked to save and stop first, as a cloud
    does.

    \b
    stepfare destroy plan.json
    stepfare destroy llama-7b --yes
    stepfare destroy --all

    Exit code 5 when something could not be released; run it again.
    """
    from router.controller.attempt_history import give_up

    if everything == bool(wanted):
        raise InvalidInputError.single(
            "name what is to be released, or all of it", remedy="PLAN, JOB or ATTEMPT; or --all"
        )
    # Agents may call while their machines are released: what they say last is worth having.
    with opened_site(deploy, clouds, listen=True, makes=False) as (_, site):
        now, lock = site.clock(), in_turn(site, wait)
        alive = _chosen(site, wanted or [])
        waiting = _waiting(site, wanted or [])
        if not alive and not waiting:
            console.out("nothing runs that fits")
            return ExitCode.OK
        rows = [
            (
                a.job,
                a.phase.value,
                f"{a.cloud}/{a.region}",
                str(a.machines),
                _spent(site, a),
                a.id,
            )
            for a in alive
        ]
        console.note(
            columns(
                ("JOB", "STATE", "PLACE", "MACHINES", "SPENT", "ATTEMPT"), rows, frozenset({"MACHINES", "SPENT"}), {}
            )
        )
        for chain in waiting:
            console.note(f"{chain.last.job} waits for a place, and will not be made again")
        if not yes and not _agreed(len(alive) + len(waiting)):
            console.note("nothing was released")
            return ExitCode.OK
        with lock:
            # Whoever was at work until now may have moved them, or found a place for those that waited.
            alive, waiting = _chosen(site, wanted or []), _waiting(site, wanted or [])
            site.store.audit(who(), "destroy", "", Usd(0), now, attempts=[a.id for a in alive])
            for chain in waiting:
                give_up(site.store, chain, "stopped", _DESTROYED, now)
            failed = _release(site, alive)
        console.out(f"{len(alive) - failed} released" + (f", {failed} not" if failed else ""))
        return ExitCode.PARTIAL if failed else ExitCode.OK


def _spent(site: Site, attempt: Attempt) -> str:
    from router.controller.metering import spent
    from router.state.errors import UnreadableError

    try:
        return dollars(spent(site.store.nodes(attempt.id), site.clock()))
    except UnreadableError:
        return "?"  # said when it is to be released


def _chosen(site: Site, wanted: list[str]) -> list[Attempt]:
    names = {_plan_or_name(text) for text in wanted}
    unreadable: list[UnreadableError] = []
    every = site.store.attempts(skipped=unreadable)
    for error in unreadable:
        console.note(f"{error}: it is left as it is ({error.remedy})", "warning")
    alive = [a for a in every if not a.phase.is_over]
    known = {name for a in every for name in (a.id, a.job, a.plan, f"plan-{a.plan[:12]}")}
    for name in sorted(names - known):
        raise InvalidInputError.single(
            f"no plan, job or attempt is called {name}", remedy="see `stepfare status --all`"
        )
    return [a for a in alive if not names or names & {a.id, a.job, a.plan, f"plan-{a.plan[:12]}"}]


def _waiting(site: Site, wanted: list[str]) -> list[Chain]:
    """Jobs without machines that would be made again."""
    from router.controller.attempt_history import waits

    patience, names = site.deploy.patience, {_plan_or_name(text) for text in wanted}
    ended = site.store.ended_last(site.clock() - patience.again)
    found = waits(site.store, ended, crashes=patience.crashes)
    return [c for c in found if not names or names & {c.last.id, c.last.job, c.last.plan, f"plan-{c.last.plan[:12]}"}]


def _plan_or_name(text: str) -> str:
    from router.config.plan_files import read_plan
    from router.planning.plan_json import plan_content

    path = Path(text)
    if path.suffix == ".json" and path.is_file():
        digest: str = plan_content(read_plan(path))["digest"]
        return digest
    return text


def _agreed(count: int) -> bool:
    import sys

    if not sys.stdin.isatty():
        raise InvalidInputError.single("nobody can be asked here", field="--yes", remedy="agree with --yes")
    return console.agreed(f"Release {count} gang{'s' if count != 1 else ''}?")


def _release(site: Site, attempts: list[Attempt]) -> int:
    from concurrent.futures import ThreadPoolExecutor

    from router.controller.errors import NotReleasedError
    from router.controller.release import release
    from router.state.errors import StateError

    def one(attempt: Attempt) -> bool:
        reason = "finished" if attempt.result == "finished" else "stopped"
        site.tell(attempt.job, f"releasing {attempt.id}")
        try:
            release(site, attempt, reason, _DESTROYED)
        except (NotReleasedError, StateError, OSError) as error:
            # One that cannot be released, or read, stops none of the others.
            site.tell(attempt.job, f"not released: {error}")
            return False
        return True

    with terminated_as_interrupted(), ThreadPoolExecutor(site.deploy.parallel) as pool:
        try:
            return sum(not done for done in pool.map(one, attempts))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            leave_when_asked_again("stopping: what is being released is waited for, the rest goes on running")
            raise
