"""The environment that alembic runs for every command, on the caller's connection and in its transaction."""

from __future__ import annotations

from alembic import context

from router.state.tables import METADATA

_ATTRIBUTES = context.config.attributes
# Both databases undo the making of tables; alembic takes SQLite for one that does not.
context.configure(
    connection=_ATTRIBUTES["connection"],
    target_metadata=METADATA,
    version_table=_ATTRIBUTES["version_table"],
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
