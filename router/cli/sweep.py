"""``stepfare sweep``: finds what should not exist, by tag in the clouds, in the state and in run directories."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.console import ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, WAIT_HELP, in_turn, opened_site, who
from router.render.tables import columns

if TYPE_CHECKING:
    from router.controller.context import Site
    from router.controller.sweep import Sweep

SCHEMA_VERSION = 1


class SweepFormat(StrEnum):
    """How the findings are written."""

    TABLE = "table"
    JSON = "json"


def sweep(
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Release what is found; without it, it is only shown.")
    ] = False,
    cloud: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this cloud; left out: those in use or in the clouds file."),
    ] = None,
    state: Annotated[
        str,
        typer.Option(metavar="ID", help="Also release what this state made: one that is lost, and only that."),
    ] = "",
    wait: Annotated[str, typer.Option(metavar="DURATION", help=WAIT_HELP)] = "5m",
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    output: Annotated[SweepFormat, typer.Option("--output", "-o", help="Format.")] = SweepFormat.TABLE,
) -> ExitCode:
    """Find orphans: machines with our tag that no attempt stands for, attempts that a crash left half made, processes
    left in run directories, machines that are gone though the state has them. Machines of other installations are shown
    and never touched.

    \b
    stepfare sweep
    stepfare sweep --yes
    stepfare sweep --state s0123456789 --yes

    Exit code 5 when a cloud could not be asked, or something could not be released.
    """
    from router.controller.sweep import clean, look

    if state and not re.fullmatch(r"s[0-9a-f]{10}", state):
        raise InvalidInputError.single("is no id of a state", field="--state", remedy="write it as in `state.id`")
    with opened_site(deploy, clouds, listen=yes, makes=yes, new_state=bool(state)) as (opened, site):
        used = {attempt.cloud for attempt in site.store.attempts(skipped=[])}
        chosen = sorted(cloud or used | {name for name, entry in opened.clouds.clouds.clouds.items() if entry.enabled})
        regions = {name: opened.clouds.settings(name).regions for name in chosen}
        if not yes:
            found = _look(site, chosen, regions, state)
            console.out(_json(found, {}) if output is SweepFormat.JSON else _text(found, {}, cleaned=False))
            return ExitCode.PARTIAL if found.gaps else ExitCode.OK
        with in_turn(site, wait):
            # Under the lock, so that what another command is making is not taken for an orphan.
            found = look(site, chosen, regions, adopted=state)
            results = {id(orphan): trouble for orphan, trouble in clean(site, found.orphans)}
            if results:
                site.store.audit(
                    who(),
                    "sweep",
                    "",
                    Usd(0),
                    site.clock(),
                    released=len(results),
                    **({"adopted": state} if state else {}),
                )
        console.out(_json(found, results) if output is SweepFormat.JSON else _text(found, results, cleaned=True))
        return ExitCode.PARTIAL if found.gaps or any(results.values()) else ExitCode.OK


def _look(site: Site, clouds: Sequence[str], regions: Mapping[str, Sequence[str]], state: str) -> Sweep:
    from router.controller.sweep import look
    from router.controller.worker_pool import one_at_a_time
    from router.state.errors import HeldError

    try:
        with one_at_a_time(site):
            return look(site, clouds, regions, adopted=state)
    except HeldError as error:
        console.note(f"{error}: what it is at is left out")
        return look(site, clouds, regions, others_work=True, adopted=state)


def _text(found: Sweep, results: dict[int, str], *, cleaned: bool) -> str:
    rows = [
        (
            o.what,
            o.where,
            o.attempt,
            _done(results, o) if cleaned and o.ours else "ours" if o.ours else "of another state",
        )
        for o in found.orphans
    ]
    lines = [columns(("WHAT", "WHERE", "ATTEMPT", ""), rows, frozenset(), {"WHERE": 40})] if rows else ["no orphans"]
    lines += [f"gone, though the state has it: {attempt} rank {rank}" for attempt, rank in found.lost]
    lines += [f"could not be asked: {gap}" for gap in found.gaps]
    if any(o.ours for o in found.orphans) and not cleaned:
        lines.append("release them with `stepfare sweep --yes`")
    return "\n".join(lines)


def _done(results: dict[int, str], orphan: object) -> str:
    trouble = results.get(id(orphan))
    return "not looked at" if trouble is None else trouble or "released"


def _json(found: Sweep, results: dict[int, str]) -> str:
    document = {
        "schema_version": SCHEMA_VERSION,
        "orphans": [
            {
                "what": o.what,
                "where": o.where,
                "attempt": o.attempt,
                "ours": o.ours,
                "released": results.get(id(o)) == "",
                "trouble": results.get(id(o)) or None,
            }
            for o in found.orphans
        ],
        "lost": [{"attempt": attempt, "rank": rank} for attempt, rank in found.lost],
        "gaps": list(found.gaps),
    }
    return json.dumps(document, indent=2)
