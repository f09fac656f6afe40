"""The plan of the nightly examples, made once for all tests of a run."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from filelock import FileLock

from router.app.plan import PlanOptions, plan_request
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.planner import PlanRequest, make_plan
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
FOLDER = ROOT / "examples" / "nightly"


@cache
def nightly_request() -> PlanRequest:
    """Return the request of ``make plan`` with a gap soon reached, and shadow prices as estimates; counts end it."""
    options = PlanOptions(gap=0.03)
    made = plan_request([str(FOLDER)], "embedded", FOLDER / "limits.yaml", NOW, options).request
    return replace(made, resolve_limits=0, time_limit=timedelta(hours=1))


@cache
def nightly_plan() -> Plan:
    """The plan; equal for every test, and made by the first process of a run that asks for it."""
    file = Path(os.environ["STEPFARE_TESTS_SHARED"]) / "night.json"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            file.write_text(plan_to_json(make_plan(nightly_request())), encoding="utf-8")
    return plan_from_json(file.read_text(encoding="utf-8"))
