"""Command ``stepfare status``: show gangs, machines and costs as they are now."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.completion import complete_plans
from router.cli.console import CommandError, ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, open_state_store
from router.jobs.run_policy import RunPolicy
from router.render.tables import format_table, format_timestamp, format_usd, wrap_text

if TYPE_CHECKING:
    from router.controller.report import GangReport, StatusReport

SCHEMA_VERSION = 1
_SECONDS = 1.0


class StatusFormat(StrEnum):
    """Output format of the status."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


def status(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB|ATTEMPT|PLAN]...",
            autocompletion=complete_plans,
            help="Jobs, attempts or plans to show. Default: all.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Include earlier attempts of each job.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second, until Ctrl-C.")] = False,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    output: Annotated[StatusFormat, typer.Option("--output", "-o", help="Format.")] = StatusFormat.TABLE,
) -> ExitCode:
    """Show gangs, their machines and attempts, and their cost so far, without asking any cloud.

    \b
    stepfare status
    stepfare status llama-7b -o wide
    stepfare status -o json
    """
    from router.app.controller import is_coordinator_reachable
    from router.cli.options import chosen_clock
    from router.controller.report import build_status_report

    clock = chosen_clock()
    with open_state_store(deploy, clouds, makes=False) as (opened, store):

        def look() -> StatusReport:
            return build_status_report(store, wanted or (), clock(), opened.deploy.timeouts, everything=every)

        first = look()
        if wanted and not first.gangs:
            raise CommandError(
                f"nothing was ever made for {', '.join(wanted)}", ExitCode.INVALID_INPUT, "see `status --all`"
            )
        if any(gang.waits or not gang.attempt.phase.is_over for gang in first.gangs) and not is_coordinator_reachable(
            opened, store
        ):
            console.note("nobody listens to these gangs: run `stepfare watch`", "warning")
        write = {StatusFormat.JSON: _json, StatusFormat.WIDE: _wide, StatusFormat.TABLE: _table}[output]
        if watch:
            _refresh(lambda: write(look()))
        else:
            console.out(write(first))
    return ExitCode.OK


def _refresh(text: Callable[[], str]) -> None:
    while True:
        console.out(console.replace_screen(text()))
        time.sleep(_SECONDS)


def _table(found: StatusReport) -> str:
    if not found.gangs:
        return "nothing was made yet: see `stepfare apply --help`"
    rows = []
    for gang in found.gangs:
        a = gang.attempt
        price, spent = f"{a.usd_per_hour.dollars():.2f}", format_usd(gang.spent_usd)
        if gang.unpriced:
            price = spent = "unknown"
        rows.append(
            (
                a.job,
                gang.state,
                f"{a.cloud}/{a.region}",
                _ranks(gang),
                _silence(gang),
                _count(gang.step),
                _count(gang.saved_step),
                price,
                spent,
                a.id,
            )
        )
    header = ("JOB", "STATE", "PLACE", "RANKS", "QUIET", "STEP", "SAVED", "$/H", "SPENT", "ATTEMPT")
    widths = {"JOB": 18, "PLACE": 22}
    right = frozenset({"RANKS", "QUIET", "STEP", "SAVED", "$/H", "SPENT"})
    lines = [format_table(header, rows, right, widths, console.screen()), ""]
    attempts = (gang.attempt for gang in found.gangs if gang.attempt.message not in ("", gang.attempt.reason))
    lines += [wrap_text(f"{a.id}: {a.reason}: {a.message}") for a in attempts]
    remark = "; reserved machines without a stated price are in no sum" if any(g.unpriced for g in found.gangs) else ""
    lines.append(f"spent {format_usd(found.spent_usd)} as of {format_timestamp(found.now)}{remark}")
    return "\n".join(lines)


