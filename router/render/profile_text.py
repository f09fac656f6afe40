"""Write what to measure of a job next, and what was measured: tables for people, JSON for programs. Pure functions."""

from __future__ import annotations

from typing import Any

from router.config.job_points import point_argument
from router.jobs.speed import UnknownSpeed
from router.jobs.step_measurement import DeviceMeasurement
from router.planning.find.next_points import MeasuringPlan, PointProposal
from router.render.record_table import RecordTable, TableColumn, json_document
from router.render.tables import PLAIN, Screen, format_table, format_usd, wrap_text


def table(job: str, result: MeasuringPlan | UnknownSpeed, file: str, screen: Screen = PLAIN) -> str:
    """Return the points to measure with cost and error, and how to write each result back."""
    if isinstance(result, UnknownSpeed):
        return wrap_text(f"{job}: {result.reason}", width=screen.width) + "\n"
    best = f"{result.best.accelerator}:{result.best.accelerators} on {result.best.parts[-1].listing.name}"
    error = f"{result.speed.relative_error:.0%}"
    head = f"{job}: {best} costs least; its speed is known within {error} ({result.speed.basis})"
    parts = [wrap_text(head, width=screen.width)]
    if not result.proposals:
        parts.append("nothing to measure: no point narrows that by a percentage point")
        return "\n\n".join(parts) + "\n"
    parts.append(_PROPOSALS.text(result.proposals, screen))
    parts.append("Train a few hundred steps on each, then write its result into the job file:")
    parts.append("\n".join(f"  stepfare profile {file} --add '{one.point}'" for one in result.proposals))
    return "\n\n".join(parts) + "\n"


_PROPOSALS: RecordTable[PointProposal] = RecordTable(
    (
        TableColumn("accelerator", lambda point: point.listing.accelerator.name),
        TableColumn("count", lambda point: point.accelerators),
        TableColumn("", lambda point: f"{point.listing.accelerator.name}:{point.accelerators}", "MEASURE"),
        TableColumn("placement", lambda point: point.placement, "PLACEMENT"),
        TableColumn("batch", lambda point: point.batch, "BATCH", "{:g}".format, right=True),
        TableColumn("place", lambda point: point.listing.name, "PLACE", width=34),
        TableColumn("usd", lambda point: point.usd, "COST", format_usd, right=True),
        TableColumn("relative_error_before", lambda point: round(point.error_before, 4)),
        TableColumn("", lambda point: point.error_after, "ERROR AFTER", "{:.0%}".format, right=True),
        TableColumn("relative_error_after", lambda point: round(point.error_after, 4)),
        TableColumn("add", lambda point: point.point),
    )
)


def as_json(job: str, result: MeasuringPlan | UnknownSpeed) -> str:
    """Return the same as JSON; ``best`` and ``points`` are absent where ``reason`` says why there are none."""
    document: dict[str, Any] = {"job": job}
    if isinstance(result, UnknownSpeed):
        document["reason"] = result.reason
    else:
        document["best"] = {
            "accelerator": result.best.accelerator,
            "accelerators": result.best.accelerators,
            "place": result.best.parts[-1].listing.name,
            "steps_per_hour": result.speed.steps_per_hour,
            "relative_error": result.speed.relative_error,
            "basis": result.speed.basis,
        }
        document["points"] = _PROPOSALS.records(result.proposals)
    return json_document(document)


def measurement_table(result: DeviceMeasurement, screen: Screen = PLAIN) -> str:
    """Return the steps that were timed, and each point as `--add` takes it."""
    head = f"{result.job}: one accelerator, {result.device}"
    header = ("BATCH", "LAYERS", "STEPS", "SECONDS", "SPREAD", "")
    rows = []
    for point in result.points:
        step = point.step
        for timing in step.timings:
            shape, spread = timing.shape, f"{timing.spread:.1%}"
            counts = (f"{shape.batch}", f"{shape.layers}", f"{len(timing.seconds)}")
            rows.append((*counts, f"{timing.median:.4g}", spread, "timed"))
        if not step.whole:
            batch = f"{step.timings[0].shape.batch}"
            rows.append((batch, f"{step.layers}", "", f"{step.seconds:.4g}", f"{step.relative_error:.1%}", "scaled"))
    parts = [head, format_table(header, rows, frozenset(header[:-1]), {}, screen)]
    parts += [f"batch {batch}: not measured, {reason}" for batch, reason in result.failed]
    parts.append("\n".join(point_argument(point.fields) for point in result.points))
    return "\n\n".join(parts) + "\n"


def measurement_json(result: DeviceMeasurement) -> str:
    """Return the same as JSON; `unlisted` is there where no price book has the accelerator."""
    document: dict[str, Any] = {
        "job": result.job,
        "device": result.device,
        "points": [
            {
                **point.fields,
                "add": point_argument(point.fields),
                "layers": point.step.layers,
                "timed": [
                    {
                        "layers": timing.shape.layers,
                        "steps": len(timing.seconds),
                        "median_s": float(f"{timing.median:.6g}"),
                        "spread": round(timing.spread, 4),
                    }
                    for timing in point.step.timings
                ],
            }
            for point in result.points
        ],
        "failed": [{"batch": batch, "reason": reason} for batch, reason in result.failed],
    }
    if result.unlisted:
        document["unlisted"] = result.unlisted
    return json_document(document)
