"""Plans as they were made, and as they were accepted with their jobs; named values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from secrets import token_hex
from typing import Any

from sqlalchemy import Connection, Index, Select, delete, func, select

from pricing.money import ZERO, Usd
from router.access.identity import TeamFilter
from router.state.columns import canonical_json, storable_text
from router.state.errors import UnreadableError
from router.state.rows import StatePart, in_batches, insert_or_update, read_records, record_values
from router.state.tables import FACTS, JOBS, PLANS, record_table
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


# Of each name: a year of nights, and some that were made twice.
PLANS_KEPT = 400


@dataclass(frozen=True, slots=True)
class TeamPart:
    """A team's part of a plan: its jobs, how many of them are placed, and their cost."""

    team: str
    jobs: int
    placed: int
    cost_usd: Usd


@dataclass(frozen=True, slots=True)
class ListedPlan:
    """A plan that was made: digest, the moment it is for, when, by whom and under which name, its gap, its teams.

    As a reader sees it, ``teams`` are the reader's alone, and jobs and cost are theirs; the gap is that of all.
    """

    digest: str
    as_of: datetime
    made_at: datetime
    made_by: str
    name: str
    gap: float
    teams: tuple[TeamPart, ...]

    @property
    def plan_id(self) -> str:
        """Return the name of the plan."""
        return f"plan-{self.digest[:12]}"

    @property
    def jobs(self) -> int:
        """Return the number of jobs."""
        return sum(part.jobs for part in self.teams)

    @property
    def placed(self) -> int:
        """Return how many jobs are placed."""
        return sum(part.placed for part in self.teams)

    @property
    def cost_usd(self) -> Usd:
        """Return the cost of the jobs."""
        return Usd.total(part.cost_usd for part in self.teams)

    def seen_by(self, teams: TeamFilter) -> ListedPlan:
        """Return the plan as a reader of these teams sees it."""
        return replace(self, teams=tuple(part for part in self.teams if teams.admits(part.team)))


@dataclass(frozen=True, slots=True)
class MadePlanEntry:
    """A plan to store: its JSON with a summary of it, and what is known beside it. See :meth:`MadePlans.put`."""

    digest: str
    text: str
    as_of: datetime
    made_at: datetime
    made_by: str
    name: str
    summary: str

    @classmethod
    def of(cls, digest: str, text: str, as_of: datetime, made_at: datetime, made_by: str, name: str) -> MadePlanEntry:
        """Return the entry of a plan. Its JSON is read here."""
        summary = canonical_json(_summary(json.loads(text)))
        return cls(digest, text, as_of, made_at, storable_text(made_by), name, summary)


# Plans as they were written, accepted or not: the next night is compared with the one before.
MADE_PLANS = record_table("made_plans", MadePlanEntry, Index("made_plans_by_as_of", "as_of"), key=("digest", "name"))


class MadePlans(StatePart):
    """The plans that were made; of each name the oldest go when there are more than :data:`PLANS_KEPT`."""

    def put(self, digest: str, text: str, as_of: datetime, made_at: datetime, made_by: str, name: str) -> None:
        """Store a plan with a summary of its JSON; repeating it is harmless. A plan may have several names."""
        entry = MadePlanEntry.of(digest, text, as_of, made_at, made_by, name)
        with self._database.write() as connection:
            put_plan_in_transaction(connection, entry)

    def text(self, digest: str) -> str | None:
        """Return the plan of that digest, None where it was not stored or is gone."""
        return self._first_text(select(MADE_PLANS.c.text).where(MADE_PLANS.c.digest == digest).limit(1))

    def row(self, digest: str) -> ListedPlan | None:
        """Return the plan of that digest without its text, under its latest name; None where it is not stored."""
        return next(map(_row, self._rows(_newest().where(MADE_PLANS.c.digest == digest).limit(1))), None)

    def newest(
        self, count: int = 50, before: datetime | None = None, *, name: str | None = None
    ) -> tuple[ListedPlan, ...]:
        """Return plans without their texts, the latest moment first: those of one name, those of moments ``before``."""
        query = _newest().limit(count)
        if name is not None:
            query = query.where(MADE_PLANS.c.name == name)
        if before is not None:
            query = query.where(MADE_PLANS.c.as_of < before)
        return tuple(map(_row, self._rows(query)))

    def oldest(self) -> dict[str, datetime]:
        """Return by name the earliest moment that a stored plan is for."""
        query = select(MADE_PLANS.c.name, func.min(MADE_PLANS.c.as_of)).group_by(MADE_PLANS.c.name)
        return {row[0]: row[1] for row in self._rows(query)}

    def made_since(self, moment: datetime, count: int) -> tuple[ListedPlan, ...]:
        """Return plans that were made at a moment or later, without their texts."""
        return tuple(map(_row, self._rows(_newest().where(MADE_PLANS.c.made_at >= moment).limit(count))))

    def digests(self, beginning: str, count: int) -> tuple[str, ...]:
        """Return digests of plans that begin so, at most ``count`` of them."""
        query = select(MADE_PLANS.c.digest).distinct().where(MADE_PLANS.c.digest.startswith(beginning, autoescape=True))
        return self._first_column(query.order_by(MADE_PLANS.c.digest).limit(count))


def put_plan_in_transaction(connection: Connection, entry: MadePlanEntry) -> None:
    """Store a plan in the caller's transaction, and delete the oldest ones of its name where there are too many."""
    insert_or_update(connection, MADE_PLANS, [record_values(entry)], replacing=("made_at", "made_by"))
    own = MADE_PLANS.c.name == entry.name
    old = select(MADE_PLANS.c.digest).where(own).order_by(MADE_PLANS.c.made_at.desc(), MADE_PLANS.c.digest)
    digests = list(connection.execute(old.offset(PLANS_KEPT)).scalars())
    if digests:
        connection.execute(delete(MADE_PLANS).where(own, MADE_PLANS.c.digest.in_(digests)))


def _newest() -> Select[Any]:
    columns = (MADE_PLANS.c[name] for name in ("digest", "as_of", "made_at", "made_by", "name", "summary"))
    return select(*columns).order_by(MADE_PLANS.c.as_of.desc(), MADE_PLANS.c.made_at.desc(), MADE_PLANS.c.digest)


def _summary(content: dict[str, Any]) -> dict[str, Any]:
    teams: dict[str, list[Any]] = {}
    for job in content["jobs"]:
        part = teams.setdefault(job["team"], [0, 0, ZERO])
        part[0] += 1
        part[1] += job["finish"] is not None
        part[2] += Usd.parse(job["cost_usd"])
    return {"gap": content["gap"], "teams": [[team, *part[:2], str(part[2])] for team, part in sorted(teams.items())]}


def _row(row: Any) -> ListedPlan:
    content = json.loads(row.summary)
    teams = tuple(TeamPart(team, jobs, placed, Usd.parse(usd)) for team, jobs, placed, usd in content["teams"])
    return ListedPlan(row.digest, row.as_of, row.made_at, row.made_by, row.name, content["gap"], teams)
