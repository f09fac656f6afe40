"""Empty databases in a millisecond: the migrations run once a process, later ones replay what they made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection


def replay_recorded(run_migrations: Callable[[Connection], None]) -> Callable[[Connection], None]:
    """Return a function that does to an empty SQLite database what ``run_migrations`` does, the first time by it.

    Databases that are not empty, and those of PostgreSQL, are always given to ``run_migrations``.
    """
    recorded: list[str] = []

    def make_tables(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        if connection.dialect.name != "sqlite" or driver is None or list(driver.iterdump())[1:-1]:
            run_migrations(connection)
        elif recorded:
            for statement in recorded:
                driver.execute(statement)
        else:
            run_migrations(connection)
            # The first and the last line begin and end a transaction, and here is one already.
            recorded.extend(list(driver.iterdump())[1:-1])

    return make_tables
