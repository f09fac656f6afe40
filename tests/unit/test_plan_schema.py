"""The plan's schema: as it lies in docs, of one mind with the plan, and strict."""

from __future__ import annotations

import copy
import json
from dataclasses import fields
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from router.jobs.experience import Experience
from router.planning.document import plan as values
from router.planning.document.inputs import PlanInputs
from router.planning.document.plan_json import plan_content
from router.planning.document.plan_schema import FIELD_DESCRIPTIONS, plan_schema, plan_schema_text
from router.planning.document.plan_usage import PlanUsage
from tests.support.night import nightly_plan
from tests.support.repository import ROOT
from tests.support.scenes import ALPS, BAY, NORTH, NORTH_SPOT, SOUTH, a_job, plan_of

REQUIRED = {
    "": "schema_version plan_id digest as_of expires_at book horizon status time_limit_hit cost_usd orders_usd "
    "bound_usd gap lines moves unplaced shadow_prices jobs",
    "line": "job gang kind provisionable max_usd_per_hour cloud region zone instance_type market machines accelerator "
    "accelerators start end hours usd_per_hour steps steps_per_hour usd_per_step cost_usd",
    "move": "job from to gib cost_usd",
    "unplaced": "job reason relaxations",
    "shadow_price": "limit usd_per_unit unit basis",
    "job_summary": "job job_digest team cost_usd usd_per_step finish on_time_probability runner_up alternatives",
}

# Left out at their default.
OPTIONAL = {
    "": {
        "cuts",
        "fair_share",
        "carbon",
        "commitments",
        "learned",
        "name",
        "restricted_to",
        "optimistic",
    },
    "line": {"policy", "reservation_cost", "capacity", "grams_co2e", "carbon_usd", "carbon_doubt", "fallback"},
    "shadow_price": {"raised_by", "machines", "instance_type", "saves_usd", "places"},
    "alternative": {"reservation_cost", "amortised_usd_per_hour", "grams_co2e", "carbon_usd"},
    "job_summary": {"preemption", "grams_co2e", "carbon_usd", "late"},
}


def errors(document: object) -> list[str]:
    checker = Draft202012Validator.FORMAT_CHECKER
    found = Draft202012Validator(plan_schema(), format_checker=checker).iter_errors(document)
    return [f"{'.'.join(map(str, e.path))}: {e.message[:200]}" for e in found]


def small() -> dict[str, Any]:
    """A plan with a line, a move, alternatives, a job that is left out with relaxations, and a shadow price."""
    data = {"uri": "s3://a/b", "at": "aws/alps-1", "gib": 50}
    one = {"limits": [{"name": "one", "cloud": "aws", "market": "on_demand", "amount": 8, "unit": "accelerators"}]}
    jobs = [a_job("a", deadline="+4h"), a_job("b", deadline="+8h", data=data), a_job("late", deadline="+1h")]
    return plan_content(plan_of(jobs, [NORTH, NORTH_SPOT, SOUTH, ALPS, BAY], one))


def test_the_published_file_is_the_schema() -> None:
    """When this fails: `stepfare schema plan > docs/schema/plan.json`."""
    assert (ROOT / "docs/schema/plan.json").read_text(encoding="utf-8") == plan_schema_text()


def test_it_is_a_schema_in_its_own_dialect() -> None:
    schema = json.loads(plan_schema_text())
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema")


def test_it_has_every_field_that_was_promised() -> None:
    schema = plan_schema()
    for part, names in REQUIRED.items():
        found = schema if not part else schema["$defs"][part]
        assert set(names.split()) <= set(found["required"]), part
        assert set(found["required"]) == set(found["properties"]) - OPTIONAL.get(part, set()), part
        assert found["additionalProperties"] is False
    assert schema["properties"]["book"]["required"] == ["digest", "as_of"]
    assert schema["properties"]["horizon"]["required"] == ["start", "end"]


def test_every_field_is_described_and_nothing_else_is() -> None:
    for kind, words in FIELD_DESCRIPTIONS.items():
        digest = {"digest"} if kind in (PlanInputs, PlanUsage, Experience) else set()
        extra = {"billed_microseconds"} if kind in (values.Line, values.LineFallback) else digest
        assert set(words) - {""} == {f.name for f in fields(kind)} | extra
    described = json.loads(plan_schema_text())
    for part in (described, *described["$defs"].values()):
        assert all("description" in field for field in part.get("properties", {}).values())


@pytest.mark.slow
def test_a_plan_of_the_nightly_examples_is_valid() -> None:
    document = json.loads(json.dumps(plan_content(nightly_plan())))
    assert errors(document) == []
    assert len(document["jobs"]) >= 16
    assert document["moves"]
    # Fallbacks: three for each job where there are as many.
    assert sum(len(job["alternatives"]) >= 3 for job in document["jobs"]) >= 16


def test_a_plan_with_everything_in_it_is_valid() -> None:
    document = small()
    assert errors(document) == []
    assert document["lines"]
    assert document["unplaced"][0]["relaxations"]
    assert any(not a["provisionable"] for job in document["jobs"] for a in job["alternatives"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), 2),
        (("cost_usd",), 20373.23),
        (("cost_usd",), "$20,373.23"),
        (("cost_usd",), "1e3"),
        (("bound_usd",), "1.2345678901"),
        (("as_of",), "2026-11-21T18:00:00+01:00"),
        (("as_of",), "2026-11-21"),
        (("status",), "fine"),
        (("surprise",), 1),
        (("digest",), "abc"),
        (("gap",), -0.1),
        (("lines", 0, "kind"), "wish"),
        (("lines", 0, "machines"), 0),
        (("lines", 0, "market"), "od"),
        (("lines", 0, "steps"), 1.5),
        (("lines", 0, "zone"), 1),
        (("lines", 0, "surprise"), 1),
        (("jobs", 0, "runner_up"), "none"),
        (("jobs", 0, "confidence"), 95),
        (("book", "source"), "x"),
    ],
)
def test_what_is_no_plan_is_refused(path: tuple[str | int, ...], value: object) -> None:
    document: Any = copy.deepcopy(small())
    at = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert errors(document)


def test_nothing_may_be_missing() -> None:
    document = small()
    for name in document.keys() - OPTIONAL[""]:
        assert errors({key: value for key, value in document.items() if key != name}), name
