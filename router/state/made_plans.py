"""Plans as they were made, accepted or not, the newest by the moment that they are for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select

from router.state.canonical_form import storable_text
from router.state.database import Database
from router.state.rows import insert_or_update
from router.state.tables import MADE_PLANS

# A year of nights, and some that were made twice.
PLANS_KEPT = 400


@dataclass(frozen=True, slots=True)
class MadePlanRow:
    """A plan that was made: its digest, the moment it is for, when and by whom it was made."""

    digest: str
    as_of: datetime
    made_at: datetime
    made_by: str


class MadePlans:
    """The plans that were made; the oldest go when there are more than :data:`PLANS_KEPT`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, digest: str, text: str, as_of: datetime, made_at: datetime, made_by: str) -> None:
        """Store a plan; repeating it is harmless."""
        row = {"digest": digest, "text": text, "as_of": as_of, "made_at": made_at, "made_by": storable_text(made_by)}
        old = select(MADE_PLANS.c.digest).order_by(MADE_PLANS.c.made_at.desc(), MADE_PLANS.c.digest).offset(PLANS_KEPT)
        with self._database.write() as connection:
            insert_or_update(connection, MADE_PLANS, [row])
            digests = list(connection.execute(old).scalars())
            if digests:
                connection.execute(delete(MADE_PLANS).where(MADE_PLANS.c.digest.in_(digests)))

    def text(self, digest: str) -> str | None:
        """Return the plan of that digest, None where it was not stored or is gone."""
        query = select(MADE_PLANS.c.text).where(MADE_PLANS.c.digest == digest)
        with self._database.read() as connection:
            found: str | None = connection.execute(query).scalar()
            return found

    def newest(self, count: int = 50, before: datetime | None = None) -> tuple[MadePlanRow, ...]:
        """Return plans without their texts, the latest moment first; with ``before``, those of earlier moments."""
        columns = (MADE_PLANS.c.digest, MADE_PLANS.c.as_of, MADE_PLANS.c.made_at, MADE_PLANS.c.made_by)
        query = select(*columns).order_by(MADE_PLANS.c.as_of.desc(), MADE_PLANS.c.made_at.desc(), MADE_PLANS.c.digest)
        if before is not None:
            query = query.where(MADE_PLANS.c.as_of < before)
        with self._database.read() as connection:
            return tuple(MadePlanRow(*row) for row in connection.execute(query.limit(count)))
