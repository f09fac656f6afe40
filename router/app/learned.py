"""Read what earlier runs measured, from the state or a file, for plans and quotes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pricing.book import PriceBook
from pricing.pool_experience import LossReason
from pricing.problems import InvalidInputError
from pricing.units import format_count, format_utc
from router.jobs.experience import Experience, PoolRun, RunRecords, SpeedRun
from router.jobs.measured_speed import FabricRun

SCHEMA_VERSION = 1
RunReader = Callable[[PriceBook], RunRecords]
T = TypeVar("T", SpeedRun, PoolRun, FabricRun)


def read_no_runs(_: PriceBook) -> RunRecords:
    """Return no runs: plans and quotes go by what jobs and book state."""
    return RunRecords()


def runs_to_json(records: RunRecords) -> str:
    """Return the runs as JSON, which ``--learned FILE`` reads; equal runs give equal bytes."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "speeds": [_plain(run) for run in records.speeds],
        "pools": [_plain(run) for run in records.pools],
        "fabrics": [_plain(run) for run in records.fabrics],
    }
    return json.dumps(document, indent=2) + "\n"


def runs_from_file(path: Path) -> RunRecords:
    """Return the runs in a file that :func:`runs_to_json` wrote. InvalidInputError where it holds none."""
    remedy = "stepfare profile list --out FILE writes one"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {document['schema_version']} is not {SCHEMA_VERSION}")
        speeds = tuple(_run(SpeedRun, row) for row in document["speeds"])
        if any(not 0 < run.steps_per_hour < float("inf") for run in speeds):
            raise ValueError("a speed is not above 0")
        fabrics = tuple(_run(FabricRun, row) for row in document.get("fabrics", ()))
        return RunRecords(speeds, tuple(_run(PoolRun, row) for row in document["pools"]), fabrics)
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise InvalidInputError.single(what, where=str(path), remedy=remedy) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError.single(f"holds no runs: {error!r}", where=str(path), remedy=remedy) from None


def describe_experience(experience: Experience | None) -> tuple[str, ...]:
    """Return a sentence on what a plan or quote learned; nothing where it learned nothing."""
    if experience is None:
        return ()
    parts = []
    if experience.speeds:
        runs = sum(row.runs for row in experience.speeds)
        jobs = len({row.job for row in experience.speeds})
        last = max(row.last_at for row in experience.speeds)
        parts.append(
            f"speeds of {format_count(jobs, 'job')} measured on {format_count(runs, 'earlier run')}, "
            f"last {last.astimezone(UTC):%Y-%m-%d}"
        )
    if experience.pools:
        gangs = sum(row.runs for row in experience.pools)
        parts.append(f"interruptions counted on {format_count(gangs, 'gang')}")
    if experience.fabrics:
        parts.append(f"all-reduces measured in {format_count(len(experience.fabrics), 'place')}")
    return (f"{'; '.join(parts)} (--learned none leaves them out)",)


def _plain(run: SpeedRun | PoolRun | FabricRun) -> dict[str, Any]:
    return {name: format_utc(value) if isinstance(value, datetime) else value for name, value in asdict(run).items()}


def _run(kind: type[T], row: dict[str, Any]) -> T:
    unknown = row.keys() - {field.name for field in fields(kind)}
    at = datetime.fromisoformat(row["at"])
    if unknown or at.tzinfo is None:
        raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}" if unknown else f"{at} has no time zone")
    stated = {"reason": LossReason(row["reason"])} if row.get("reason") is not None else {}
    return kind(**{**row, "at": at, **stated})
