"""Administrators of a state: root and the owner of its folder; on PostgreSQL the roles that own its tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property

from sqlalchemy import text

from router.state.database_url import DatabaseFile
from router.state.errors import StateError
from router.state.rows import StatePart
from router.state.tables import AUDIT_LOG

_IS_OWNER = text("SELECT pg_has_role(session_user, relowner, 'MEMBER') FROM pg_class WHERE oid = to_regclass(:name)")


class Administration(StatePart):
    """The administrators of a state, and the role of its server that this process is."""

    @cached_property
    def session(self) -> Mapping[str, str]:
        """Return the role that is connected, as details of the audit log; nothing for a file."""
        if self._database.is_file:
            return {}
        with self._database.read() as connection:
            return {"database_user": str(connection.execute(text("SELECT session_user")).scalar_one())}

    def problem(self) -> str:
        """Return why the user of this process does not administer the state; "" where they do. StateError."""
        place = self._database.place
        if not isinstance(place, DatabaseFile):
            with self._database.read() as connection:
                is_owner = connection.execute(_IS_OWNER, {"name": AUDIT_LOG.name}).scalar()
            return "" if is_owner else f"{self.session['database_user']} does not own the tables of the {place}"
        if not hasattr(os, "getuid"):
            return ""  # A system without user ids has nothing to tell users apart by.
        try:
            owner = place.path.parent.stat().st_uid
        except OSError as error:
            raise StateError(f"{place.path.parent}: {error.strerror}") from None
        if os.getuid() in (0, owner):
            return ""
        return f"the folder {place.path.parent} belongs to another user"
