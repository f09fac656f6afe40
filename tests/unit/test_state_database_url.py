"""Where a state is: URLs as people write them; secrets never show."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from router.state import database
from router.state.database_url import DatabaseFile, DatabaseServer, parse_database_url
from router.state.errors import BusyError, StateError

SECRET = "hunter2-hunter2"


def test_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_database_url(f"sqlite:///{tmp_path}/a b?c.db") == DatabaseFile(tmp_path / "a b?c.db")
    assert parse_database_url("sqlite+pysqlite:///x/state.db") == DatabaseFile(tmp_path / "x" / "state.db")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_server_gets_its_driver(scheme: str) -> None:
    place = parse_database_url(f"{scheme}://anna:{SECRET}@db.example:5433/states?sslmode=require")
    assert isinstance(place, DatabaseServer)
    assert place.url.drivername == "postgresql+psycopg"
    assert (place.url.password, place.url.database) == (SECRET, "states")
    assert str(place) == "PostgreSQL database states at db.example:5433"
    assert SECRET not in f"{place} {place!r}"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "state.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///a\0b",
        f"mysql://anna:{SECRET}@db/states",
        f"postgresql+asyncpg://anna:{SECRET}@db/states",
        f"postgresql://anna:{SECRET}@db:port/states",
        f"postgresql://anna:{SECRET}@[::1/states",
    ],
)
def test_what_names_no_state(url: str) -> None:
    with pytest.raises(StateError, match="URL of the state") as caught:
        parse_database_url(url)
    assert caught.value.remedy
    assert SECRET not in caught.value.what + caught.value.remedy
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("where", [f":{SECRET}@db/states", f"@db/states?password={SECRET}"])
def test_what_a_driver_says_is_masked(where: str) -> None:
    place = parse_database_url(f"postgresql://anna{where}")
    said = Exception(f"could not connect with password={SECRET} to db")
    error = database.translate_error(OperationalError("SELECT 1", {}, said), place)
    assert SECRET not in str(error)
    assert "***" in str(error)


class _SaidError(Exception):
    sqlstate: str | None = None


@pytest.mark.parametrize(
    ("code", "text", "kind", "remedy"),
    [
        ("08006", "connection failure", BusyError, "reached"),
        ("28P01", "password authentication failed", StateError, "password"),
        ("3D000", "database does not exist", StateError, "createdb"),
        ("40P01", "deadlock detected", BusyError, "try again"),
        ("42501", "permission denied", StateError, "the right"),
        ("53100", "could not extend file: No space left on device", StateError, "room"),
        ("53300", "too many connections", BusyError, "connections left"),
        ("57P01", "terminating connection due to administrator command", BusyError, "try again"),
        ("25006", "cannot execute UPDATE in a read-only transaction", StateError, "only reads"),
        ("XX000", "something new", StateError, ""),
    ],
)
def test_the_codes_of_postgresql(code: str, text: str, kind: type[StateError], remedy: str) -> None:
    said = _SaidError(f"{text}\nDETAIL:  Key (job)=(a secret) exists")
    said.sqlstate = code
    error = database.translate_error(
        OperationalError("SELECT 1", {}, said), parse_database_url("postgresql://db/states")
    )
    assert type(error) is kind
    assert isinstance(error, StateError)
    assert text in error.what
    assert "secret" not in error.what
    assert remedy in error.remedy


@pytest.mark.parametrize("text", ["FATAL:  the database system is starting up", "FATAL:  sorry, too many clients"])
def test_a_server_that_will_answer_later(text: str) -> None:
    # As the driver raises it when there is no connection: without a code.
    error = database.translate_error(
        OperationalError("", {}, psycopg.OperationalError(text)), parse_database_url("postgresql://db/s")
    )
    assert type(error) is BusyError


def test_all_connections_in_use(tmp_path: Path) -> None:
    error = database.translate_error(PoolTimeoutError(), DatabaseFile(tmp_path))
    assert type(error) is BusyError
