"""Bounds on what an agent may report of its training.

A report may have no more steps than the job has, no more speed than any machine of the plan, and checkpoints only where
the job stores them. Anything else is not believed, and ends nothing.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from router.coordinator.gang_session import GangSession, RankSession
from router.coordinator.messages import HeartbeatMessage
from router.coordinator.saves import NOT_BELIEVED
from router.state.records import Attempt
from router.state.store import StateStore

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

# A plan's speed is an estimate, and a job may resume on better machines; more than this many times that speed is
# implausible.
MAX_SPEEDUP = 20.0
# Shorter times count as this many seconds: steps reported within one second took longer than that.
MIN_ELAPSED_SECONDS = 60.0
_SCHEMES = ("s3://", "gs://", "abfs://", "abfss://", "file:///")
# Returns the checkpoint stores of the job of that name, of all regions.
StoresOfJob = Callable[[str], Collection[str]]


def no_stores(_: str) -> tuple[str, ...]:
    """Return no stores: trainings report the location of their checkpoints themselves."""
    return ()


@dataclass(frozen=True, slots=True)
class ReportBounds:
    """The bounds of one attempt's job.

    ``steps``: of the whole job. ``steps_per_second``: on the fastest machines that the plan or the job itself names.
    None: not known. ``stores``: where its checkpoints are stored; none: the training reports that itself.
    """

    steps: int | None = None
    steps_per_second: float | None = None
    stores: tuple[str, ...] = ()

    def of_step(self, step: int, since: int, seconds: float) -> str:
        """Return why a step cannot be true, or "" if it can.

        The training was at step ``since`` that many ``seconds`` ago.
        """
        if self.steps is not None and step > self.steps:
            return f"step {step} is more than the job's {self.steps}"
        if self.steps_per_second is None:
            return ""
        highest = since + MAX_SPEEDUP * self.steps_per_second * max(seconds, MIN_ELAPSED_SECONDS)
        if step <= highest:
            return ""
        reason = f"more than {MAX_SPEEDUP:g} times as fast as was planned"
        return f"step {step}, {max(seconds, 0.0):.0f} s after step {since}, is {reason}"

    def of_manifest(self, manifest: str) -> str:
        """Return why a checkpoint's manifest cannot be there; "" if it can."""
        path = _path(manifest)
        parts = path.partition("://")[2].split("/") if "://" in path else path.split("/")[1:]
        if any(part in ("", ".", "..") for part in parts) or not manifest.startswith(("/", *_SCHEMES)):
            return "its manifest is no absolute path or URL of a store"
        if "://" in manifest and ("?" in manifest or "#" in manifest):
            return "its manifest is no plain URL"
        if not path.endswith(".json"):
            return "its manifest is no JSON file"
        if self.stores and not any(path.startswith(f"{_path(store)}/") for store in self.stores):
            return "its manifest is not below the job's store"
        return ""


@dataclass(slots=True)
class BoundsCache:
    """Caches the bounds of attempts, computed from jobs and plans of a state. May be shared by threads."""

    store: StateStore
    stores: StoresOfJob
    _rates: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def believed(
        self, session: GangSession, rank_session: RankSession, report: HeartbeatMessage, now: datetime
    ) -> HeartbeatMessage:
        """Return a heartbeat without what cannot be true of its training.

        That the rank lives is true all the same. StateError.
        """
        if report.step is not None and self.why_not(session, rank_session, report.step, "", now):
            report = report.model_copy(update={"step": None, "step_seconds": None})
        step = report.saved_step
        if step is not None and self.why_not(session, rank_session, step, report.saved_manifest or "", now):
            report = report.model_copy(update={"saved_step": None, "saved_manifest": None})
        return report

    def why_not(self, session: GangSession, rank_session: RankSession, step: int, manifest: str, now: datetime) -> str:
        """Return why a step, or the ``manifest`` of its checkpoint, cannot be true; "" if they can.

        The first doubt of a rank about steps, and the first about manifests, is recorded in the journal. StateError.
        """
        if session.bounds is None:
            session.bounds = self.of(session.attempt)
        bounds: ReportBounds = session.bounds
        about, why = "step", bounds.of_step(step, *last_confirmed_save(session, now))
        if not why and manifest:
            about, why = "manifest", bounds.of_manifest(manifest)
        if why and about not in rank_session.disbelieved:
            rank_session.disbelieved.add(about)
            _log.warning("%s rank %s: %s", session.attempt.id, rank_session.record.rank, why)
            self.store.journal.note(session.attempt.id, NOT_BELIEVED, now, rank=rank_session.record.rank, why=why)
        return why

    def of(self, attempt: Attempt) -> ReportBounds:
        """Return the bounds of the attempt's job. StateError."""
        stores = tuple(sorted(self.stores(attempt.job)))
        steps, measured = _job_speed(self.store.plans.job(attempt.job_digest))
        rate = max(measured, self._plan_rates(attempt.plan).get(attempt.job, 0.0))
        return ReportBounds(steps, rate / 3600 if rate else None, stores)

    def _plan_rates(self, digest: str) -> Mapping[str, float]:
        with self._lock:
            if digest not in self._rates:
                self._rates[digest] = _rate_by_job(self.store.plans.plan(digest))
            return self._rates[digest]


def last_confirmed_save(session: GangSession, now: datetime) -> tuple[int, float]:
    """Return the last step of the gang that is confirmed as saved, and the seconds since then."""
    attempt = session.attempt
    saved = [
        (step, rank_session.news.get("saved_at", rank_session.record.saved_at) or now)
        for rank_session in session.members.values()
        if (step := rank_session.news.get("saved_step", rank_session.record.saved_step)) is not None
    ]
    began = attempt.met_at or attempt.made_at or attempt.created_at
    step, at = max([(attempt.first_step, began), *saved], key=lambda save: save[0])
    return step, (now - at).total_seconds()


def _job_speed(text: str | None) -> tuple[int | None, float]:
    """Return the number of steps, and the highest measured steps per hour (0: nothing was measured)."""
    try:
        job = json.loads(text or "null")
        steps = job["steps"]
        points = job["workload"].get("profile") or ()
        rates = [float(point["steps_per_hour"]) for point in points if point.get("steps_per_hour")]
        rates += [3600 / float(point["seconds_per_step"]) for point in points if point.get("seconds_per_step")]
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None, 0.0
    return (steps if isinstance(steps, int) else None), max(rates, default=0.0)


def _rate_by_job(plan: str | None) -> dict[str, float]:
    try:
        content = json.loads(plan or "null")
        rate_by_job: dict[str, float] = {}
        for line in content["lines"]:
            rate_by_job[line["job"]] = max(rate_by_job.get(line["job"], 0.0), float(line["steps_per_hour"]))
    except (ValueError, KeyError, TypeError):
        return {}
    return rate_by_job


def _path(url: str) -> str:
    """Return a URL as a path that can be compared; files are compared by their paths, whatever the URL."""
    return url.partition("?")[0].removeprefix("file://") if "://" in url else url
