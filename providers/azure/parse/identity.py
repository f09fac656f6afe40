"""Parsers of a token's identity and of HTTP dates."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

# Claims of an Entra access token, the most specific first ("Access token claims reference", Microsoft Learn).
_NAMES = ("upn", "unique_name", "preferred_username", "app_displayname", "appid", "oid")
_LONGEST_NAME = 120


def parse_identity(token: str, subscription: str) -> str:
    """Return the account and tenant that the token names, and the subscription; nothing else of the token."""
    claims = _claims(token)
    name = next((claims[key] for key in _NAMES if claims.get(key)), "")
    parts = (name, f"tenant {claims['tid']}" if claims.get("tid") else "", f"subscription {subscription}")
    return ", ".join(filter(None, parts))


def seconds_until(retry_after: str, date_header: str) -> float | None:
    """Return the seconds of a ``Retry-After``.

    It is given in seconds or as a date, which counts from the answer's own ``Date``.
    """
    if retry_after.strip().isdigit():
        return float(retry_after)
    until, since = http_date(retry_after), http_date(date_header)
    return max(0.0, (until - since).total_seconds()) if until and since else None


def http_date(text: str) -> datetime | None:
    """Return the moment in a ``Date`` header, in UTC and whole seconds; None where it cannot be read."""
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _claims(token: str) -> dict[str, str]:
    """Return the texts among the claims; the cloud itself checks the signature."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    if not isinstance(claims, dict):
        return {}
    return {str(k): v for k, v in claims.items() if isinstance(v, str) and len(v) <= _LONGEST_NAME}