def _wide(found: StatusReport) -> str:
    lines = [_table(found), ""]
    rows = [
        (
            node.attempt,
            str(node.rank),
            node.machine_id or "",
            node.zone or "",
            node.instance_type,
            node.market.value,
            node.agent or "-",
            node.ended_reason,
            f"{node.log_offset:,}",
            node.address or "",
        )
        for gang in found.gangs
        for node in gang.nodes
    ]
    header = ("ATTEMPT", "RANK", "MACHINE", "ZONE", "TYPE", "MARKET", "AGENT", "ENDED", "LOG BYTES", "ADDRESS")
    if rows:
        lines.append(format_table(header, rows, frozenset({"RANK", "LOG BYTES"}), {}, console.screen()))
    runs = [(gang.attempt.id, str(policy), _overridden(gang)) for gang in found.gangs if (policy := gang.policy)]
    if runs:
        lines += ["", format_table(("ATTEMPT", "POLICY", "QUOTED"), runs, frozenset(), {}, console.screen())]
    intervals = [(g.attempt.id, f"{s / 60:,.1f}") for g in found.gangs if (s := g.attempt.checkpoint_seconds)]
    if intervals:
        lines += ["", format_table(("ATTEMPT", "SAVES EVERY MIN"), intervals, frozenset(), {}, console.screen())]
    return "\n".join(lines)


def _overridden(gang: GangReport) -> str:
    return "" if gang.quoted_policy is None else str(gang.quoted_policy)


def _policy_json(policy: RunPolicy | None) -> dict[str, object] | None:
    return None if policy is None else policy.content


def _count(steps: int | None) -> str:
    return "" if steps is None else f"{steps:,}"


def _ranks(gang: GangReport) -> str:
    return f"{gang.calling}/{gang.attempt.machines}"


def _silence(gang: GangReport) -> str:
    return "" if gang.quiet is None else f"{gang.quiet.total_seconds():.0f}s"


def _json(found: StatusReport) -> str:
    document = {
        "schema_version": SCHEMA_VERSION,
        "as_of": format_timestamp(found.now),
        "spent_usd": str(found.spent_usd),
        "gangs": [_gang_json(gang) for gang in found.gangs],
    }
    return json.dumps(document, indent=2)


def _gang_json(gang: GangReport) -> dict[str, object]:
    a = gang.attempt
    times = {"created_at": a.created_at, "made_at": a.made_at, "met_at": a.met_at, "gone_at": a.gone_at}
    return {
        "attempt": a.id,
        "job": a.job,
        "plan": a.plan,
        "gang": a.gang,
        "number": a.number,
        "choice": a.choice,
        "state": a.phase.value,
        "waits": gang.waits,
        "result": a.result,
        "reason": a.reason,
        "message": a.message,
        "policy": _policy_json(gang.policy),
        "quoted_policy": _policy_json(gang.quoted_policy),
        "resumes": a.resumes,
        "first_step": a.first_step,
        "checkpoint_seconds": a.checkpoint_seconds,
        "last_step": a.last_step,
        "kept_step": a.kept_step,
        "team": a.team,
        "cloud": a.cloud,
        "region": a.region,
        "machines": a.machines,
        "usd_per_hour": str(a.usd_per_hour),
        "max_usd_per_hour": str(a.max_usd_per_hour),
        "spent_usd": str(gang.spent_usd),
        "unpriced": gang.unpriced,
        **{name: None if moment is None else moment.isoformat() for name, moment in times.items()},
        "nodes": [
            {
                "rank": node.rank,
                "machine": node.machine_id,
                "zone": node.zone,
                "instance_type": node.instance_type,
                "market": node.market.value,
                "address": node.address,
                "agent": node.agent,
                "ended": node.ended_reason,
                "exit_code": node.exit_code,
                "heard_at": None if node.heard_at is None else node.heard_at.isoformat(),
                "log_bytes": node.log_offset,
                "step": node.step,
                "saved_step": node.saved_step,
            }
            for node in gang.nodes
        ],
    }
