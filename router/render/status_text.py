"""Status of gangs as a table, a wide table and JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from router.controller.report.report import GangReport, StatusReport
from router.jobs.standstill import StandstillFinding
from router.render.record_table import SCHEMA_VERSION, RecordTable, TableColumn, attribute_columns, json_document
from router.render.tables import PLAIN, Screen, format_timestamp, format_usd, wrap_text
from router.state.records import NodeRecord


def as_table(report: StatusReport, screen: Screen = PLAIN) -> str:
    """Return one row per gang, messages of attempts, and what was spent."""
    if not report.gangs:
        return "nothing was made yet: see `stepfare apply --help`"
    lines = [_GANGS.text(report.gangs, screen), ""]
    attempts = (gang.attempt for gang in report.gangs if gang.attempt.message not in ("", gang.attempt.reason))
    lines += [wrap_text(f"{a.id}: {a.reason}: {a.message}") for a in attempts]
    lines += [wrap_text(f"{gang.attempt.id}: {text}") for gang in report.gangs for text in gang.warnings]
    remark = "; reserved machines without a stated price are in no sum" if any(g.unpriced for g in report.gangs) else ""
    lines.append(f"spent {format_usd(report.spent_usd)} as of {format_timestamp(report.now)}{remark}")
    return "\n".join(lines)


def as_wide(report: StatusReport, screen: Screen = PLAIN) -> str:
    """Return the table with all machines, policies and checkpoint intervals."""
    nodes = [node for gang in report.gangs for node in gang.nodes]
    lines = [as_table(report, screen), "", *([_NODES.text(nodes, screen, wide=True)] if nodes else [])]
    run = [gang for gang in report.gangs if gang.policy]
    lines += ["", _POLICIES.text(run, screen, wide=True)] if run else []
    saving = [gang for gang in report.gangs if gang.attempt.checkpoint_seconds]
    lines += ["", _INTERVALS.text(saving, screen, wide=True)] if saving else []
    return "\n".join(lines)


def as_json(report: StatusReport) -> str:
    """Return the report as JSON."""
    return json_document(status_document(report))


def status_document(report: StatusReport) -> dict[str, object]:
    """Return the report as JSON data; money is exact text."""
    return {
        "schema_version": SCHEMA_VERSION,
        "as_of": format_timestamp(report.now),
        "spent_usd": str(report.spent_usd),
        "gangs": _GANGS.records(report.gangs),
    }


def gang_document(gang: GangReport) -> dict[str, object]:
    """Return an attempt and its machines as JSON data."""
    return _GANGS.record(gang)


def _priced(take: Callable[[GangReport], object]) -> Callable[[GangReport], object]:
    return lambda gang: None if gang.unpriced else take(gang)


def _standstill_record(finding: StandstillFinding) -> dict[str, object]:
    return {
        "step": finding.step,
        "minutes": round(finding.lasts / timedelta(minutes=1), 1),
        "limit_minutes": round(finding.limit / timedelta(minutes=1), 1),
        "certain": finding.is_certain,
        "says": finding.text,
    }


def _all_reduce_record(details: Mapping[str, object]) -> dict[str, object]:
    return {name: details.get(name) for name in ("gb_per_s", "assumed_gb_per_s", "found")}


_NODES: RecordTable[NodeRecord] = RecordTable(
    (
        TableColumn("", lambda node: node.attempt, "ATTEMPT"),
        TableColumn("rank", lambda node: node.rank, "RANK", right=True),
        TableColumn("machine", lambda node: node.machine_id, "MACHINE"),
        TableColumn("zone", lambda node: node.zone, "ZONE"),
        TableColumn("instance_type", lambda node: node.instance_type, "TYPE"),
        TableColumn("market", lambda node: node.market.value, "MARKET"),
        TableColumn("address", lambda node: node.address),
        TableColumn("agent", lambda node: node.agent),
        TableColumn("", lambda node: node.agent or None, "AGENT", unknown="-"),
        TableColumn("ended", lambda node: node.ended_reason, "ENDED"),
        *attribute_columns("exit_code", "heard_at"),
        TableColumn("log_bytes", lambda node: node.log_offset, "LOG BYTES", "{:,}".format, right=True),
        *attribute_columns("step", "saved_step"),
        TableColumn("", lambda node: node.address, "ADDRESS"),
    )
)

_POLICIES: RecordTable[GangReport] = RecordTable(
    (
        TableColumn("", lambda gang: gang.attempt.id, "ATTEMPT"),
        TableColumn("", lambda gang: gang.policy, "POLICY"),
        TableColumn("", lambda gang: gang.quoted_policy, "QUOTED"),
    )
)
_INTERVALS: RecordTable[GangReport] = RecordTable(
    (
        TableColumn("", lambda gang: gang.attempt.id, "ATTEMPT"),
        TableColumn("", lambda g: g.attempt.checkpoint_seconds, "SAVES EVERY MIN", lambda s: f"{s / 60:,.1f}"),
    )
)
_GANGS: RecordTable[GangReport] = RecordTable(
    (
        TableColumn("attempt", lambda gang: gang.attempt.id),
        TableColumn("job", lambda gang: gang.attempt.job, "JOB", width=18),
        TableColumn("", lambda gang: gang.state, "STATE"),
        TableColumn("", lambda gang: f"{gang.attempt.cloud}/{gang.attempt.region}", "PLACE", width=22),
        TableColumn("", lambda gang: f"{gang.calling}/{gang.attempt.machines}", "RANKS", right=True),
        TableColumn("", lambda gang: gang.quiet, "QUIET", lambda quiet: f"{quiet.total_seconds():.0f}s", right=True),
        TableColumn("", lambda gang: gang.step, "STEP", "{:,}".format, right=True),
        TableColumn("", lambda gang: gang.saved_step, "SAVED", "{:,}".format, right=True),
        *attribute_columns("plan", "gang", "number", "choice", of="attempt"),
        TableColumn("state", lambda gang: gang.attempt.phase.value),
        TableColumn("waits", lambda gang: gang.waits),
        *attribute_columns("result", "reason", "message", of="attempt"),
        TableColumn("policy", lambda gang: gang.policy, plain=lambda policy: policy.content),
        TableColumn("quoted_policy", lambda gang: gang.quoted_policy, plain=lambda policy: policy.content),
        *attribute_columns("resumes", "first_step", "checkpoint_seconds", "last_step", "kept_step", of="attempt"),
        *attribute_columns("team", "cloud", "region", "machines", "usd_per_hour", "max_usd_per_hour", of="attempt"),
        *attribute_columns("spent_usd", "unpriced", "planned_end"),
        TableColumn("late", lambda gang: gang.is_late),
        TableColumn("agreed_usd", lambda gang: gang.order.agreed_usd),
        TableColumn("order_spent_usd", lambda gang: gang.order.spent_usd),
        TableColumn("over_agreed", lambda gang: gang.order.is_over),
        TableColumn("standstill", lambda gang: gang.standstill, plain=_standstill_record),
        TableColumn("all_reduce", lambda gang: gang.all_reduce, plain=_all_reduce_record),
        *attribute_columns("created_at", "made_at", "met_at", "gone_at", of="attempt"),
        TableColumn("nodes", lambda gang: gang.nodes, plain=_NODES.records),
        TableColumn(
            "",
            _priced(lambda g: g.attempt.usd_per_hour.dollars()),
            "$/H",
            "{:.2f}".format,
            right=True,
            unknown="unknown",
        ),
        TableColumn("", _priced(lambda g: g.spent_usd), "SPENT", format_usd, right=True, unknown="unknown"),
        TableColumn(
            "", lambda g: g.order.agreed_usd if g.order.agreed_usd.nanos else None, "AGREED", format_usd, right=True
        ),
        TableColumn("", lambda gang: gang.planned_end, "PLANNED END", lambda end: f"{end:%m-%d %H:%MZ}"),
        TableColumn("", lambda gang: gang.attempt.id, "ATTEMPT"),
    )
)
