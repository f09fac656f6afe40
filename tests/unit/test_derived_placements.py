"""Types derived from the estimated step: gangs against them are left out where others serve the job."""

from __future__ import annotations

from typing import Any

import pytest

from pricing.machines import Machine
from pricing.offers import Offer
from router.jobs.layouts import time_layouts
from router.jobs.spec import Job
from router.jobs.speed import UnknownSpeed, gang_links
from router.planning.document.plan import Plan
from router.planning.find.placement_type import JobPlacementType
from router.planning.planner import make_plan
from router.render.explain_text import job_text
from tests.support.checker import check_plan
from tests.support.instances import Instance
from tests.support.made_up_book import ACCELERATORS, MACHINES, book, offer
from tests.support.made_up_jobs import make_limits
from tests.support.scenes import HOUR, NOW, a_job, places, plan_of
from tests.support.solved_instances import differences, request_of, solve_instance

SHAPE = {"parameters": "7B", "layers": 32, "hidden": 4096, "sequence_length": 2048, "tokens_per_step": 65536}
DATA = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 2000}
# Cheap, without a fabric and in no named zone; dear, with one.
TCP = offer("aws/south-1", "g9.48xlarge", "on_demand", "3")
RHINE = offer("gcp/rhine-1", "a7-highgpu-8g", "on_demand", "60")
# Each alone too small for sixteen; in NORTH there are enough.
NORTH = offer("aws/north-1", "p9.48xlarge", "on_demand", "60")
FJORD = offer("azure/fjord-1", "ND96_h9", "on_demand", "30", cap=1)
LAKE = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "31", cap=1)
DEAR_HOME = offer("aws/north-1", "p9.48xlarge", "on_demand", "300")
ALPS = offer("aws/alps-1", "p9.48xlarge", "on_demand", "20")


def shaped(options: dict[str, Any], *, steps: int = 300, **more: Any) -> Job:
    """A transformer on these gangs, in any zones."""
    fields = {name: more.pop(name) for name in ("placement", "data", "status", "deadline", "budget") if name in more}
    content = a_job(steps=steps).model_dump(mode="json") | fields
    work = {"profile": [], "transformer": SHAPE | more}
    return Job.model_validate(content | {"workload": work, "gang": {"accelerators": options, "same_zone": False}})


EXCHANGING = shaped({"A100-80GB": 32}, tokens_per_step=4096, steps=3000)
CRAMPED = shaped({"H100": [8, 16]}, parameters="36B", recompute="selective")
READING = shaped({"H100": 8}, data=DATA)
NIGHTS: dict[str, tuple[Job, tuple[Offer, ...], str, str]] = {
    "communication": (EXCHANGING, (TCP, RHINE), "gcp/rhine-1", "aws/south-1"),
    "memory": (CRAMPED, (NORTH, FJORD, LAKE), "aws/north-1", "azure/fjord-1"),
    "data": (READING, (DEAR_HOME, ALPS), "aws/north-1", "aws/alps-1"),
}


def type_in(plan: Plan) -> JobPlacementType:
    assert plan.usage is not None
    return plan.usage.placement_types[0]


@pytest.mark.parametrize("kind", NIGHTS)
def test_a_night_keeps_to_the_type_at_the_least_cost(kind: str) -> None:
    """The plan is the brute force's over the gangs that the type permits; `placement: none` takes the cheaper place."""
    job, offers, here, instead = NIGHTS[kind]
    night = Instance(0, (job,), book(offers), make_limits({}), NOW, 6 * HOUR, HOUR)
    plan = make_plan(request_of(night, gap=0.0, confidence_rounds=0, resolve_limits=0))
    assert (type_in(plan).type, type_in(plan).basis, type_in(plan).used) == (kind, "derived", True)
    assert {place.split()[0] for place in places(plan).values()} == {here}
    assert differences(solve_instance(night), plan, 0.0) == []
    free = plan_of([job.model_copy(update={"placement": "none"})], offers)
    assert {place.split()[0] for place in places(free).values()} == {instead}
    assert free.cost_usd < plan.cost_usd
    cost = next(c for c in plan.jobs[0].constraint_costs if c.rule == "placement")
    assert cost.saving_usd == plan.cost_usd - free.cost_usd
    assert f"{kind}-bound (derived)" in job_text(plan, "a")
    assert "gangs against it are left out" in " ".join(job_text(plan, "a").split())
    assert any(row.reason == "placement" for row in plan.jobs[0].dropped)


