"""Tell until when planned lines of a job count: whole once it has ended, and only so far where other costs take over.

A plan that was accepted later takes over a job's lines from its own first one, or from its acceptance. A gang that runs
is metered once its machines are gone: what was planned for it counts as far as its costs do, so that a month compares
like with like.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from router.app.outcomes import ended_of_plans, ran_at
from router.files.duckdb_session import rows_of
from router.showback.report.rollup_tables import PlannedCuts, PlannedJob

if TYPE_CHECKING:
    import duckdb

    from router.state.store import StateStore

# Jobs of plans whose lines are still to come, and those of which another plan was accepted later, with its begin.
_TO_COME = """
SELECT DISTINCT plan, job FROM {facts} WHERE source = 'planned' AND "end" > $1 AND plan IS NOT NULL AND job IS NOT NULL
"""
_TAKEN_OVER = """
WITH accepted AS (
    SELECT plan, job, epoch_us(min(recorded_at)) AS accepted_at, least(min(recorded_at), min(start)) AS begins,
           max("end") AS ends
    FROM {facts} WHERE source = 'planned' AND plan IS NOT NULL AND job IS NOT NULL GROUP BY ALL
), followed AS (
    SELECT plan, job, ends, min(begins) OVER later AS until FROM accepted
    WINDOW later AS (PARTITION BY job ORDER BY accepted_at RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
)
SELECT plan, job, until FROM followed WHERE until < ends
"""


def planned_cuts(
    store: StateStore,
    connection: duckdb.DuckDBPyConnection,
    facts: str,
    now: datetime,
    as_of: datetime | None,
    invoiced: Mapping[str, datetime] | None = None,
) -> PlannedCuts:
    """Return by plan and job until when its lines count, by what was known at ``as_of``; None: they count whole.

    Jobs that are not named have lines that count until ``now``. ``facts`` is a relation with all planned lines;
    ``invoiced`` says by attempt until when bills have its costs
    (:func:`router.showback.report.rollup_tables.invoiced_until`).
    """
    cuts: dict[PlannedJob, datetime | None] = {}
    for row in rows_of(connection.sql(_TAKEN_OVER.format(facts=facts))):
        cuts[row["plan"], row["job"]] = row["until"].astimezone(UTC)
    for planned, since in _running_since(store, as_of, invoiced or {}).items():
        earlier = cuts.get(planned)
        cuts[planned] = since if earlier is None else min(earlier, since)
    to_come = {(plan, job) for plan, job in connection.execute(_TO_COME.format(facts=facts), [now]).fetchall()}
    ended = ended_of_plans(store, to_come | cuts.keys(), as_of) if to_come or cuts else ()
    return cuts | dict.fromkeys(ended)


def _running_since(
    store: StateStore, as_of: datetime | None, invoiced: Mapping[str, datetime]
) -> dict[PlannedJob, datetime]:
    """Return by plan and job since when gangs that run have costs that are neither metered nor invoiced."""
    since: dict[PlannedJob, datetime] = {}
    for attempt in store.attempts.find(alive=as_of is None, skipped=[]):
        begun = attempt.made_at
        if begun is None or not ran_at(attempt, as_of):
            continue
        begun = max(begun, invoiced.get(attempt.id, begun))
        planned = attempt.plan, attempt.job
        since[planned] = min(since.get(planned, begun), begun)
    return since
