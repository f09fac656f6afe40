"""The first answers to requests with a key, given again when a request is repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import delete, select, update

from router.state.canonical_form import canonical_json
from router.state.database import Database
from router.state.rows import insert_if_absent
from router.state.tables import IDEMPOTENCY_KEYS

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


class IdempotencyKeys:
    """The keys of a database, each of one subject."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, subject: str, key: str, request_digest: str, now: datetime) -> tuple[KeyState, StoredAnswer | None]:
        """Return what is known of a key, with the answer where there is one; a new one is then under way.

        Of requests that come at the same moment one is new.
        """
        table = IDEMPOTENCY_KEYS
        row = {
            "subject": subject,
            "key": key,
            "request_digest": request_digest,
            "status": None,
            "answer": None,
            "at": now,
        }
        old = (table.c.at < now - KEPT) | (table.c.status.is_(None) & (table.c.at < now - ABANDONED))
        mine = (table.c.subject == subject) & (table.c.key == key)
        with self._database.write() as connection:
            connection.execute(delete(table).where(old))
            # Of two servers the database lets one insert; the other one waits for it, and then sees its row.
            if insert_if_absent(connection, table, row):
                return KeyState.NEW, None
            before = connection.execute(select(table).where(mine)).one_or_none()
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
        self._write(subject, key, answer)

    def release(self, subject: str, key: str) -> None:
        """Forget a key whose request made nothing."""
        self._write(subject, key, None)

    def _write(self, subject: str, key: str, answer: StoredAnswer | None) -> None:
        table = IDEMPOTENCY_KEYS
        mine = (table.c.subject == subject) & (table.c.key == key) & table.c.status.is_(None)
        with self._database.write() as connection:
            if answer is None:
                connection.execute(delete(table).where(mine))
            else:
                text = canonical_json([answer.body, answer.headers])
                connection.execute(update(table).where(mine).values(status=answer.status, answer=text))
