"""Find the events of gangs that people are told about, and render them as messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pricing.places import Market
from router.agent import protocol
from router.controller.history.heartbeats import group_by_attempt
from router.controller.history.lifecycle import GAVE_UP
from router.controller.history.metering import cost_so_far
from router.deploy.notify_settings import EventKind
from router.state.records import Attempt, JournalEntry, NodeRecord, NoticeRecord, Phase

# The share of a gang's permitted cost at which people are warned, in percent.
BUDGET_PERCENT = 90


class EventLevel(StrEnum):
    """The severity of an event."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class GangEvent:
    """Something that people may want to hear of, reported once for each ``attempt`` and ``what``.

    Of a plan ``attempt`` is ``plan-`` and the beginning of its digest, and ``job`` its name.
    """

    attempt: str
    job: str
    what: EventKind
    level: EventLevel
    text: str

    @property
    def key(self) -> tuple[str, str]:
        return self.attempt, self.what.value


_FAILED = ("failed", "credentials", "job", "here", "given_up")
_INTERRUPTED = ("interrupted", "lost")
_LEVELS = {
    EventKind.FAILED: EventLevel.ERROR,
    EventKind.INTERRUPTED: EventLevel.WARNING,
    EventKind.MOVED: EventLevel.INFO,
    EventKind.STANDSTILL: EventLevel.WARNING,
    EventKind.LATE: EventLevel.WARNING,
    EventKind.BUDGET: EventLevel.WARNING,
    EventKind.UNHEALTHY: EventLevel.WARNING,
}


def find_events(
    attempts: Iterable[Attempt],
    nodes: Mapping[str, Sequence[NodeRecord]],
    notices: Iterable[NoticeRecord],
    notes: Iterable[JournalEntry],
    now: datetime,
) -> tuple[GangEvent, ...]:
    """Return all events that are true now, reported before or not, in the order of ``attempts``.

    ``attempts``: those alive and those that ended recently. ``nodes``: the machines of those alive, by attempt.
    ``notices`` and ``notes`` are recent ones: the journal's note that a job is given up comes before the attempt says
    so.
    """
    by_id = {attempt.id: attempt for attempt in attempts}
    notices_by_attempt = group_by_attempt(notices)
    gave_up = {note.attempt: str(note.details.get("why") or "") for note in notes if note.what == GAVE_UP}
    stood_still = {note.attempt: str(note.details.get("why")) for note in notes if note.what == protocol.STANDSTILL}
    events: list[GangEvent] = []
    for attempt in by_id.values():
        attempt_notices = notices_by_attempt.get(attempt.id, [])
        texts = {
            EventKind.INTERRUPTED: _interrupted(attempt, attempt_notices),
            EventKind.UNHEALTHY: _unhealthy(attempt, attempt_notices),
            EventKind.MOVED: _moved(attempt, by_id.get(attempt.resumes)),
            EventKind.FAILED: _failed(attempt, gave_up),
            EventKind.STANDSTILL: stood_still.get(attempt.id, ""),
            EventKind.LATE: _late(attempt, now),
            EventKind.BUDGET: _budget(attempt, nodes.get(attempt.id, ()), now),
        }
        events += [
            GangEvent(attempt.id, attempt.job, what, _LEVELS[what], f"{attempt.job} ({attempt.id}) {text}")
            for what, text in texts.items()
            if text
        ]
    return tuple(events)


def render_message(events: Sequence[GangEvent], max_events: int) -> tuple[str, str, EventLevel]:
    """Return (title, text, level) of one message about one or more events; it names at most ``max_events`` of them."""
    level = max((event.level for event in events), key=list(EventLevel).index)
    jobs = sorted({event.job for event in events})
    if len(events) == 1:
        return f"stepfare: {jobs[0]}: {events[0].what.value}", events[0].text, level
    whose = f"{jobs[0]}: " if len(jobs) == 1 else ""
    return f"stepfare: {whose}{len(events)} events", "\n".join(_lines(events, max_events)), level


def _lines(events: Sequence[GangEvent], max_events: int) -> Iterator[str]:
    # The worst events are named first, so that they are never the ones left out.
    ranked = sorted(events, key=lambda event: -list(EventLevel).index(event.level))
    yield from (f"- {event.text}" for event in ranked[:max_events])
    if len(events) > max_events:
        yield f"- and {len(events) - max_events} more; see `stepfare status`"


def _ended_for(attempt: Attempt, reasons: Sequence[str]) -> bool:
    return attempt.reason in reasons and (attempt.phase is Phase.RELEASING or attempt.phase.is_over)


def _interrupted(attempt: Attempt, notices: Sequence[NoticeRecord]) -> str:
    where = f"in {_region_text(attempt)}"
    for notice in notices:
        if notice.kind == protocol.INTERRUPTION and attempt.reason != "finished":
            left = "" if notice.seconds is None else f" in {notice.seconds:.0f} s"
            return f"is interrupted {where}: the machine of rank {notice.rank} is preempted{left}"
    return f"was interrupted {where}: {attempt.message or attempt.reason}" if _ended_for(attempt, _INTERRUPTED) else ""


def _unhealthy(attempt: Attempt, notices: Sequence[NoticeRecord]) -> str:
    for notice in notices:
        if notice.kind == protocol.HEALTH:
            return f"has an unhealthy machine, rank {notice.rank} in {_region_text(attempt)}: {notice.what}"
    if not _ended_for(attempt, ("unhealthy",)):
        return ""
    return f"left unhealthy machines in {_region_text(attempt)}: {attempt.message}"


def _moved(attempt: Attempt, before: Attempt | None) -> str:
    if not attempt.resumes or attempt.phase not in (Phase.RESUMING, Phase.RUNNING):
        return ""
    lost = ""
    if before is not None and before.last_step is not None and before.kept_step is not None:
        lost = f"; {before.last_step - before.kept_step} steps were lost"
    where = _region_text(attempt)
    return f"resumed in {where} after step {attempt.first_step}, at {attempt.usd_per_hour} USD an hour{lost}"


def _failed(attempt: Attempt, gave_up: Mapping[str, str]) -> str:
    if attempt.id in gave_up:
        return f"is given up: {gave_up[attempt.id] or attempt.message or attempt.reason}; see `stepfare status`"
    if not _ended_for(attempt, _FAILED):
        return ""
    return f"failed: {attempt.message or attempt.reason}; see `stepfare logs {attempt.job}`"


def _late(attempt: Attempt, now: datetime) -> str:
    if attempt.phase.is_over or attempt.phase is Phase.RELEASING or now <= attempt.end:
        return ""
    return f"runs past its planned end, {attempt.end:%Y-%m-%d %H:%M} UTC, and costs {attempt.usd_per_hour} USD an hour"


def _budget(attempt: Attempt, nodes: Sequence[NodeRecord], now: datetime) -> str:
    # Reserved machines are paid for already and need no agreement.
    cost = cost_so_far([node for node in nodes if node.market is not Market.RESERVED], now)
    limit = attempt.at_risk_usd
    if attempt.phase.is_over or limit.nanos <= 0 or 100 * cost.nanos < BUDGET_PERCENT * limit.nanos:
        return ""
    return f"has cost {cost.dollars():.2f} USD of the {limit.dollars():.2f} USD that were agreed to"


def _region_text(attempt: Attempt) -> str:
    return f"{attempt.cloud} {attempt.region}".rstrip()
