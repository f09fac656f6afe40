"""The plan of the nightly examples, made once for all tests of a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

from router.app.plan import PlanOptions, plan_request
from router.planning.plan import Plan
from router.planning.planner import PlanRequest, make_plan
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
FOLDER = ROOT / "examples" / "nightly"


@cache
def nightly_request() -> PlanRequest:
    """What ``make plan`` asks, with a gap that is quickly reached and shadow prices as estimates."""
    options = PlanOptions(gap=0.03)
    made = plan_request([str(FOLDER)], "embedded", FOLDER / "limits.yaml", NOW, options).request
    return replace(made, resolve_limits=0)


@cache
def nightly_plan() -> Plan:
    """The plan; equal for every test."""
    return make_plan(nightly_request())
