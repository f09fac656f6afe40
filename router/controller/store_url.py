"""Validate URLs of checkpoint stores, as the deploy file names them."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from router.checkpoints.arrow_store import S3_WORDS
from router.jobs.fields import RefusedError

SCHEMES = ("s3", "gs", "abfs", "abfss", "file")
_WRITE = "write s3://BUCKET/PREFIX, gs://, abfs(s):// or file:///PATH"


def validate_store_url(value: str) -> str:
    """Return the URL without a slash at its end.

    RefusedError for a value that is no such URL, or holds credentials; it shows nothing of them.
    """
    try:
        parts = urlsplit(value)
    except ValueError:
        raise RefusedError("is no URL", _WRITE) from None
    if parts.scheme not in SCHEMES:
        raise RefusedError("is no place for checkpoints", _WRITE)
    # In Azure's, the container stands before the @.
    if parts.password is not None or (parts.username is not None and not parts.scheme.startswith("abfs")):
        raise RefusedError("holds credentials", "give them in the environment: a URL is shown to people")
    if parts.scheme == "file":
        if parts.netloc or not parts.path.strip("/"):
            raise RefusedError("is no folder of a machine", "write file:///PATH")
    elif not parts.netloc.rpartition("@")[2]:
        raise RefusedError("names no bucket", _WRITE)
    parameters = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if parts.fragment or parameters - (S3_WORDS if parts.scheme == "s3" else set()):
        raise RefusedError("holds more than a place", f"after ? only s3:// may say {', '.join(sorted(S3_WORDS))}")
    path, mark, query = value.partition("?")
    return f"{path.rstrip('/')}{mark}{query}"


def join_store_url(url: str, name: str) -> str:
    """Return the URL of that name below another URL."""
    path, mark, query = url.partition("?")
    return f"{path}/{name}{mark}{query}"
