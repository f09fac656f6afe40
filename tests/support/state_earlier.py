"""States as earlier versions made them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from alembic import command
from alembic.config import Config

from router.state import versions


@contextlib.contextmanager
def made_by(monkeypatch: pytest.MonkeyPatch, version: str) -> Iterator[None]:
    """What is opened meanwhile is made by the steps up to that version."""

    def upto(connection: object) -> None:
        config = Config(attributes={"connection": connection, "version_table": versions._VERSION_TABLE})
        config.set_main_option("script_location", str(versions._FOLDER))
        command.upgrade(config, version)

    known = versions.VERSIONS
    with monkeypatch.context() as patch:
        patch.setattr(versions, "_run_alembic", upto)
        patch.setattr(versions, "VERSIONS", known[: known.index(version) + 1])
        yield
