"""The audit log: each entry carries the hash of the one before."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from sqlalchemy import insert, select

from pricing.money import Usd
from router.state.canonical_form import canonical_json, storable_text
from router.state.database import Database
from router.state.hash_chain import BEGINNING, with_hash
from router.state.records import AuditEntry
from router.state.rows import read_records, record_values
from router.state.tables import AUDIT_LOG


class AuditLog:
    """The audit log of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, who: str, what: str, digest: str, usd: Usd, at: datetime, **details: object) -> AuditEntry:
        """Append an entry and return it as stored. TypeError or ValueError for what cannot be stored."""
        if at.utcoffset() is None:
            raise ValueError(f"{at} has no time zone")
        stored_details = json.loads(canonical_json(details))
        last = select(AUDIT_LOG.c.seq, AUDIT_LOG.c.hash).order_by(AUDIT_LOG.c.seq.desc()).limit(1)
        with self._database.write(AUDIT_LOG.name) as connection:
            seq, previous = connection.execute(last).one_or_none() or (0, BEGINNING)
            words = (storable_text(who), storable_text(what), storable_text(digest))
            entry = with_hash(AuditEntry(seq + 1, at.astimezone(UTC), *words, usd, stored_details, previous, ""))
            connection.execute(insert(AUDIT_LOG), record_values(entry))
            return entry

    def entries(self) -> tuple[AuditEntry, ...]:
        """Return all entries, in order."""
        with self._database.read() as connection:
            return tuple(read_records(connection, AUDIT_LOG, select(AUDIT_LOG).order_by(AUDIT_LOG.c.seq), AuditEntry))
