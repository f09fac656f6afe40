"""Attempts and their machines. A change compares the version of an attempt before it sets fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, insert, not_, or_, select, tuple_, update

from router.state.errors import ConcurrentChangeError, ExistsError, MissingError, UnreadableError
from router.state.records import Attempt, NodeRecord, Phase
from router.state.rows import RecordCache, SalvagedRow, StatePart, check_fields, in_batches, read_records, record_values
from router.state.tables import ATTEMPTS, NODES

# The number of machines that an error names.
_MAX_NAMED = 3
# The number of a digest's characters in the name of a plan.
_SHORT_DIGEST = 12
ENDED_PHASES = [phase for phase in Phase if phase.is_over]


class Attempts(StatePart):
    """The attempts of a database, with their machines."""

    def add(self, attempt: Attempt, nodes: Sequence[NodeRecord]) -> None:
        """Add an attempt with its machines. ExistsError when the id exists; ValueError as :meth:`add_all`."""
        self.add_all([(attempt, nodes)])

    def add_all(self, made: Sequence[tuple[Attempt, Sequence[NodeRecord]]]) -> None:
        """Add attempts with their machines, all or none. ExistsError; ValueError for a machine of another attempt."""
        for attempt, nodes in made:
            if any(node.attempt != attempt.id for node in nodes):
                raise ValueError(f"{attempt.id}: a machine of another attempt")
            if len({node.rank for node in nodes}) != len(nodes):
                raise ValueError(f"{attempt.id}: two machines of one rank")
        machines = [record_values(node) for _, nodes in made for node in nodes]
        if not made:
            return
        with self._database.write() as connection:
            for attempt, _ in made:
                if connection.execute(select(ATTEMPTS.c.id).where(ATTEMPTS.c.id == attempt.id)).first() is not None:
                    raise ExistsError(f"attempt {attempt.id} exists")
            connection.execute(insert(ATTEMPTS), [record_values(attempt) for attempt, _ in made])
            if machines:
                connection.execute(insert(NODES), machines)

    def get(self, attempt_id: str) -> Attempt | None:
        """Return an attempt, None if there is none with that id."""
        return self._first_record(ATTEMPTS, select(ATTEMPTS).where(ATTEMPTS.c.id == attempt_id), Attempt)

    def find(
        self,
        *,
        plan: str | None = None,
        job: str | None = None,
        gang: str | None = None,
        alive: bool = False,
        skipped: list[UnreadableError] | None = None,
    ) -> tuple[Attempt, ...]:
        """Return the attempts of a plan, job and gang (None: of any), by creation time and id.

        ``alive``: only those that are not over. An unreadable attempt is added to ``skipped``, if that is given; else
        UnreadableError.
        """
        query = select(ATTEMPTS).order_by(ATTEMPTS.c.created_at, ATTEMPTS.c.id)
        for column, wanted in ((ATTEMPTS.c.plan, plan), (ATTEMPTS.c.job, job), (ATTEMPTS.c.gang, gang)):
            query = query if wanted is None else query.where(column == wanted)
        if alive:
            query = query.where(ATTEMPTS.c.phase.not_in(ENDED_PHASES))
        return self._records(ATTEMPTS, query, Attempt, skipped)

    def named(self, names: Collection[str]) -> tuple[Attempt, ...]:
        """Return the attempts whose id, job, plan, or plan's first 12 characters is one of the names; as :meth:`find`.

        UnreadableError.
        """
        one = ATTEMPTS.c
        # Databases refuse some characters that no name has.
        usable = sorted(name for name in names if name.isprintable())
        columns = (one.id, one.job, one.plan, func.substr(one.plan, 1, _SHORT_DIGEST))
        wanted = or_(*(column.in_(usable) for column in columns))
        query = select(ATTEMPTS).where(wanted).order_by(one.created_at, one.id)
        return self._records(ATTEMPTS, query, Attempt)

    def ended_last(self, since: datetime) -> tuple[Attempt, ...]:
        """Return the failed attempts, gone since ``since``, that are the newest of their job; by created_at and id.

        Within one order the newest is the one with the highest number, because clocks may be set back. An unreadable
        attempt is left out, and so is every attempt before it.
        """
        one, other = ATTEMPTS.c, ATTEMPTS.alias("other")
        order = (other.c.plan, other.c.gang, other.c.start)
        same = tuple_(*order) == tuple_(one.plan, one.gang, one.start)
        later = tuple_(other.c.created_at, other.c.number, other.c.id) > tuple_(one.created_at, one.number, one.id)
        newer = select(other.c.id).where(
            other.c.job == one.job, or_(and_(same, other.c.number > one.number), and_(not_(same), later))
        )
        query = (
            select(ATTEMPTS)
            .where(one.phase == Phase.FAILED, one.gone_at >= since, ~newer.exists())
            .order_by(one.created_at, one.id)
        )
        return self._records(ATTEMPTS, query, Attempt, skipped=[])

    def change(self, attempt: Attempt, **changes: Any) -> Attempt:
        """Set fields and return the attempt as it is then.

        ConcurrentChangeError when it changed since it was read; TypeError, MissingError.
        """
        check_fields(Attempt, changes, fixed=("id", "version"))
        with self._database.write() as connection:
            return _change_attempt(connection, attempt, changes)

    def update(self, attempt_id: str, change: Callable[[Attempt], Attempt | None]) -> Attempt:
        """Read an attempt, apply ``change`` and write it; retry until no other writer interferes. MissingError.

        None leaves it unchanged.
        """
        while True:
            before = self.get(attempt_id)
            if before is None:
                raise MissingError(f"there is no attempt {attempt_id}")
            after = change(before)
            if after is None:
                return before
            changes = _differences(before, after)
            if not changes:
                return before
            try:
                return self.change(before, **changes)
            except ConcurrentChangeError:
                continue

    def update_all(self, changes: Mapping[str, Callable[[Attempt], Attempt | None]]) -> dict[str, Attempt]:
        """Apply :meth:`update` to many attempts, by id, all or none, and return each as changed. MissingError.

        A change may be called more than once.
        """
        while changes:
            try:
                with self._database.write() as connection:
                    return change_attempts_in_transaction(connection, changes)
            except ConcurrentChangeError:
                continue
        return {}

    def salvage(self, attempt_id: str) -> tuple[SalvagedRow, tuple[SalvagedRow, ...]]:
        """Return what can be read of an attempt and of its machines, by rank. MissingError."""
        attempts, nodes = RecordCache(ATTEMPTS, Attempt), RecordCache(NODES, NodeRecord)
        with self._database.read() as connection:
            found = attempts.salvage(connection, attempts.select().where(ATTEMPTS.c.id == attempt_id))
            query = nodes.select().where(NODES.c.attempt == attempt_id).order_by(NODES.c.rank)
            machines = nodes.salvage(connection, query)
        if not found:
            raise MissingError(f"there is no attempt {attempt_id}")
        return found[0], tuple(machines)

    def mend(self, attempt_id: str, changes: Mapping[str, Any], machines: Mapping[int, Mapping[str, Any]]) -> Attempt:
        """Set columns that could not be read, of an attempt and of its machines by rank, and return the attempt.

        UnreadableError where others cannot be read either: then nothing is changed.
        """
        with self._database.write() as connection:
            if changes:
                statement = update(ATTEMPTS).where(ATTEMPTS.c.id == attempt_id)
                connection.execute(statement.values({"version": ATTEMPTS.c.version + 1, **changes}))
            for rank, values in machines.items():
                same = (NODES.c.attempt == attempt_id) & (NODES.c.rank == rank)
                connection.execute(update(NODES).where(same).values(dict(values)))
            attempt = _read(connection, attempt_id)
            if attempt is None:
                raise MissingError(f"there is no attempt {attempt_id}")
            return attempt

    def versions(self) -> dict[str, int]:
        """Return the version of every attempt that is not over, by id: a cheap way to see whether something changed."""
        query = select(ATTEMPTS.c.id, ATTEMPTS.c.version).where(ATTEMPTS.c.phase.not_in(ENDED_PHASES))
        return {row[0]: row[1] for row in self._rows(query)}

    def nodes(self, attempt_id: str) -> tuple[NodeRecord, ...]:
        """Return the machines of an attempt, by rank."""
        query = select(NODES).where(NODES.c.attempt == attempt_id).order_by(NODES.c.rank)
        return self._records(NODES, query, NodeRecord)

    def set_node(self, attempt_id: str, rank: int, **changes: Any) -> None:
        """Set fields of a machine. TypeError, MissingError."""
        self.set_nodes({(attempt_id, rank): changes})

    def set_nodes(self, changes: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
        """Set fields of machines, by attempt and rank: all or none. TypeError, MissingError."""
        if any(changes.values()):
            with self._database.write() as connection:
                set_nodes_in_transaction(connection, changes)


def set_nodes_in_transaction(connection: Connection, changes: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
    """Do :meth:`Attempts.set_nodes` as a part of a transaction. TypeError, MissingError."""
    rows_by_fields: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for (attempt_id, rank), fields in changes.items():
        check_fields(NodeRecord, fields, fixed=("attempt", "rank"))
        row = {f"new_{name}": value for name, value in fields.items()}
        rows_by_fields.setdefault(tuple(sorted(fields)), []).append({**row, "attempt_id": attempt_id, "of_rank": rank})
    rows_by_fields.pop((), None)
    machine = (NODES.c.attempt == bindparam("attempt_id")) & (NODES.c.rank == bindparam("of_rank"))
    for names, rows in sorted(rows_by_fields.items()):
        new: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
        if connection.execute(update(NODES).where(machine).values(new), rows).rowcount != len(rows):
            raise MissingError(f"one of these machines does not exist: {_name_machines(rows)}")


def change_attempts_in_transaction(
    connection: Connection, changes: Mapping[str, Callable[[Attempt], Attempt | None]]
) -> dict[str, Attempt]:
    """Do :meth:`Attempts.update_all` once, as a part of a transaction. MissingError.

    ConcurrentChangeError when another writer interferes, which cannot happen in a file.
    """
    found = read_attempts(connection, changes)
    rows_by_fields: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for name, change in changes.items():
        if name not in found:
            raise MissingError(f"there is no attempt {name}")
        before = found[name]
        after = change(before)
        new = {} if after is None else _differences(before, after)
        if new:
            check_fields(Attempt, new, fixed=("id", "version"))
            row = {f"new_{key}": value for key, value in new.items()}
            rows_by_fields.setdefault(tuple(sorted(new)), []).append(
                {**row, "attempt_id": name, "read_version": before.version}
            )
            found[name] = replace(before, **new, version=before.version + 1)
    same = (ATTEMPTS.c.id == bindparam("attempt_id")) & (ATTEMPTS.c.version == bindparam("read_version"))
    for keys, rows in sorted(rows_by_fields.items()):
        fields: dict[str, Any] = {key: bindparam(f"new_{key}") for key in keys}
        statement = update(ATTEMPTS).where(same).values(fields | {"version": bindparam("read_version") + 1})
        if connection.execute(statement, rows).rowcount != len(rows):
            raise ConcurrentChangeError("an attempt was changed since it was read")
    return {name: found[name] for name in changes}


def read_attempts(connection: Connection, ids: Iterable[str]) -> dict[str, Attempt]:
    """Return the attempts of these ids that exist, by id."""
    attempts_by_id: dict[str, Attempt] = {}
    for part in in_batches(ids):
        query = select(ATTEMPTS).where(ATTEMPTS.c.id.in_(part))
        attempts_by_id |= {attempt.id: attempt for attempt in read_records(connection, ATTEMPTS, query, Attempt)}
    return attempts_by_id


def _differences(before: Attempt, after: Attempt) -> dict[str, Any]:
    old, new = record_values(before), record_values(after)
    return {name: new[name] for name in new if name != "version" and new[name] != old[name]}


def _change_attempt(connection: Connection, attempt: Attempt, changes: Mapping[str, Any]) -> Attempt:
    same = (ATTEMPTS.c.id == attempt.id) & (ATTEMPTS.c.version == attempt.version)
    statement = update(ATTEMPTS).where(same).values({**changes, "version": attempt.version + 1})
    changed = connection.execute(statement).rowcount
    now = _read(connection, attempt.id)
    if now is None:
        raise MissingError(f"there is no attempt {attempt.id}")
    if changed != 1:
        raise ConcurrentChangeError(f"attempt {attempt.id} was changed since it was read")
    return now


def _name_machines(rows: list[dict[str, Any]]) -> str:
    shown = ", ".join(f"rank {row['of_rank']} of attempt {row['attempt_id']}" for row in rows[:_MAX_NAMED])
    return f"{shown} and {len(rows) - _MAX_NAMED} more" if len(rows) > _MAX_NAMED else shown


def _read(connection: Connection, attempt_id: str) -> Attempt | None:
    found = read_records(connection, ATTEMPTS, select(ATTEMPTS).where(ATTEMPTS.c.id == attempt_id), Attempt)
    return found[0] if found else None
