"""The chain of hashes through the audit log. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC

from router.state.canonical_form import canonical_json
from router.state.records import AuditEntry

# The hash before that of the first entry.
BEGINNING = "0" * 64


def hash_entry(entry: AuditEntry) -> str:
    """Return the SHA-256 in hex over the entry without its hash, as canonical JSON: keys sorted, no spaces, ASCII."""
    content = {
        "seq": entry.seq,
        "at": entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "who": entry.who,
        "what": entry.what,
        "digest": entry.digest,
        "usd": str(entry.usd),
        "details": entry.details,
        "previous": entry.previous,
    }
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
