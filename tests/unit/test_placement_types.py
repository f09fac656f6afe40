"""Placement types: a stated one drops offers with the reason, a derived one is advice with its figures."""

from __future__ import annotations

from typing import Any

import pytest

from router.jobs.spec import Job
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import placement_type_of
from router.planning.find.placement_type import JobPlacementType
from router.render.explain_text import job_text
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_job, make_limits
from tests.support.scenes import ALPS, LAKE, NORTH, NOW, SOUTH, a_job, found_for, places, plan_of

RHINE = offer("gcp/rhine-1", "a7-highgpu-8g", "on_demand", "25")
TCP = offer("aws/south-1", "g9.48xlarge", "on_demand", "30")
TCP_IN_ZONE = offer("aws/south-1", "g9.48xlarge", "on_demand", "30", zone="south-1a", cap=1)
OTHER_ZONE = offer("aws/south-1", "g9.48xlarge", "on_demand", "30", zone="south-1b", cap=1)
DATA = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 90}
SHAPE = {"parameters": "7B", "layers": 32, "hidden": 4096, "sequence_length": 2048, "tokens_per_step": 65536}


def shaped(options: dict[str, int], **changes: Any) -> Job:
    """A transformer on these gangs."""
    more = {key: changes.pop(key) for key in ("placement", "data", "steps") if key in changes}
    job = a_job(steps=more.pop("steps", 300)).model_dump(mode="json")
    work = {"profile": [], "transformer": SHAPE | changes}
    return Job.model_validate(job | {"workload": work, "gang": {"accelerators": options}} | more)


def dropped_by(job: Job, *offers: Any) -> list[str]:
    return [drop.reason for drop in found_for(job, offers)[1] if drop.code == "placement"]


def kept_for(job: Job, *offers: Any) -> list[str]:
    return sorted(f"{c.offer.region_id} {c.accelerator}" for c in found_for(job, offers)[0].values())


def type_of(job: Job, *offers: Any) -> JobPlacementType:
    candidates, dropped = found_for(job, offers)
    finder = CandidateFinder(book(offers), make_limits({}), NOW, advisory=False)
    return placement_type_of(finder, job, tuple(candidates.values()), dropped)


def wide_job(**more: Any) -> Job:
    """Sixteen A100, two machines, on any network and in any zones."""
    points = [
        {"accelerator": "A100-80GB", "count": 16, "steps_per_hour": 100, "fabric": f} for f in ("rdma", "ethernet")
    ]
    fields = {"name": "wide", "team": "red", "steps": 300, "options": [("A100-80GB", 16)], "profile": points}
    job = make_job({**fields, "checkpoint": {"size_gib": 10}})
    return job.model_copy(update={"gang": job.gang.model_copy(update={"same_zone": False}), **more})


def test_by_data_only_their_cloud_and_continent_remain() -> None:
    job = a_job(data=DATA).model_copy(update={"placement": "data"})
    assert kept_for(job, NORTH, SOUTH, ALPS, LAKE) == ["aws/north-1 H100", "aws/south-1 H100"]
    reasons = dropped_by(job, NORTH, SOUTH, ALPS, LAKE)
    assert reasons == [
        "placement data: aws/alps-1 is neither where the data lie nor on that cloud and continent",
        "placement data: gcp/lake-1 is neither where the data lie nor on that cloud and continent",
    ]


def test_where_copies_lie_counts_as_where_the_data_lie() -> None:
    job = a_job(data=DATA, status={"data_in": ["gcp/lake-1"]}).model_copy(update={"placement": "data"})
    assert "gcp/lake-1 H100" in kept_for(job, NORTH, ALPS, LAKE)


def test_by_communication_a_gang_stays_in_one_zone() -> None:
    spread = (TCP_IN_ZONE, OTHER_ZONE)
    assert len(kept_for(wide_job(), *spread)) == 1
    assert kept_for(wide_job(placement="communication"), *spread) == []


def test_by_communication_machines_have_a_fabric_or_a_zone() -> None:
    roomy = offer("aws/south-1", "g9.48xlarge", "on_demand", "30", zone="south-1a")
    job = wide_job(placement="communication")
    assert kept_for(job, TCP, roomy, RHINE) == ["aws/south-1 A100-80GB", "gcp/rhine-1 A100-80GB"]
    assert dropped_by(job, TCP) == [
        "placement communication: g9.48xlarge has no RDMA fabric, and nothing says that its machines share a zone"
    ]
    one_zone = job.model_copy(update={"gang": job.gang.model_copy(update={"same_zone": True})})
    assert dropped_by(one_zone, TCP, RHINE) == []


def test_by_memory_a_gang_has_some_to_spare() -> None:
    """16B parameters at 16 bytes over 4 need 60 GiB, and 69 with activations; over 8 much less."""
    tight = shaped({"H100": 4}, parameters="16B", sequence_length=4096, placement="memory", recompute="selective")
    half = offer("aws/north-1", "p9.24xlarge", "on_demand", "31")
    assert kept_for(tight.model_copy(update={"placement": None}), half) == ["aws/north-1 H100"]
    assert dropped_by(tight, half) == ["placement memory: 69 of 80 GiB a H100 leave less than 15% to spare"]
    assert dropped_by(shaped({"H100": 8}, parameters="16B", sequence_length=4096, placement="memory"), NORTH) == []


def test_none_rules_nothing_out() -> None:
    job = a_job(data=DATA).model_copy(update={"placement": "none"})
    assert len(kept_for(job, NORTH, SOUTH, ALPS, LAKE)) == 4
    assert type_of(job, NORTH).basis == "stated"


@pytest.mark.parametrize(
    ("job", "kind", "words"),
    [
        (shaped({"H100": 8}), "compute", "its largest term is compute"),
        (
            shaped({"H100": 4}, parameters="16B", sequence_length=4096),
            "memory",
            "it needs 86% of the accelerators' memory",
        ),
        (
            shaped({"A100-80GB": 32}, tokens_per_step=4096),
            "communication",
            "its largest term is exchange of gradients",
        ),
        (shaped({"H100": 8}, data={**DATA, "gib": 9e5}), "data", "its largest term is reading data"),
        (a_job(data={**DATA, "gib": 9e5}), "data", "reading its data takes"),
        (a_job(), "compute", "nothing says how much it exchanges"),
    ],
)
def test_a_type_is_derived_with_its_figures(job: Job, kind: str, words: str) -> None:
    half = offer("aws/north-1", "p9.24xlarge", "on_demand", "31")
    found = type_of(job, NORTH, half, TCP, RHINE)
    assert (found.type, found.basis) == (kind, "derived")
    assert words in found.why


def test_plans_say_the_type_and_what_the_rule_costs() -> None:
    job = a_job(data=DATA)
    free = plan_of([job], [SOUTH, LAKE])
    stated = plan_of([job.model_copy(update={"placement": "data"})], [SOUTH, LAKE])
    assert places(free) == {"a": "gcp/lake-1 on_demand"}
    assert places(stated) == {"a": "aws/south-1 on_demand"}
    cost = next(c for c in stated.jobs[0].constraint_costs if c.rule == "placement")
    assert cost.saving_usd == stated.cost_usd - free.cost_usd
    assert "data-bound (stated): the job file says so" in job_text(stated, "a")
    assert "(derived)" in job_text(free, "a")


def test_a_placement_that_is_not_stated_is_not_in_the_digest() -> None:
    plain = a_job(data=DATA)
    content = plain.model_dump(mode="json")
    assert content.pop("placement") is None
    assert Job.model_validate(content).digest == plain.digest
    assert plain.digest != plain.model_copy(update={"placement": "none"}).digest
