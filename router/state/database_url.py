"""The location of the state, as a URL names it: a file, or a PostgreSQL server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from router.state.errors import StateError

if TYPE_CHECKING:
    from sqlalchemy import URL

_FILE = ("sqlite:///", "sqlite+pysqlite:///")
_SERVER = ("postgresql+psycopg", "postgresql", "postgres")
_FORMS = "use sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE"


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A SQLite file on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """A database on a PostgreSQL server. Its text has neither user nor password."""

    url: URL = field(repr=False)

    def __str__(self) -> str:
        port = f":{self.url.port}" if self.url.port else ""
        return f"PostgreSQL database {self.url.database or '?'} at {self.url.host or 'this machine'}{port}"

    def masked(self, text: str) -> str:
        """Return the text without the secrets of the URL."""
        query = [str(value) for name, value in self.url.query.items() if "pass" in name]
        for secret in (str(self.url.password or ""), *query):
            text = text.replace(secret, "***") if secret else text
        return text


DatabaseLocation = DatabaseFile | DatabaseServer


def parse_database_url(url: str) -> DatabaseLocation:
    """Return the location that a URL names. StateError, which never contains the URL's text.

    What follows ``sqlite:///`` is a path as it is written.
    """
    for prefix in _FILE:
        if url.startswith(prefix):
            return _parse_file(url.removeprefix(prefix))
    scheme, separator, address = url.partition("://")
    if not separator or scheme not in _SERVER:
        raise StateError("the URL of the state names no database that stepfare can use", _FORMS)
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return DatabaseServer(make_url(f"postgresql+psycopg://{address}"))
    except (ArgumentError, ValueError):
        remedy = f"{_FORMS}; characters such as @ : / in a password are written as %40 %3A %2F"
        raise StateError("the URL of the state cannot be read", remedy) from None


def _parse_file(path: str) -> DatabaseFile:
    if not path or path == ":memory:" or "\0" in path:
        raise StateError("the URL of the state names no file: what is only in memory would be lost", _FORMS)
    return DatabaseFile(Path(path).resolve())
