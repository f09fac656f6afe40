"""Figures of one planning, as a line of JSON and as Prometheus metrics for a textfile collector. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content
from router.render.figures import stamp
from router.render.record_table import SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class PlanningTimes:
    """When the plan was made, how long that took in all, and the seconds of each phase."""

    made_at: datetime
    seconds: float
    phases: Mapping[str, float]


def metrics_line(plan: Plan, times: PlanningTimes) -> str:
    """Return one line of JSON without its newline; money is written as decimal strings, times in UTC."""
    placed = sum(job.finish is not None for job in plan.jobs)
    content = {
        "schema_version": SCHEMA_VERSION,
        "made_at": stamp(times.made_at),
        "as_of": stamp(plan.as_of),
        "digest": plan_content(plan)["digest"],
        "book": plan.book_digest,
        "status": plan.status,
        "jobs": len(plan.jobs),
        "placed": placed,
        "unplaced": len(plan.unplaced),
        "cost_usd": str(plan.cost_usd),
        "orders_usd": str(plan.orders_usd),
        "threshold_usd": str(plan.threshold_usd),
        "bound_usd": str(plan.bound_usd),
        "gap": plan.gap,
        "gap_asked": plan.gap_asked,
        "seconds": round(times.seconds, 3),
        "phases": {name: round(seconds, 3) for name, seconds in times.phases.items()},
        "solver": plan.solver,
        "time_limit_hit": plan.time_limit_hit,
        "cuts": [{"phase": cut.phase, "by": cut.by} for cut in plan.cuts],
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def prometheus_text(plan: Plan, times: PlanningTimes) -> str:
    """Return the metrics in Prometheus' text format, each a gauge of the last planning."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()

    def gauge(name: str, text: str, value: float) -> None:
        Gauge(name, text, registry=registry).set(value)

    def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> None:
        family = Gauge(name, text, [label], registry=registry)
        for key, value in values.items():
            family.labels(key).set(value)

    placed = sum(job.finish is not None for job in plan.jobs)
    cuts = {by: float(sum(cut.by == by for cut in plan.cuts)) for by in ("time", "work", "failure")}
    info = Gauge(
        "stepfare_plan_info", "Status and solver of the last plan; always 1.", ["status", "solver"], registry=registry
    )
    info.labels(plan.status, plan.solver).set(1)
    gauge("stepfare_plan_made_timestamp_seconds", "When the last plan was made.", times.made_at.timestamp())
    gauge("stepfare_plan_as_of_timestamp_seconds", "Moment for which the last plan was made.", plan.as_of.timestamp())
    gauge(
        "stepfare_plan_expires_timestamp_seconds",
        "Until when the last plan may be applied.",
        plan.expires_at.timestamp(),
    )
    gauge("stepfare_plan_book_timestamp_seconds", "Date of the prices of the last plan.", plan.book_as_of.timestamp())
    gauges(
        "stepfare_plan_jobs",
        "Jobs of the last plan.",
        "result",
        {"placed": float(placed), "unplaced": float(len(plan.unplaced))},
    )
    gauge("stepfare_plan_cost_usd", "Cost of the last plan in dollars.", plan.cost_usd.dollars())
    gauge("stepfare_plan_orders_usd", "Cost of the orders of the last plan in dollars.", plan.orders_usd.dollars())
    gauge("stepfare_plan_bound_usd", "Proven bound of cost and thresholds in dollars.", plan.bound_usd.dollars())
    gauge("stepfare_plan_gap_ratio", "Gap of the last plan to its bound.", plan.gap)
    gauge("stepfare_plan_gap_asked_ratio", "Gap at which the search could stop.", plan.gap_asked)
    gauge("stepfare_plan_duration_seconds", "How long the last planning took.", times.seconds)
    gauges("stepfare_plan_phase_seconds", "How long each phase of the last planning took.", "phase", times.phases)
    gauges("stepfare_plan_cuts", "Phases that ended before they were done, by reason.", "by", cuts)
    return generate_latest(registry).decode()
