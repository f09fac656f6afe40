"""A plan on paper: the same bytes, back again unchanged, and refused when it is not what it says."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pricing.problems import InvalidInputError, Problem
from router.config.plan_files import read_plan
from router.planning.document.inputs import GangUse, LimitAmount
from router.planning.document.plan import Plan
from router.planning.document.plan_json import SCHEMA_VERSION, plan_content, plan_from_json, plan_to_json
from tests.support.nights import NO_INPUTS
from tests.support.scenes import ALPS, BAY, NORTH, NORTH_SPOT, SOUTH, a_job, plan_of


def some_plan(**more: Any) -> Plan:
    data = {"uri": "s3://a/b", "at": "aws/alps-1", "gib": 50}
    jobs = [a_job("a"), a_job("b", deadline="+9h", data=data), a_job("late", deadline="+1h"), a_job("long", steps=2000)]
    return plan_of(jobs, [NORTH, NORTH_SPOT, SOUTH, ALPS, BAY], {"default_cap_machines": 1}, **more)


def refusal(text: str) -> Problem:
    with pytest.raises(InvalidInputError) as refused:
        plan_from_json(text, "plan.json")
    (problem,) = refused.value.problems
    assert problem.where.startswith("plan.json")
    return problem


def redigested(change: dict[str, Any]) -> str:
    """The document changed by someone who knows how digests are made."""
    content = {**plan_content(some_plan()), **change}
    bare = {key: value for key, value in content.items() if key not in ("digest", "plan_id", "inputs", "usage")}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    return json.dumps(content | {"digest": hashlib.sha256(text.encode()).hexdigest()})


def test_a_plan_comes_back_unchanged_and_byte_for_byte() -> None:
    plan = some_plan()
    text = plan_to_json(plan)
    assert plan_from_json(text) == plan
    assert plan_to_json(plan_from_json(text)) == text
    kinds = {line.kind for line in plan.lines}
    assert kinds == {"order", "outlook"}
    assert plan.unplaced
    assert plan.moves or all(job.runner_up for job in plan.jobs if job.finish)


def test_the_same_inputs_give_the_same_bytes_whatever_their_order() -> None:
    offers = [NORTH, NORTH_SPOT, SOUTH, ALPS]
    jobs = [a_job("a"), a_job("b", deadline="+9h"), a_job("c", steps=900)]
    forward, backward = plan_of(jobs, offers), plan_of(jobs[::-1], offers[::-1])
    assert plan_to_json(forward) == plan_to_json(backward)


def test_the_id_and_the_digest_name_the_content() -> None:
    content = plan_content(some_plan())
    bare = {key: value for key, value in content.items() if key not in ("digest", "plan_id", "inputs", "usage")}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    assert content["digest"] == hashlib.sha256(text.encode()).hexdigest()
    assert content["plan_id"] == f"plan-{content['digest'][:12]}"
    other = plan_content(replace(some_plan(), solver="other"))
    assert other["plan_id"] != content["plan_id"]


def test_money_is_text_and_times_end_in_z() -> None:
    def leaves(node: Any, name: str = "") -> Any:
        if isinstance(node, dict):
            for key, value in node.items():
                yield from leaves(value, key)
        elif isinstance(node, list):
            for value in node:
                yield from leaves(value, name)
        else:
            yield name, node

    found = list(leaves(plan_content(some_plan())))
    money = [value for name, value in found if "usd" in name and value is not None]
    times = [value for name, value in found if name in ("start", "end", "finish", "deadline", "as_of", "expires_at")]
    assert money
    assert all(isinstance(value, str) for value in money)
    assert all(value is None or value.endswith("Z") for value in times)
    assert text_of_plan().endswith("}\n")


def text_of_plan() -> str:
    return plan_to_json(some_plan())


@pytest.mark.parametrize("change", [{"cost_usd": "1.00"}, {"lines": []}, {"status": "optimal "}, {"more": 1}])
def test_an_edited_plan_is_refused(change: dict[str, Any]) -> None:
    problem = refusal(json.dumps({**plan_content(some_plan()), **change}))
    assert (problem.field, "was changed after it was made" in problem.what) == ("digest", True)
    assert "make the plan again" in problem.remedy


def test_spaces_and_order_are_no_edit() -> None:
    plan = some_plan()
    assert plan_from_json(json.dumps(plan_content(plan), indent=7)) == plan


def test_inputs_are_read_back_and_move_no_digest() -> None:
    limits = {
        "limits": [{"name": "quota", "amount": 8, "unit": "accelerators"}],
    }
    plan = plan_of([a_job()], [NORTH], limits)
    assert plan.inputs is not None
    assert plan.inputs.limits == (LimitAmount("quota", 8, "accelerators"),)
    assert plan.inputs.use == (GangUse("a/1", "quota", 8),)
    assert plan_from_json(plan_to_json(plan)) == plan
    other = replace(plan, inputs=NO_INPUTS)
    assert plan_content(other)["digest"] == plan_content(plan)["digest"]
    assert plan_from_json(plan_to_json(other)) == other


@pytest.mark.parametrize("change", [{"limits": []}, {"use": []}, {"digest": None}, None])
def test_edited_inputs_are_refused(change: dict[str, Any] | None) -> None:
    content = plan_content(some_plan())
    edited = {**content, "inputs": "none" if change is None else {**content["inputs"], **change}}
    assert refusal(json.dumps(edited)).field == "inputs.digest"


def test_inputs_of_another_plan_are_refused() -> None:
    content, other = plan_content(some_plan()), plan_content(replace(some_plan(), solver="other"))
    assert refusal(json.dumps({**content, "inputs": other["inputs"]})).field == "inputs.digest"


def test_a_digest_that_was_taken_away_is_missed() -> None:
    content = plan_content(some_plan())
    del content["digest"]
    assert refusal(json.dumps(content)).field == "digest"


def test_a_plan_of_a_later_schema_is_refused_before_anything_else() -> None:
    later = json.dumps({"schema_version": SCHEMA_VERSION + 1, "new": {}})
    assert f"schema_version {SCHEMA_VERSION + 1} is not {SCHEMA_VERSION}" in refusal(later).what


@pytest.mark.parametrize("keep", [0, 1, 40, 2000, -2, -30])
def test_a_truncated_plan_is_refused_with_the_place_where_it_ends(keep: int) -> None:
    problem = refusal(text_of_plan()[:keep])
    assert "is not JSON" in problem.what
    assert problem.where.count(":") == 2


@pytest.mark.parametrize("text", ["[]", "1", "null", "{}", '{"name": "a"}', '"plan"'])
def test_other_json_is_no_plan(text: str) -> None:
    assert "is no plan" in refusal(text).what


@pytest.mark.parametrize(
    "change",
    [
        {"lines": [{}]},
        {"lines": None},
        {"book": "x"},
        {"cost_usd": "much"},
        {"as_of": "tonight"},
        {"jobs": [1]},
        {"moves": [{"from": "a"}]},
        {"schema_version": "1"},
        {"unplaced": [{"relaxations": []}]},
    ],
    ids=str,
)
def test_what_is_no_plan_inside_is_refused_even_with_a_true_digest(change: dict[str, Any]) -> None:
    refusal(redigested(change))


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    binary = tmp_path / "plan.json"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, words in (
        (tmp_path / "none.json", "no such file"),
        (binary, "is not text"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(InvalidInputError, match=words) as refused:
            read_plan(path)
        assert refused.value.problems[0].where == str(path)
    binary.write_text(text_of_plan(), encoding="utf-8")
    assert read_plan(binary) == some_plan()
