"""On what speeds rest, as plan, quote and estimate say it, and the points that they propose to measure first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from router.jobs.profile_point import LearnedPoint, ProfilePoint
from router.jobs.spec import Job
from router.jobs.speed import Speed, gang_speed
from router.jobs.workload import Workload
from router.planning.document.gang_speeds import MOST_ADVISED, WORTH_MEASURING
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_from_json, plan_to_json
from router.planning.document.plan_schema import plan_schema
from router.planning.document.plan_usage import GangSpeed
from router.planning.document.restricted_plan import restrict_plan
from router.quotes.quote_json import quote_content, quote_from_json, quote_schema, quote_to_json
from router.render import plan_text, quote_text
from router.render.explain_text import job_text
from router.render.plan_text import measuring_lines
from router.render.quote_view import quote_view
from tests.support.asked_quotes import a_quote
from tests.support.books import MACHINE, MODEL
from tests.support.narrowed import typed
from tests.support.scenes import NORTH, NORTH_SPOT, SHAPE, SOUTH, a_job, plan_of


def shaped(steps: int = 8000, name: str = "shaped", **more: Any) -> Job:
    """A job of whose speed only the shape is known."""
    return a_job(name, steps=steps, **more).model_copy(
        update={"workload": Workload.model_validate({"transformer": SHAPE})}
    )


def speed_of(plan: Plan, job: str) -> GangSpeed:
    return next(speed for speed in plan.usage.speeds if speed.job == job)


def test_a_plan_says_of_each_gang_on_what_its_speed_rests() -> None:
    plan = plan_of([shaped(), a_job("known")], [NORTH, SOUTH])
    measured, estimated = speed_of(plan, "known"), speed_of(plan, "shaped")
    assert (measured.speed_evidence, measured.points) == ("measured", ())
    assert estimated.speed_evidence == "published"
    assert estimated.speed_basis.startswith("estimated from the shape, like ")
    assert estimated.relative_error > 0.1 > measured.relative_error
    assert {speed.gang for speed in plan.usage.speeds} == {line.gang for line in plan.lines}


def test_two_points_are_proposed_where_much_money_rests_on_an_estimate() -> None:
    plan = plan_of([shaped()], [NORTH])
    assert plan.cost_usd >= WORTH_MEASURING
    points = speed_of(plan, "shaped").points
    assert 1 <= len(points) <= 2
    assert points[-1].error_after < speed_of(plan, "shaped").relative_error
    cheap = plan_of([shaped(20)], [NORTH])
    assert cheap.cost_usd < WORTH_MEASURING
    assert speed_of(cheap, "shaped").points == ()


def test_the_record_is_in_the_json_beside_the_digest_and_reads_back() -> None:
    plan = plan_of([shaped()], [NORTH])
    content = plan_content(plan)
    row = content["usage"]["speeds"][0]
    assert row["speed_evidence"] == "published"
    assert row["points"][0]["cost_usd"] == str(speed_of(plan, "shaped").points[0].cost_usd)
    assert list(Draft202012Validator(plan_schema()).iter_errors(content)) == []
    assert plan_from_json(plan_to_json(plan)) == plan
    silent = replace(plan, usage=replace(plan.usage, speeds=()))
    assert plan_content(silent)["digest"] == content["digest"]


def test_wide_table_and_explanation_say_it_and_the_default_table_does_not_change() -> None:
    plan = plan_of([shaped()], [NORTH])
    error = f"±{speed_of(plan, 'shaped').relative_error:.0%}"
    command = "stepfare profile FILE --job shaped --points"
    wide, told = " ".join(plan_text.wide(plan).split()), " ".join(job_text(plan, "shaped").split())
    assert f"published {error}" in wide
    assert f"speed on 8 H100 like published runs, {error}" in told
    assert wide.count(command) == told.count(command) == 1
    silent = replace(plan, usage=replace(plan.usage, speeds=()))
    assert plan_text.table(plan) == plan_text.table(silent)


def test_a_team_sees_the_speeds_of_its_own_jobs_alone() -> None:
    plan = plan_of([shaped(team="one"), a_job("other", team="two")], [NORTH, SOUTH])
    assert {speed.job for speed in restrict_plan(plan, {"one"}).usage.speeds} == {"shaped"}


def test_a_quote_says_it_of_each_place_in_text_page_and_json() -> None:
    quote = a_quote(shaped(), 100, [NORTH, NORTH_SPOT])
    assert {place.speed_evidence for place in quote.places} == {"published"}
    assert quote.to_measure
    error = quote.places[0].relative_error or 0.0
    sentence = f"peed on 8 H100 like published runs, ±{error:.0%}: estimated from the shape"
    command = "stepfare profile FILE --job shaped --points"
    text = " ".join(quote_text.text(quote, "").split())
    page = " ".join(quote_view(quote, "").trust)
    assert text.count(sentence) == page.count(sentence) == 1
    assert text.count(command) == page.count(command) == 1
    assert quote_from_json(quote_to_json(quote)) == quote
    answers = {"schema_version": 1, "quotes": [quote_content(quote)], "budgets": [], "refused": []}
    assert list(Draft202012Validator(quote_schema()).iter_errors(answers)) == []


def test_a_quote_of_a_measured_job_proposes_nothing_and_older_quotes_are_silent() -> None:
    quote = a_quote(a_job(), 24, [NORTH])
    assert quote.to_measure is None
    assert {place.speed_evidence for place in quote.places} == {"measured"}
    assert "±" in quote_text.text(quote, "")
    older = [replace(place, speed_evidence="", speed_basis="", relative_error=None) for place in quote.places]
    told = quote_text.text(replace(quote, places=tuple(older), mean_error_usd=None), "")
    assert "speed on" not in told


def test_points_that_runs_taught_count_as_learned_whatever_the_words_of_a_file() -> None:
    point = {"accelerators": "H100:8", "steps_per_hour": 60, "source": "3 earlier runs of July"}
    for kind, evidence in ((ProfilePoint, "measured"), (LearnedPoint, "learned")):
        workload = Workload.model_validate({"profile": [point]}).model_copy(
            update={"profile": (kind.model_validate(point),)}
        )
        assert typed(Speed, gang_speed(workload, MACHINE, 1, MODEL)).evidence == evidence
        assert typed(Speed, gang_speed(workload, MACHINE, 2, MODEL)).evidence == evidence


def test_a_plan_of_many_estimated_jobs_says_that_it_names_the_dearest_alone() -> None:
    plan = plan_of([shaped()], [NORTH])
    speed = next(speed for speed in plan.usage.speeds if speed.points)
    many = [replace(speed, job=f"job-{number}") for number in range(MOST_ADVISED)]
    few, all_named = (replace(plan, usage=replace(plan.usage, speeds=tuple(many[begin:]))) for begin in (1, 0))
    assert [measuring_lines(each)[-1].startswith("of cheaper jobs") for each in (few, all_named)] == [False, True]
    assert len(measuring_lines(all_named, "job-1")) == 1
