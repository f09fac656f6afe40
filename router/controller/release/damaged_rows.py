"""Mend the rows of a gang that cannot be read, so that it can be released, metered and closed.

A column that cannot be read takes what the gang's other rows, its run directory, its plan or the journal say; where
none says it, what a new row would have. Messages name table, row and columns, never what they hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Any, Final

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.controller.context import ControllerContext
from router.controller.history.metering import PROVISIONING
from router.state.errors import UNREADABLE_REMEDY, StateError, UnreadableError
from router.state.records import Attempt, JournalEntry, NodeRecord, Phase
from router.state.rows import SalvagedRow
from terraform.render import VALUES

_MENDED: Final = "rows mended"
RELEASED: Final = "released"
_Facts = dict[str, Any]


def mend_gang(site: ControllerContext, attempt: str) -> Attempt:
    """Mend the unreadable columns of the attempt and its machines, and return the attempt.

    UnreadableError where a row lacks what nothing else says: only a backup has it. StateError.
    """
    row, machines = site.store.attempts.salvage(attempt)
    if not row.unreadable and not any(machine.unreadable for machine in machines):
        readable = site.store.attempts.get(attempt)
        assert readable is not None
        return readable
    journal = site.store.journal.entries(attempt, skipped=[])
    workspace = _read_workspace(site, attempt)
    line = _plan_line(site, row, workspace)
    changes = _replacements(row, _attempt_facts(site, row, machines, journal, workspace, line))
    known = {**row.values, **changes}
    of_nodes = {
        int(machine.key[1]): _replacements(machine, _node_facts(machine, machines, known, workspace, line))
        for machine in machines
        if machine.unreadable
    }
    mended = site.store.attempts.mend(attempt, changes, of_nodes)
    site.store.journal.note(
        attempt,
        _MENDED,
        site.clock(),
        attempt=sorted(changes),
        machines={str(rank): sorted(values) for rank, values in of_nodes.items()},
    )
    for damaged in (row, *machines):
        if damaged.unreadable:
            error = UnreadableError(damaged.table, damaged.key)
            names = ", ".join(damaged.unreadable)
            site.tell(mended.job, f"{error} ({names}); it is settled by what else is known ({UNREADABLE_REMEDY})")
    return mended


def _replacements(row: SalvagedRow, facts: Mapping[str, Any]) -> _Facts:
    missing = [name for name in row.unreadable if name not in facts]
    if missing:
        raise UnreadableError(row.table, row.key)
    return {name: facts[name] for name in row.unreadable}


def _attempt_facts(
    site: ControllerContext,
    row: SalvagedRow,
    machines: Sequence[SalvagedRow],
    journal: Sequence[JournalEntry],
    workspace: Mapping[str, Any],
    line: Mapping[str, Any],
) -> _Facts:
    tags = workspace.get("tags", {})
    began = _first((row.values.get("created_at"), *(note.at for note in journal))) or site.clock()
    made = [machine.values.get("made_at") for machine in machines]
    made += [note.at for note in journal if note.what == PROVISIONING]
    released = [note.at for note in journal if note.what == RELEASED]
    rates = [machine.values.get("usd_per_hour", UsdPerHour(0)) for machine in machines]
    facts: _Facts = {
        **_defaults(Attempt),
        "plan": tags.get("stepfare_plan", ""),
        "job": tags.get("stepfare_job", row.key[0]),
        "job_digest": "",
        "gang": str(line.get("gang", "")),
        "start": began,
        "end": began,
        "choice": 0,
        "number": 1,
        "machines": len(machines),
        "engine": "command",
        "team": tags.get("team", ""),
        "project": tags.get("project"),
        "cost_center": tags.get("cost_center"),
        "usd_per_hour": UsdPerHour(sum(rate.nanos for rate in rates)),
        "max_usd_per_hour": UsdPerHour(sum(rate.nanos for rate in rates)),
        "at_risk_usd": Usd(0),
        "directory": row.key[0],
        "token_hash": "",  # nobody presents a token of which this is the hash
        "created_at": began,
        # What is settled is in the ledger; else there may be machines.
        "phase": Phase.FAILED if released else Phase.RELEASING,
        "made_at": _first(made) or began,
        "gone_at": released[-1] if released else None,
        "reason": "stopped",
    }
    places = {name: value for name in ("cloud", "region") if (value := line.get(name) or workspace.get(name))}
    return facts | places


def _node_facts(
    row: SalvagedRow,
    machines: Sequence[SalvagedRow],
    attempt: Mapping[str, Any],
    workspace: Mapping[str, Any],
    line: Mapping[str, Any],
) -> _Facts:
    """Return what is known of a machine: from the others of its gang, which are alike, its directory, and its plan."""
    rank, gang = int(row.key[1]), len(machines) or 1
    each = UsdPerHour(attempt["usd_per_hour"].nanos // gang)
    listed: Mapping[str, Any] = next((node for node in workspace.get("nodes", ()) if node.get("rank") == rank), {})
    facts: _Facts = {
        **_defaults(NodeRecord),
        "name": f"{row.key[0]}-{rank}",
        "market": Market.ON_DEMAND,
        "accelerators": 0,
        "instance_type": "",
        "accelerator": "",
        "zone": None,
        "usd_per_hour": each,
        "max_usd_per_hour": each,
        "made_at": attempt.get("made_at"),
    }
    for said in (line, listed):
        facts |= {name: said[name] for name in ("zone", "instance_type", "accelerator", "accelerators") if name in said}
        if said.get("market") in tuple(Market):
            facts["market"] = Market(said["market"])
    alike = ("market", "accelerator", "accelerators", "instance_type", "usd_per_hour", "max_usd_per_hour")
    for other in machines:
        same = {
            name: other.values[name] for name in (*alike, "on_demand_usd_per_hour", "made_at") if other.values.get(name)
        }
        if other.key != row.key:
            return facts | same
    return facts


def _defaults(kind: type[Attempt | NodeRecord]) -> _Facts:
    return {field.name: field.default for field in fields(kind) if field.default is not MISSING}


def _first(moments: Iterable[datetime | None]) -> datetime | None:
    return min((each for each in moments if each is not None), default=None)


def _read_workspace(site: ControllerContext, attempt: str) -> Mapping[str, Any]:
    """Return the values that Terraform was given in the run directory; nothing where they cannot be read."""
    try:
        content = json.loads((site.directory(attempt) / VALUES).read_text(encoding="utf-8"))
        return content if isinstance(content, dict) and isinstance(content.get("tags"), dict) else {}
    except (OSError, ValueError):
        return {}


def _plan_line(site: ControllerContext, row: SalvagedRow, workspace: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the line of the plan for the attempt's first place; nothing where plan or job cannot be read."""
    job = row.values.get("job", workspace.get("tags", {}).get("stepfare_job"))
    try:
        text = site.store.plans.plan(row.values.get("plan", ""))
        lines = [] if text is None else json.loads(text)["lines"]
        return next((line for line in lines if line["job"] == job), {})
    except (StateError, ValueError, KeyError, TypeError):
        return {}