@pytest.mark.parametrize("kind", NIGHTS)
def test_a_stated_placement_of_that_type_gives_the_same_places(kind: str) -> None:
    job, offers, _, _ = NIGHTS[kind]
    stated = plan_of([job.model_copy(update={"placement": kind})], offers)
    derived = plan_of([job], offers)
    assert (places(stated), stated.cost_usd) == (places(derived), derived.cost_usd)


@pytest.mark.parametrize("kind", NIGHTS)
def test_the_checker_finds_a_gang_against_the_type(kind: str) -> None:
    job, offers, _, _ = NIGHTS[kind]
    free = plan_of([job.model_copy(update={"placement": "none"})], offers)
    used = plan_of([job], offers)
    wrong = Plan(**{**{f: getattr(free, f) for f in free.__dataclass_fields__}, "usage": used.usage})
    found = check_plan(wrong, [job], book(offers), make_limits({}))
    assert any(words.startswith("check_placement") for words in found)


def test_where_nothing_that_keeps_to_it_serves_the_job_the_type_is_advice() -> None:
    for job, offers in (
        (EXCHANGING, (TCP,)),
        (EXCHANGING.model_copy(update={"budget": plan_of([EXCHANGING], [TCP]).cost_usd}), (TCP, RHINE)),
    ):
        plan = plan_of([job], offers)
        assert set(places(plan).values()) == {"aws/south-1 on_demand"}
        assert not type_in(plan).used
        assert "no gang that keeps to it serves the job" in type_in(plan).why
        assert "advice, nothing is ruled out" in " ".join(job_text(plan, "a").split())


def test_a_derived_type_moves_no_running_job() -> None:
    here = {"cloud": "aws", "region": "south-1", "instance_type": "g9.48xlarge", "market": "on_demand"}
    status = {"steps_done": 100, "running": here | {"accelerators": 32}}
    running = Job.model_validate(EXCHANGING.model_dump(mode="json") | {"status": status})
    plan = plan_of([running], [TCP, RHINE])
    assert places(plan) == {"a": "aws/south-1 on_demand"}
    assert check_plan(plan, [running], book([TCP, RHINE]), make_limits({})) == []


@pytest.mark.parametrize(("one", "term"), [(TCP, "exchange of gradients"), (RHINE, "compute")])
def test_the_largest_term_is_that_of_the_step_model(one: Offer, term: str) -> None:
    """On one machine type the terms are the parts of its only layout, worked out from the model itself."""
    machine: Machine = next(m for m in MACHINES if m.instance_type == one.instance_type)
    model, accelerator = EXCHANGING.workload.transformer, next(a for a in ACCELERATORS if a.name == "A100-80GB")
    assert model is not None
    links = gang_links(model.precision, machine, 4, accelerator)
    assert not isinstance(links, UnknownSpeed)
    timed = time_layouts(model, links)
    assert timed is not None
    assert len(timed.layouts) == 1
    names = {"compute": "compute", "bubble": "pipeline bubble", "tensor": "tensor parallelism", "experts": "experts"}
    names["exchange"] = "exchange of gradients"
    parts = {words: float(getattr(timed.parts, name)[0]) for name, words in names.items()}
    found = type_in(plan_of([EXCHANGING], [one]))
    assert found.term == term == max(parts, key=lambda name: parts[name])
    assert found.term_share == pytest.approx(parts[term] / sum(parts.values()), abs=1e-6)
    assert found.type == ("compute" if term == "compute" else "communication")


def test_measured_points_alone_give_advice() -> None:
    job = a_job(data=DATA | {"gib": 9e5})
    found = type_in(plan_of([job], [DEAR_HOME]))
    assert (found.type, found.used, found.term, found.term_share) == ("data", False, "", None)


def test_a_job_that_its_type_leaves_out_is_told_that_placement_none_would_place_it() -> None:
    """Both have 50 minutes, in which four machines with a fabric serve one of them."""
    content = EXCHANGING.model_dump(mode="json") | {"deadline": "+50m"}
    jobs = [Job.model_validate(content | {"name": name}) for name in ("a", "b")]
    few = offer("gcp/rhine-1", "a7-highgpu-8g", "on_demand", "60", cap=4)
    plan = plan_of(jobs, [TCP, few])
    assert len(plan.unplaced) == 1
    assert "placement none" in [change.change for change in plan.unplaced[0].relaxations]
