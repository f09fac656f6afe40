"""The audit log, its hash chain verified, for those who may read it for all teams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.state.audit import BEGINNING, verify_chain
from router.state.records import AuditEntry

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A choice of entries: parts of the names of actor and action, and the beginning of a plan's digest; "" is any."""

    who: str = ""
    what: str = ""
    plan: str = ""

    @property
    def is_filtered(self) -> bool:
        """Return whether some entries may be left out."""
        return bool(self.who or self.what or self.plan)

    def admits(self, entry: AuditEntry) -> bool:
        """Return whether an entry is shown; who is also looked for in the name of an approver."""
        names = (entry.who, str(entry.details.get("by", "")))
        return (
            (not self.who or any(self.who.lower() in name.lower() for name in names))
            and (not self.what or self.what.lower() in entry.what.lower())
            and (not self.plan or entry.digest.startswith(self.plan.removeprefix("plan-")))
        )


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """Entries of the audit log; ``broken`` is the first one of the whole log that is not what was written.

    ``count`` is the length of the whole log and ``last_hash`` the hash of its last entry.
    """

    entries: tuple[AuditEntry, ...]
    count: int
    last_hash: str
    broken: int | None


def read_audit_log(context: QueryContext, audit_filter: AuditFilter | None = None) -> AuditTrail:
    """Return the entries that fit the filter, in order; the chain of the whole log is verified each time."""
    context.identity.require_for_all(Permission.READ_AUDIT)
    entries = context.store.audit.entries()
    fitting = entries if audit_filter is None else tuple(entry for entry in entries if audit_filter.admits(entry))
    last_hash = entries[-1].hash if entries else BEGINNING
    return AuditTrail(fitting, len(entries), last_hash, verify_chain(entries))


def audit_content(trail: AuditTrail) -> dict[str, Any]:
    """Return the entries as plain data, as ``stepfare audit -o json`` prints them."""
    rows = [{**asdict(entry), "at": entry.at.isoformat(), "usd": str(entry.usd)} for entry in trail.entries]
    return {"schema_version": SCHEMA_VERSION, "entries": rows}


def accepted_policies(details: Mapping[str, object]) -> str:
    """Return the names of the accepted policies, followed in brackets by the quoted policies they replaced."""

    def names(key: str) -> list[str]:
        policies = details.get(key)
        return sorted({str(policy["name"]) for policy in policies.values()}) if isinstance(policies, dict) else []

    overridden = names("overridden_policies")
    return ", ".join(names("policies")) + (f" (quoted: {', '.join(overridden)})" if overridden else "")
