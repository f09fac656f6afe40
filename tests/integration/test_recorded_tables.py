"""Tables that tests replay are those that the migrations make."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from sqlalchemy import Connection, create_engine

from router.state.versions import _FOLDER, _VERSION_TABLE
from tests.support.recorded_tables import replay_recorded


def _migrate(connection: Connection, runs: list[Connection]) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection, "version_table": _VERSION_TABLE})
    config.set_main_option("script_location", str(_FOLDER))
    command.upgrade(config, "head")
    runs.append(connection)


def test_the_second_database_equals_the_first(tmp_path: Path) -> None:
    runs: list[Connection] = []
    make_tables = replay_recorded(partial(_migrate, runs=runs))
    dumps = []
    for name in ("first", "second"):
        engine = create_engine(f"sqlite:///{tmp_path / name}")
        with engine.begin() as connection:
            make_tables(connection)
            driver = connection.connection.driver_connection
            assert driver is not None
            dumps.append(list(driver.iterdump()))
            # One that is not empty is left to the migrations.
            make_tables(connection)
        engine.dispose()
    assert dumps[0] == dumps[1]
    assert sum("CREATE TABLE" in line for line in dumps[0]) > 5
    assert len(runs) == 3
