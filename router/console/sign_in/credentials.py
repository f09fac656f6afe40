"""Read and write the credentials of requests: bearer tokens, session cookies, CSRF tokens. No state is read here."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

SESSION_COOKIE = "stepfare_session"
SIGN_IN_COOKIE = "stepfare_sign_in"
CSRF_FIELD = "csrf_token"
CSRF_HEADER = "X-CSRF-Token"
_LONGEST_NEXT = 2000
# Printable ASCII without a backslash, which browsers read as a slash.
_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")


def bearer_token(request: Request) -> str | None:
    """Return the token of an Authorization header, "" for one that is no bearer token, None without the header."""
    header = request.headers.get("Authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def cookie_name(name: str, *, secure: bool) -> str:
    """Return the name of a cookie; over https browsers let only this host, over https, set one with that prefix."""
    return f"__Host-{name}" if secure else name


def set_cookie(
    response: Response, name: str, value: str, *, secure: bool, seconds: int, across_sites: bool = False
) -> None:
    """Set a cookie that scripts cannot read; ``across_sites`` sends it when another site leads back here."""
    response.set_cookie(
        cookie_name(name, secure=secure),
        value,
        max_age=seconds,
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax" if across_sites else "strict",
    )


def drop_cookie(response: Response, name: str, *, secure: bool) -> None:
    """Tell the browser to forget a cookie."""
    response.delete_cookie(cookie_name(name, secure=secure), path="/", secure=secure, httponly=True, samesite="strict")


def derive_value(secret: str, purpose: str) -> str:
    """Return a value that only who has the secret can tell; it says nothing of the secret or of other purposes."""
    digest = hmac.new(secret.encode("utf-8", "surrogatepass"), purpose.encode(), hashlib.sha256).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def csrf_token_of(session: str) -> str:
    """Return the token that forms of this session carry."""
    return derive_value(session, "csrf")


def is_equal(given: str, expected: str) -> bool:
    """Compare secrets in a time that does not tell how much of them is equal."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8", "surrogatepass"))


def local_path(url: str) -> str:
    """Return a path of this server to go to after signing in: that of ``url``, or / where it leads elsewhere."""
    if len(url) > _LONGEST_NEXT or not _PATH.fullmatch(url):
        return "/"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "/"
    return "/" if parts.scheme or parts.netloc or parts.path.startswith(("/login", "/logout")) else url
