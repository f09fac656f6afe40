"""Accepted plans and the jobs of these plans; named values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from secrets import token_hex

from sqlalchemy import select

from router.state.errors import UnreadableError
from router.state.made_plans import MADE_PLANS
from router.state.rows import StatePart, in_batches, insert_or_update, read_records
from router.state.tables import FACTS, JOBS, PLANS
from router.state.versions import STATE_ID

_KEY_BYTES = 32


class NamedValues(StatePart):
    """The small facts about a database, each text under a name."""

    def get(self, name: str) -> str | None:
        """Return a value, None if it was never set."""
        return self._first_text(select(FACTS.c.value).where(FACTS.c.name == name))

    def set(self, name: str, value: str) -> None:
        """Set a value. ValueError for the identity, which never changes."""
        if name == STATE_ID:
            raise ValueError("the identity of a state never changes")
        with self._database.write() as connection:
            insert_or_update(connection, FACTS, [{"name": name, "value": value}], replacing=["value"])

    def key(self, name: str) -> bytes:
        """Return the random key of that name, which is made when it is first asked for and never changes."""
        if self.get(name) is None:
            with self._database.write() as connection:
                insert_or_update(connection, FACTS, [{"name": name, "value": token_hex(_KEY_BYTES)}])
        return bytes.fromhex(self.get(name) or "")


@dataclass(frozen=True, slots=True)
class _StoredJob:
    digest: str
    spec: str


class Plans(StatePart):
    """The plans of a database and the specs of their jobs, by digest."""

    def put_plan(self, digest: str, text: str, at: datetime) -> None:
        """Store an accepted plan; the first one of a digest stays, and repeating it is harmless."""
        with self._database.write() as connection:
            insert_or_update(connection, PLANS, [{"digest": digest, "text": text, "at": at}])

    def plan(self, digest: str) -> str | None:
        """Return the plan of that digest."""
        return self._first_text(select(PLANS.c.text).where(PLANS.c.digest == digest))

    def digests(self, beginning: str, count: int) -> tuple[str, ...]:
        """Return digests of plans that begin so, at most ``count`` of them."""
        query = select(PLANS.c.digest).where(PLANS.c.digest.startswith(beginning, autoescape=True))
        return self._first_column(query.order_by(PLANS.c.digest).limit(count))

    def stored(self, digests: Iterable[str]) -> frozenset[str]:
        """Return those of these digests of which a plan is stored, accepted or made."""
        found = set[str]()
        with self._database.read() as connection:
            for part in in_batches(digests):
                for column in (PLANS.c.digest, MADE_PLANS.c.digest):
                    found.update(connection.execute(select(column).where(column.in_(part))).scalars())
        return frozenset(found)

    def newest(self) -> str | None:
        """Return the plan that was accepted last; None without any."""
        return self._first_text(select(PLANS.c.text).order_by(PLANS.c.at.desc(), PLANS.c.digest).limit(1))

    def put_jobs(self, jobs: Mapping[str, str], at: datetime) -> None:
        """Store specs by digest; a later one replaces an earlier one (environment values are in no digest)."""
        if jobs:
            rows = [{"digest": digest, "spec": spec, "at": at} for digest, spec in sorted(jobs.items())]
            with self._database.write() as connection:
                insert_or_update(connection, JOBS, rows, replacing=["spec", "at"])

    def job(self, digest: str, skipped: list[UnreadableError] | None = None) -> str | None:
        """Return the spec of that digest; None where there is none, or its row cannot be read (see :meth:`jobs`)."""
        return self.jobs([digest], skipped).get(digest)

    def jobs(self, digests: Iterable[str], skipped: list[UnreadableError] | None = None) -> dict[str, str]:
        """Return the specs of these digests that exist.

        A row that cannot be read is left out and added to ``skipped``, so that no other job suffers for it.
        """
        unreadable, specs = [] if skipped is None else skipped, dict[str, str]()
        with self._database.read() as connection:
            for part in in_batches(digests):
                query = select(JOBS).where(JOBS.c.digest.in_(part))
                rows = read_records(connection, JOBS, query, _StoredJob, unreadable)
                specs.update({row.digest: row.spec for row in rows})
        return specs
