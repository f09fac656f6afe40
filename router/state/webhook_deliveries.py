"""The outbox of webhooks: what is to be delivered where, what was delivered, and what was given up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Index, delete, func, select, update

from router.state.periods import LEDGER_PERIODS
from router.state.rows import StatePart, in_batches, insert_if_absent, insert_or_update, record_values
from router.state.tables import AUDIT_LOG, FACTS, JOURNAL, record_table

KEPT = timedelta(days=30)
_CURSOR = "webhooks cursor"
_MAX_MESSAGE = 300


class DeliveryState(StrEnum):
    """The state of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """An event for one hook. ``at`` is when it happened, ``next_at`` when it is tried next."""

    id: str
    event: str
    hook: str
    payload: str
    state: DeliveryState = field(default=DeliveryState.PENDING, kw_only=True)
    tries: int = field(default=0, kw_only=True)
    at: datetime
    next_at: datetime
    message: str = ""


WEBHOOK_DELIVERIES = record_table(
    "webhook_deliveries",
    WebhookDelivery,
    Index("webhook_deliveries_by_next_at", "state", "next_at"),
    key=("id",),
)


@dataclass(frozen=True, slots=True)
class StateHeads:
    """The numbers of the last entries of the lists that events are derived from."""

    audit: int
    journal: int
    periods: int


class WebhookDeliveries(StatePart):
    """The deliveries of a database."""

    def cursor(self) -> str | None:
        """Return up to where events were derived, as :meth:`put` stored it; None before the first time."""
        return self._first_text(select(FACTS.c.value).where(FACTS.c.name == _CURSOR))

    def heads(self) -> StateHeads:
        """Return the numbers of the last entries; each list gets its numbers in the order of its commits."""
        tables = (AUDIT_LOG, JOURNAL, LEDGER_PERIODS)
        with self._database.snapshot() as connection:
            last = (connection.execute(select(func.coalesce(func.max(t.c.seq), 0))).scalar_one() for t in tables)
            return StateHeads(*map(int, last))

    def new_ids(self, ids: Iterable[str]) -> set[str]:
        """Return those of some ids that no delivery has."""
        new, column = set(ids), WEBHOOK_DELIVERIES.c.id
        with self._database.read() as connection:
            for part in in_batches(new):
                new.difference_update(connection.execute(select(column).where(column.in_(part))).scalars())
        return new

    def put(self, deliveries: Iterable[WebhookDelivery], cursor: str) -> int:
        """Add deliveries that are not there, move the cursor, both or neither; return how many were new."""
        with self._database.write() as connection:
            added = sum(insert_if_absent(connection, WEBHOOK_DELIVERIES, record_values(each)) for each in deliveries)
            insert_or_update(connection, FACTS, [{"name": _CURSOR, "value": cursor}], replacing=["value"])
            return added

    def due(self, now: datetime, count: int = 100) -> tuple[WebhookDelivery, ...]:
        """Return deliveries to try now, in the order of their events."""
        table = WEBHOOK_DELIVERIES
        query = select(table).where(table.c.state == DeliveryState.PENDING, table.c.next_at <= now)
        return self._records(table, query.order_by(table.c.at, table.c.id).limit(count), WebhookDelivery)

    def delivered(self, delivery_id: str, now: datetime) -> None:
        """Note that a delivery was taken."""
        self._change(delivery_id, state=DeliveryState.DELIVERED, next_at=now, message="")

    def failed(self, delivery_id: str, message: str, next_at: datetime) -> None:
        """Note why a delivery was not taken, and when it is tried again."""
        self._change(delivery_id, next_at=next_at, message=message[:_MAX_MESSAGE])

    def give_up(self, delivery_id: str, message: str, now: datetime) -> None:
        """Note that a delivery is not tried any more."""
        self._change(delivery_id, state=DeliveryState.DEAD, next_at=now, message=message[:_MAX_MESSAGE])

    def begin(self, delivery_id: str) -> None:
        """Count a try, before it is made."""
        self._change(delivery_id, tries=WEBHOOK_DELIVERIES.c.tries + 1)

    def postpone(self, hook: str, until: datetime) -> None:
        """Try nothing of a hook before a moment, so that its events stay in their order."""
        table = WEBHOOK_DELIVERIES
        later = update(table).where(
            table.c.hook == hook, table.c.state == DeliveryState.PENDING, table.c.next_at < until
        )
        self._write(later.values(next_at=until))

    def all(self, count: int = 200) -> tuple[WebhookDelivery, ...]:
        """Return deliveries, the newest events first."""
        query = select(WEBHOOK_DELIVERIES).order_by(WEBHOOK_DELIVERIES.c.at.desc(), WEBHOOK_DELIVERIES.c.id)
        return self._records(WEBHOOK_DELIVERIES, query.limit(count), WebhookDelivery)

    def prune(self, now: datetime) -> int:
        """Delete what was delivered or given up more than :data:`KEPT` ago, and return how many."""
        table = WEBHOOK_DELIVERIES
        old = delete(table).where(table.c.state != DeliveryState.PENDING, table.c.next_at < now - KEPT)
        return self._write(old)

    def _change(self, delivery_id: str, **values: object) -> None:
        self._write(update(WEBHOOK_DELIVERIES).where(WEBHOOK_DELIVERIES.c.id == delivery_id).values(**values))
