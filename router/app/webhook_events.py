"""Derive the events that programs are told of from what the state records.

Commands, the controller and the console write the audit log, the journal, plans and closings as they do anyway; events
follow from these by a cursor. So an event is neither lost nor invented when a process is killed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from router.controller.accept.accept import APPLY
from router.controller.accept.approval import APPROVE
from router.deploy.console_settings import WebhookEvent
from router.state.store import StateStore
from router.state.webhook_deliveries import StateHeads

# Plans have no numbers; those of the last minutes are looked at again, since clocks of machines differ.
OVERLAP = timedelta(minutes=10)
_INTERRUPTED = ("interrupted", "lost")
_RELEASES = ("releasing", "released")
_PLANS_READ = 400


@dataclass(frozen=True, slots=True)
class WebhookCursor:
    """Up to where events were derived."""

    heads: StateHeads
    plans: datetime

    @classmethod
    def parse(cls, text: str) -> WebhookCursor:
        """Return the cursor of :meth:`text`."""
        content = json.loads(text)
        plans = datetime.fromisoformat(content.pop("plans"))
        return cls(StateHeads(**content), plans)

    def text(self) -> str:
        """Return the cursor as it is stored."""
        return json.dumps({**asdict(self.heads), "plans": self.plans.isoformat()})


@dataclass(frozen=True, slots=True)
class StateEvent:
    """Something that happened. ``key`` distinguishes it among events of its kind, whenever it is derived."""

    kind: WebhookEvent
    key: str
    at: datetime
    data: Mapping[str, Any]

    def delivery_id(self, hook: str) -> str:
        """Return the identity of its delivery to a hook, the same whenever it is derived."""
        return hashlib.sha256(f"{self.kind.value}\n{self.key}\n{hook}".encode()).hexdigest()[:32]

    def payload(self) -> str:
        """Return the body that is sent."""
        content = {"type": self.kind.value, "timestamp": _stamp(self.at), "data": dict(self.data)}
        return json.dumps(content, sort_keys=True, ensure_ascii=False)


def events_since(
    store: StateStore, cursor: WebhookCursor, now: datetime
) -> tuple[tuple[StateEvent, ...], WebhookCursor]:
    """Return the events after the cursor, in order of their moments, and the cursor after them."""
    heads, before = store.webhooks.heads(), cursor.heads
    events = [
        *(_audit_events(store, before.audit, heads.audit) if heads.audit > before.audit else ()),
        *(_interruptions(store, before.journal) if heads.journal > before.journal else ()),
        *(_closings(store, before.periods, heads.periods) if heads.periods > before.periods else ()),
        *_plans(store, cursor.plans - OVERLAP),
    ]
    return tuple(sorted(events, key=lambda event: (event.at, event.kind, event.key))), WebhookCursor(heads, now)


def _audit_events(store: StateStore, after: int, upto: int) -> Iterator[StateEvent]:
    kinds = {APPROVE: WebhookEvent.PLAN_APPROVED, APPLY: WebhookEvent.PLAN_APPLIED}
    for entry in store.audit.entries(*kinds):
        if after < entry.seq <= upto:
            data = {"digest": entry.digest, "who": entry.who, "at_risk_usd": str(entry.usd)}
            if entry.what == APPROVE:
                data["name"] = str(entry.details.get("by", entry.who))
            yield StateEvent(kinds[entry.what], str(entry.seq), entry.at, data)


def _interruptions(store: StateStore, after: int) -> Iterator[StateEvent]:
    notes = [note for note in store.overview.notes(_RELEASES, after) if note.details.get("reason") in _INTERRUPTED]
    attempts = store.overview.attempts({note.attempt for note in notes})
    for note in notes:
        attempt = attempts.get(note.attempt)
        if attempt is None:
            continue
        copied = {name: getattr(attempt, name) for name in ("job", "team", "plan", "cloud", "region")}
        data = {"attempt": attempt.id, **copied, "reason": str(note.details["reason"])}
        yield StateEvent(WebhookEvent.JOB_INTERRUPTED, attempt.id, note.at, data)


def _closings(store: StateStore, after: int, upto: int) -> Iterator[StateEvent]:
    for number, closing in enumerate(store.periods.closings(), start=1):
        if after < number <= upto:
            data = {"month": str(closing.period), "who": closing.who, "entries": closing.head, "hash": closing.hash}
            yield StateEvent(WebhookEvent.MONTH_CLOSED, str(closing.period), closing.closed_at, data)


def _plans(store: StateStore, since: datetime) -> Iterator[StateEvent]:
    for row in store.made_plans.made_since(since, _PLANS_READ):
        data = {
            "digest": row.digest,
            "name": row.name,
            "as_of": _stamp(row.as_of),
            "made_by": row.made_by,
            "jobs": row.jobs,
            "placed": row.placed,
            "teams": [part.team for part in row.teams],
        }
        yield StateEvent(WebhookEvent.PLAN_MADE, row.digest, row.made_at, data)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
