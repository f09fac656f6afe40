"""Tokens, sessions and one-time links of the console, by the hashes of their secrets."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Column, Index, Table, and_, delete, insert, or_, select, update

from router.state.columns import SEQUENCE, enum_column, storable_text
from router.state.errors import MissingError
from router.state.rows import StatePart, read_records, record_values
from router.state.tables import METADATA, moments, texts

# Scanners of secrets find tokens that were committed by this beginning.
SECRET_PREFIX = "stepfare_"
_SECRET_BYTES = 32
# Longer texts are no secrets of ours; they are refused before they are hashed.
LONGEST_SECRET = 128
# Sessions and links that ended so long ago are deleted; tokens stay, for whoever asks who had access.
_KEPT_AFTER_END = timedelta(days=30)


class TokenKind(StrEnum):
    """The kinds of secrets: for programs, for a browser, and to begin one session with."""

    TOKEN = "token"
    SESSION = "session"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to store: whose it is, what it permits, until when; no scopes confine to nothing further.

    ``grants`` and ``scopes`` are as they are written. ``parent`` is the id of the token that a session was signed in
    with, or "".
    """

    kind: TokenKind
    subject: str
    grants: tuple[str, ...]
    expires_at: datetime
    scopes: tuple[str, ...] = ()
    note: str = ""
    parent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken(NewToken):
    """A stored secret by its hash, with who made it and when."""

    id: str
    digest: str
    made_by: str
    made_at: datetime
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether it is neither expired nor revoked."""
        return self.revoked_at is None and now < self.expires_at


def hash_secret(secret: str) -> str:
    """Return the SHA-256 (hex) under which a secret is stored."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def draw_token(new: NewToken, made_by: str, now: datetime) -> tuple[str, AccessToken]:
    """Draw a secret, and return it with the record to store, which says nothing of it but its hash."""
    secret = f"{SECRET_PREFIX}{secrets.token_urlsafe(_SECRET_BYTES)}"
    return secret, AccessToken(
        **record_values(replace(new, subject=storable_text(new.subject), note=storable_text(new.note))),
        id=f"{new.kind.value}-{secrets.token_hex(6)}",
        digest=hash_secret(secret),
        made_by=storable_text(made_by),
        made_at=now,
    )


# Hashes of tokens and sessions, never tokens themselves. ``parent`` is "" where there was none.
ACCESS_TOKENS = Table(
    "access_tokens",
    METADATA,
    *texts("id", primary=True),
    Column("kind", enum_column(TokenKind), nullable=False),
    *texts("digest", "subject", "note"),
    Column("grants", SEQUENCE, nullable=False),
    Column("scopes", SEQUENCE, nullable=False),
    *texts("parent", "made_by"),
    *moments("made_at", "expires_at"),
    *moments("revoked_at", null=True),
    Index("access_tokens_by_digest", "digest", unique=True),
)


class AccessTokens(StatePart):
    """The tokens, sessions and links of a database. Secrets themselves are never stored."""

    def make(self, new: NewToken, made_by: str, now: datetime) -> tuple[str, AccessToken]:
        """Store a new token and return its secret, which nothing keeps, with its record."""
        secret, record = draw_token(new, made_by, now)
        self.put(record)
        return secret, record

    def put(self, record: AccessToken) -> None:
        """Store a new token; sessions and links that ended long ago are deleted."""
        table = ACCESS_TOKENS.c
        ended = and_(table.kind != TokenKind.TOKEN, table.expires_at < record.made_at - _KEPT_AFTER_END)
        with self._database.write() as connection:
            connection.execute(delete(ACCESS_TOKENS).where(ended))
            connection.execute(insert(ACCESS_TOKENS), record_values(record))

    def find(self, secret: str, kind: TokenKind, now: datetime) -> AccessToken | None:
        """Return the valid token of that kind with this secret; None for any other.

        A session is valid as long as the token that it was signed in with is too.
        """
        if not secret or len(secret) > LONGEST_SECRET:
            return None
        digest = hash_secret(secret)
        query = select(ACCESS_TOKENS).where(ACCESS_TOKENS.c.digest == digest)
        with self._database.read() as connection:
            token = next(iter(read_records(connection, ACCESS_TOKENS, query, AccessToken)), None)
            if token is None or not hmac.compare_digest(token.digest, digest):
                return None
            if token.kind is not kind or not token.is_valid(now):
                return None
            if token.parent:
                whose = select(ACCESS_TOKENS).where(ACCESS_TOKENS.c.id == token.parent)
                parents = read_records(connection, ACCESS_TOKENS, whose, AccessToken)
                if not parents or not parents[0].is_valid(now):
                    return None
            return token

    def redeem(self, secret: str, now: datetime) -> AccessToken | None:
        """Return the link with this secret, which ends by that; None where it is not valid, or was redeemed."""
        found = self.find(secret, TokenKind.LINK, now)
        return found if found is not None and self._end(found.id, now) else None

    def revoke(self, token_id: str, now: datetime) -> AccessToken:
        """Revoke a token with its sessions and return its record.

        MissingError where there is none of that id. A repetition changes nothing.
        """
        token_id = storable_text(token_id)
        self._end(token_id, now)
        token = self._first_record(
            ACCESS_TOKENS, select(ACCESS_TOKENS).where(ACCESS_TOKENS.c.id == token_id), AccessToken
        )
        if token is None:
            raise MissingError(f"there is no token {token_id}")
        return token

    def tokens(self) -> tuple[AccessToken, ...]:
        """Return all tokens of programs, valid or not, the latest first; neither sessions nor links."""
        table = ACCESS_TOKENS.c
        query = select(ACCESS_TOKENS).where(table.kind == TokenKind.TOKEN)
        return self._records(ACCESS_TOKENS, query.order_by(table.made_at.desc(), table.id), AccessToken)

    def _end(self, token_id: str, now: datetime) -> bool:
        """Revoke a token and its sessions; return whether something was valid before."""
        table = ACCESS_TOKENS.c
        these = and_(or_(table.id == token_id, table.parent == token_id), table.revoked_at.is_(None))
        return self._write(update(ACCESS_TOKENS).where(these).values(revoked_at=now)) > 0
