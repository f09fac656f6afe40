"""Keep what earlier runs taught at hand for whoever places gangs again, read from the state once an hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from pricing.book import PriceBook
from router.controller.history.run_records import read_runs
from router.jobs.experience import Experience, SpeedRun, job_signature, learn_pools, learn_speeds
from router.jobs.measured_speed import MeasuredSpeed
from router.jobs.spec import Job
from router.state.store import StateStore


class EarlierRuns:
    """Provides the speeds and interruption rates that ``plan --learned latest`` would use at the last full hour.

    Reading thousands of attempts takes half a second, and one hour more changes little: what a job's own gangs do now
    is measured at each call all the same (:func:`~router.controller.history.measured_speeds.job_as_measured`).
    """

    def __init__(self, store: StateStore, clock: Callable[[], datetime]) -> None:
        self._store, self._clock = store, clock
        self._hour: datetime | None = None
        self._runs: Mapping[str, list[SpeedRun]] = {}
        self._pools = Experience()
        self._known: dict[tuple[str, str], tuple[MeasuredSpeed, ...]] = {}

    def speeds(self, job: Job, book: PriceBook) -> tuple[MeasuredSpeed, ...]:
        """Return the measured speeds of the job's gangs in earlier runs; ``job`` is as it is stored."""
        hour = self._read(book)
        key = (job.name, job_signature(job))
        if key not in self._known:
            rows = (row.measured(book) for row in learn_speeds(job, self._runs.get(key[1], ()), hour))
            self._known[key] = tuple(row for row in rows if row is not None)
        return self._known[key]

    def pools(self, book: PriceBook) -> Experience:
        """Return what was counted in pools, without speeds."""
        self._read(book)
        return self._pools

    def _read(self, book: PriceBook) -> datetime:
        hour = self._clock().replace(minute=0, second=0, microsecond=0)
        if hour != self._hour:
            records = read_runs(self._store, book, hour)
            runs: dict[str, list[SpeedRun]] = {}
            for run in records.speeds:
                runs.setdefault(run.signature, []).append(run)
            self._runs, self._pools, self._known = runs, Experience(pools=learn_pools(records.pools, hour)), {}
            self._hour = hour
        return hour
