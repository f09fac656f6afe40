"""Upgrades a database to this version: creates what is missing, refuses what a later version created."""

from __future__ import annotations

import os
import secrets
import threading
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from pricing.atomic_file import make_private_folder, publish_file
from router.state.database import BUSY_SECONDS, Database
from router.state.database_url import DatabaseFile, DatabaseLocation
from router.state.errors import BusyError, NoStateError, StateError, TooNewError
from router.state.tables import FACTS

VERSIONS = ("0001", "0002", "0003")
STATE_ID = "id"
_MADE_AT = "made_at"
_VERSION_TABLE = "stepfare_version"
# Any number that all processes share will do; the process that has this lock creates the tables.
_POSTGRESQL_LOCK = 0x57E9FA3E
_RANDOM_BYTES = 5
_FOLDER = Path(__file__).parent / "migrations"
# Alembic stores the running migration in a global.
migration_lock = threading.Lock()


def open_database(place: DatabaseLocation, now: datetime, *, makes: bool = True) -> Database:
    """Open the database at this version; create it when there is none. Any number of processes may do so at once.

    A new file appears when it is complete. StateError, TooNewError; NoStateError if there is none and ``makes`` is
    False.
    """
    if isinstance(place, DatabaseFile):
        if not makes and not place.path.exists():
            raise NoStateError(f"{place} is missing")
        _create_file(place, now)
    database = Database(place)
    try:
        with database.read() as connection:
            version = _read_version(connection, place)
        if version is None and not makes:
            raise NoStateError(f"{place} holds no state")
        if version != VERSIONS[-1]:
            _upgrade(database, now)
    except BaseException:
        database.close()
        raise
    return database


def check_version(database: Database) -> None:
    """Raise TooNewError where a later version has upgraded the database, StateError where it cannot be read."""
    with database.read() as connection:
        version = connection.execute(text(f"SELECT version_num FROM {_VERSION_TABLE}")).scalar()
    if version != VERSIONS[-1]:
        raise TooNewError(f"{database.place}: its tables are of version {version}", "restart with that version")


def _read_version(connection: Connection, place: DatabaseLocation) -> str | None:
    """Return the version of the tables; None if nothing was created yet."""
    if not inspect(connection).has_table(_VERSION_TABLE):
        if isinstance(place, DatabaseFile) and inspect(connection).get_table_names():
            raise StateError(f"{place}: a database, but not one of stepfare", "name another file for the state")
        return None
    version = connection.execute(text(f"SELECT version_num FROM {_VERSION_TABLE}")).scalar()
    if version is not None and version not in VERSIONS:
        raise TooNewError(
            f"{place}: made by a later version of stepfare (tables {version}, this one knows {VERSIONS[-1]})",
            "install that version, or name another state",
        )
    return version


def _upgrade(database: Database, now: datetime) -> None:
    with migration_lock, database.write() as connection:
        if not database.is_file:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _POSTGRESQL_LOCK})
        before = _read_version(connection, database.place)
        if before == VERSIONS[-1]:
            return
        _run_alembic(connection)
        if before is None:
            new = f"s{secrets.token_hex(_RANDOM_BYTES)}"
            made_at = now.astimezone(UTC).isoformat()
            connection.execute(FACTS.insert(), [{"name": STATE_ID, "value": new}, {"name": _MADE_AT, "value": made_at}])


def _run_alembic(connection: Connection) -> None:
    migrate_tables(connection, "head")


def migrate_tables(connection: Connection, version: str) -> None:
    """Bring the tables from the version that they have, or from none, to a later one, with all that is in them."""
    # Alembic takes as long to import as the rest of the store, so it is imported only where tables are created.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection, "version_table": _VERSION_TABLE})
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    command.upgrade(config, version)


def _create_file(place: DatabaseFile, now: datetime) -> None:
    path = place.path
    try:
        if not path.exists():
            make_private_folder(path.parent)
            _create_under_lock(place, now)
        if path.stat().st_size == 0:
            raise StateError(
                f"{path} is empty: what it held is lost",
                "restore it from a backup, then run `stepfare sweep`; or remove it to begin a new state",
            )
    except OSError as error:
        remedy = "give the user that runs stepfare a folder to write to, with room on its disk"
        raise StateError(f"{path}: {error.strerror or type(error).__name__}", remedy) from None


def _create_under_lock(place: DatabaseFile, now: datetime) -> None:
    from filelock import FileLock, Timeout

    path = place.path
    try:
        with FileLock(f"{path}.lock", timeout=BUSY_SECONDS):
            if not path.exists():
                _create_and_rename(path, now)
    except Timeout:
        raise BusyError(f"{path}: another process has been creating it for too long", "try again") from None


def _create_and_rename(path: Path, now: datetime) -> None:
    """Create the file under another name, then rename it.

    A process that is killed meanwhile leaves no half of it under its own name.
    """
    new = path.with_name(f"{path.name}.new")
    for leftover in (new, new.with_name(f"{new.name}-wal"), new.with_name(f"{new.name}-shm")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    database = Database(DatabaseFile(new))
    try:
        _upgrade(database, now)
    finally:
        # Closing the last connection moves what was written into the file itself.
        database.close()
    publish_file(new, path)
