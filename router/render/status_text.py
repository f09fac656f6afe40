"""Status of gangs as a table, a wide table and JSON. Pure functions."""

from __future__ import annotations

import json

from router.controller.report.report import GangReport, StatusReport
from router.jobs.run_policy import RunPolicy
from router.render.tables import PLAIN, Screen, format_table, format_timestamp, format_usd, wrap_text

SCHEMA_VERSION = 1


def as_table(report: StatusReport, screen: Screen = PLAIN) -> str:
    """Return one row per gang, messages of attempts, and what was spent."""
    if not report.gangs:
        return "nothing was made yet: see `stepfare apply --help`"
    rows = []
    for gang in report.gangs:
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
    lines = [format_table(header, rows, right, widths, screen), ""]
    attempts = (gang.attempt for gang in report.gangs if gang.attempt.message not in ("", gang.attempt.reason))
    lines += [wrap_text(f"{a.id}: {a.reason}: {a.message}") for a in attempts]
    remark = "; reserved machines without a stated price are in no sum" if any(g.unpriced for g in report.gangs) else ""
    lines.append(f"spent {format_usd(report.spent_usd)} as of {format_timestamp(report.now)}{remark}")
    return "\n".join(lines)


def as_wide(report: StatusReport, screen: Screen = PLAIN) -> str:
    """Return the table with all machines, policies and checkpoint intervals."""
    lines = [as_table(report, screen), ""]
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
        for gang in report.gangs
        for node in gang.nodes
    ]
    header = ("ATTEMPT", "RANK", "MACHINE", "ZONE", "TYPE", "MARKET", "AGENT", "ENDED", "LOG BYTES", "ADDRESS")
    if rows:
        lines.append(format_table(header, rows, frozenset({"RANK", "LOG BYTES"}), {}, screen))
    runs = [(gang.attempt.id, str(policy), _overridden(gang)) for gang in report.gangs if (policy := gang.policy)]
    if runs:
        lines += ["", format_table(("ATTEMPT", "POLICY", "QUOTED"), runs, frozenset(), {}, screen)]
    intervals = [(g.attempt.id, f"{s / 60:,.1f}") for g in report.gangs if (s := g.attempt.checkpoint_seconds)]
    if intervals:
        lines += ["", format_table(("ATTEMPT", "SAVES EVERY MIN"), intervals, frozenset(), {}, screen)]
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


def as_json(report: StatusReport) -> str:
    """Return the report as JSON."""
    return json.dumps(status_document(report), indent=2)


def status_document(report: StatusReport) -> dict[str, object]:
    """Return the report as JSON data; money is exact text."""
    return {
        "schema_version": SCHEMA_VERSION,
        "as_of": format_timestamp(report.now),
        "spent_usd": str(report.spent_usd),
        "gangs": [gang_document(gang) for gang in report.gangs],
    }


def gang_document(gang: GangReport) -> dict[str, object]:
    """Return an attempt and its machines as JSON data."""
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
