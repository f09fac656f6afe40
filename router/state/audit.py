"""The audit log, whose entries carry each the hash of the one before, and the administrators of a state."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property

from sqlalchemy import insert, select, text

from pricing.money import Usd
from router.state.columns import canonical_json, storable_text
from router.state.database_url import DatabaseFile
from router.state.errors import StateError
from router.state.records import AuditEntry
from router.state.rows import StatePart, record_values
from router.state.tables import AUDIT_LOG

# The hash before that of the first entry.
BEGINNING = "0" * 64


class AuditLog(StatePart):
    """The audit log of a database."""

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

    def entries(self, *actions: str) -> tuple[AuditEntry, ...]:
        """Return all entries, in order; with names of actions, those alone."""
        query = select(AUDIT_LOG).order_by(AUDIT_LOG.c.seq)
        if actions:
            query = query.where(AUDIT_LOG.c.what.in_(actions))
        return self._records(AUDIT_LOG, query, AuditEntry)


def hash_entry(entry: AuditEntry) -> str:
    """Return the SHA-256 in hex over the entry without its hash, as canonical JSON: keys sorted, no spaces, ASCII."""
    at = entry.at.astimezone(UTC).isoformat(timespec="microseconds")
    content = {**record_values(entry), "at": at, "usd": str(entry.usd)}
    del content["hash"]
    return hashlib.sha256(canonical_json(content).encode("ascii")).hexdigest()


def with_hash(entry: AuditEntry) -> AuditEntry:
    """Return the entry with its hash."""
    return replace(entry, hash=hash_entry(entry))


def verify_chain(entries: Iterable[AuditEntry]) -> int | None:
    """Return the seq of the first entry that is changed or does not follow the one before, or None.

    The entries are the log from its beginning, in order. A missing entry shows at the next one; entries missing at the
    end do not show: compare the last hash with one that was noted elsewhere.
    """
    seq, previous = 0, BEGINNING
    for entry in entries:
        if entry.seq != seq + 1 or entry.previous != previous or entry.hash != hash_entry(entry):
            return entry.seq
        seq, previous = entry.seq, entry.hash
    return None


_IS_OWNER = text("SELECT pg_has_role(session_user, relowner, 'MEMBER') FROM pg_class WHERE oid = to_regclass(:name)")


class Administration(StatePart):
    """The administrators of a state, and the role of its server that this process is."""

    @cached_property
    def session(self) -> Mapping[str, str]:
        """Return the role that is connected, as details of the audit log; nothing for a file."""
        if self._database.is_file:
            return {}
        with self._database.read() as connection:
            return {"database_user": str(connection.execute(text("SELECT session_user")).scalar_one())}

    def problem(self) -> str:
        """Return why the user of this process does not administer the state; "" where they do. StateError."""
        place = self._database.place
        if not isinstance(place, DatabaseFile):
            with self._database.read() as connection:
                is_owner = connection.execute(_IS_OWNER, {"name": AUDIT_LOG.name}).scalar()
            return "" if is_owner else f"{self.session['database_user']} does not own the tables of the {place}"
        if not hasattr(os, "getuid"):
            return ""  # A system without user ids has nothing to tell users apart by.
        try:
            owner = place.path.parent.stat().st_uid
        except OSError as error:
            raise StateError(f"{place.path.parent}: {error.strerror}") from None
        if os.getuid() in (0, owner):
            return ""
        return f"the folder {place.path.parent} belongs to another user"
