"""The first answers to requests with a key, given again when a request is repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import ColumnElement, Table, delete, select, update

from router.state.columns import canonical_json
from router.state.rows import StatePart, insert_if_absent
from router.state.tables import METADATA, counts, moments, texts

KEPT = timedelta(hours=24)
# A request that is not answered after so long was cut off with its server.
ABANDONED = timedelta(minutes=5)


class KeyState(StrEnum):
    """The record of a key when a request comes with it."""

    NEW = "new"
    ANSWERED = "answered"
    UNDER_WAY = "under_way"
    OTHER_REQUEST = "other_request"


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer: its status, its body, and headers by lower-case name."""

    status: int
    body: str
    headers: dict[str, str]


IDEMPOTENCY_KEYS = Table(
    "idempotency_keys",
    METADATA,
    *texts("subject", "key", primary=True),
    *texts("request_digest"),
    *counts("status", null=True),
    *texts("answer", null=True),
    *moments("at"),
)


class IdempotencyKeys(StatePart):
    """The keys of a database, each of one subject."""

    def begin(self, subject: str, key: str, request_digest: str, now: datetime) -> tuple[KeyState, StoredAnswer | None]:
        """Return what is known of a key, with the answer where there is one; a new one is then under way.

        Of requests that come at the same moment one is new.
        """
        table = IDEMPOTENCY_KEYS
        row = {"subject": subject, "key": key, "request_digest": request_digest, "at": now}
        old = (table.c.at < now - KEPT) | (table.c.status.is_(None) & (table.c.at < now - ABANDONED))
        with self._database.write() as connection:
            connection.execute(delete(table).where(old))
            # Of two servers the database lets one insert; the other one waits for it, and then sees its row.
            if insert_if_absent(connection, table, row):
                return KeyState.NEW, None
            before = connection.execute(select(table).where(_is_key(subject, key))).one_or_none()
        if before is None:
            return KeyState.UNDER_WAY, None
        if before.request_digest != request_digest:
            return KeyState.OTHER_REQUEST, None
        if before.status is None:
            return KeyState.UNDER_WAY, None
        body, headers = json.loads(before.answer)
        return KeyState.ANSWERED, StoredAnswer(before.status, body, headers)

    def answer(self, subject: str, key: str, answer: StoredAnswer) -> None:
        """Store the answer to the request that is under way."""
        text = canonical_json([answer.body, answer.headers])
        self._write(update(IDEMPOTENCY_KEYS).where(_under_way(subject, key)).values(status=answer.status, answer=text))

    def release(self, subject: str, key: str) -> None:
        """Forget a key whose request made nothing."""
        self._write(delete(IDEMPOTENCY_KEYS).where(_under_way(subject, key)))


def _is_key(subject: str, key: str) -> ColumnElement[bool]:
    return (IDEMPOTENCY_KEYS.c.subject == subject) & (IDEMPOTENCY_KEYS.c.key == key)


def _under_way(subject: str, key: str) -> ColumnElement[bool]:
    return _is_key(subject, key) & IDEMPOTENCY_KEYS.c.status.is_(None)
