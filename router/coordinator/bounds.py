"""What an agent may say of its training: no more steps than the job has, none faster than any machine of the plan does
them, and checkpoints where the job keeps them. Whatever else it says is not believed, and ends nothing."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from router.coordinator.gang_session import Member, Roll
from router.coordinator.messages import Heartbeat
from router.coordinator.saves import NOT_BELIEVED
from router.state.records import Attempt
from router.state.store import Store

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

# A plan's speed is an estimate, and a job may go on on better machines; so many times it is neither.
FASTER = 20.0
# Whoever saves twice in a second has not done so many steps in no time.
LEAST_SECONDS = 60.0
_SCHEMES = ("s3://", "gs://", "abfs://", "abfss://", "file:///")
# Where the checkpoints of the job of that name are kept, of whatever region.
Stores = Callable[[str], Collection[str]]


def no_stores(_: str) -> tuple[str, ...]:
    """Trainings say themselves where theirs are."""
    return ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one attempt's job. ``steps`` in all, and ``steps_per_second`` on the fastest machines that the plan or the job
    itself speaks of; None: not known.
    ``stores``: where its checkpoints are kept; none: the training says that itself."""

    steps: int | None = None
    steps_per_second: float | None = None
    stores: tuple[str, ...] = ()

    def of_step(self, step: int, since: int, seconds: float) -> str:
        """Why a step cannot be true of a training that was at ``since`` so many seconds ago; "" if it can."""
        if self.steps is not None and step > self.steps:
            return f"step {step} is more than the job's {self.steps}"
        if self.steps_per_second is None:
            return ""
        most = since + FASTER * self.steps_per_second * max(seconds, LEAST_SECONDS)
        if step <= most:
            return ""
        how = f"more than {FASTER:g} times as fast as was planned"
        return f"step {step}, {max(seconds, 0.0):.0f} s after step {since}, is {how}"

    def of_manifest(self, manifest: str) -> str:
        """Why a checkpoint's manifest cannot be there; "" if it can."""
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
class Known:
    """The bounds of attempts, as jobs and plans of a state have them. May be shared by threads."""

    store: Store
    stores: Stores
    _rates: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def believed(self, roll: Roll, member: Member, said: Heartbeat, now: datetime) -> Heartbeat:
        """A heartbeat without what cannot be true of its training: that it lives is true all the same. StateError."""
        if said.step is not None and self.why_not(roll, member, said.step, "", now):
            said = replace(said, step=None, step_seconds=None)
        step = said.saved_step
        if step is not None and self.why_not(roll, member, step, said.saved_manifest or "", now):
            said = replace(said, saved_step=None, saved_manifest=None)
        return said

    def why_not(self, roll: Roll, member: Member, step: int, manifest: str, now: datetime) -> str:
        """Why a step, and a checkpoint of it where there is a ``manifest``, cannot be true; "" if they can. Written
        down once a rank, for steps and for manifests. StateError."""
        if roll.bounds is None:
            roll.bounds = self.of(roll.attempt)
        bounds: Bounds = roll.bounds
        about, why = "step", bounds.of_step(step, *since(roll, now))
        if not why and manifest:
            about, why = "manifest", bounds.of_manifest(manifest)
        if why and about not in member.disbelieved:
            member.disbelieved.add(about)
            _log.warning("%s rank %s: %s", roll.attempt.id, member.record.rank, why)
            self.store.note(roll.attempt.id, NOT_BELIEVED, now, rank=member.record.rank, why=why)
        return why

    def of(self, attempt: Attempt) -> Bounds:
        """StateError."""
        stores = tuple(sorted(self.stores(attempt.job)))
        steps, measured = _of_job(self.store.job(attempt.job_digest))
        rate = max(measured, self._plan(attempt.plan).get(attempt.job, 0.0))
        return Bounds(steps, rate / 3600 if rate else None, stores)

    def _plan(self, digest: str) -> Mapping[str, float]:
        with self._lock:
            if digest not in self._rates:
                self._rates[digest] = _rates(self.store.plan(digest))
            return self._rates[digest]


def since(roll: Roll, now: datetime) -> tuple[int, float]:
    """The last step of the gang that is confirmed to be saved, and how many seconds ago that was."""
    attempt = roll.attempt
    saved = [
        (step, member.news.get("saved_at", member.record.saved_at) or now)
        for member in roll.members.values()
        if (step := member.news.get("saved_step", member.record.saved_step)) is not None
    ]
    began = attempt.met_at or attempt.made_at or attempt.created_at
    step, at = max([(attempt.first_step, began), *saved], key=lambda known: known[0])
    return step, (now - at).total_seconds()


def _of_job(text: str | None) -> tuple[int | None, float]:
    """Steps in all, and steps an hour at the fastest that was measured (0: nothing was)."""
    try:
        job = json.loads(text or "null")
        steps = job["steps"]
        points = job["workload"].get("profile") or ()
        rates = [float(point["steps_per_hour"]) for point in points if point.get("steps_per_hour")]
        rates += [3600 / float(point["seconds_per_step"]) for point in points if point.get("seconds_per_step")]
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None, 0.0
    return (steps if isinstance(steps, int) else None), max(rates, default=0.0)


def _rates(plan: str | None) -> dict[str, float]:
    """Steps an hour by job, on the fastest machines that the plan names for it."""
    try:
        content = json.loads(plan or "null")
        found: dict[str, float] = {}
        for line in content["lines"]:
            found[line["job"]] = max(found.get(line["job"], 0.0), float(line["steps_per_hour"]))
    except (ValueError, KeyError, TypeError):
        return {}
    return found


def _path(url: str) -> str:
    """A URL as a path that can be compared: files are called by theirs, whatever the URL."""
    return url.partition("?")[0].removeprefix("file://") if "://" in url else url
