"""The next plan assumes in a place the figure that gangs measured there, where it is below half of the data sheet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from pricing.book_file import embedded_book
from router.app.learned import describe_experience, runs_from_file, runs_to_json
from router.jobs.experience import Experience, RunRecords, learn
from router.jobs.limits import Limits
from router.jobs.measured_speed import COUNTS_FOR, FabricRun, explain_network, learn_fabrics
from router.jobs.spec import Job
from router.jobs.speed import bus_bandwidth
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.find.candidates import CandidateFinder
from router.planning.planner import PlanRequest, make_plan
from tests.support.scenes import NOW

P5 = "p5.48xlarge"
SLOW = FabricRun("slow-1", "aws", "us-east-1", None, P5, 2, 4.0, 400.0, NOW - timedelta(days=1))
JOB = Job.model_validate(
    {
        "name": "llm", "team": "a", "steps": 1000,
        "workload": {"transformer": {
            "parameters": 7e9, "layers": 32, "hidden": 4096, "sequence_length": 4096, "tokens_per_step": 262144,
        }},
        "gang": {"accelerators": "H100:16"}, "checkpoint": {"size_gib": 80},
        "residency": {"allow": ["aws/us-east-1", "aws/us-east-2"]},
    }
)  # fmt: skip


def test_the_newest_measurement_of_a_place_counts_for_a_month() -> None:
    fine = replace(SLOW, attempt="fine-1", gb_per_s=390.0, at=NOW)
    other = replace(SLOW, attempt="other-1", zone="us-east-1a")
    assert learn_fabrics((fine, SLOW, other), NOW) == (fine, other)
    assert learn_fabrics((fine, SLOW), NOW - timedelta(hours=1)) == (SLOW,)
    assert learn_fabrics((SLOW,), SLOW.at + COUNTS_FOR) == (SLOW,)
    assert learn_fabrics((SLOW,), SLOW.at + COUNTS_FOR + timedelta(seconds=1)) == ()


def test_below_half_the_place_is_planned_as_an_ethernet_of_that_speed_and_says_so() -> None:
    machine = embedded_book().machine("aws", P5)
    assert machine is not None
    seen = Experience(fabrics=(SLOW,)).machine(machine, "us-east-1", "us-east-1f")
    assert (seen.fabric, seen.has_rdma) == ("ethernet", False)
    assert bus_bandwidth(seen) == pytest.approx(4.0)
    assert "an all-reduce there gave 4 of 400 GB/s" in explain_network(seen)
    assert Experience(fabrics=(SLOW,)).machine(machine, "us-east-2", None) is machine
    # A short all-reduce of a healthy fabric is no better than the rates that speeds are fitted with.
    assert Experience(fabrics=(replace(SLOW, gb_per_s=201.0),)).machine(machine, "us-east-1", None) is machine
    zoned = Experience(fabrics=(replace(SLOW, zone="us-east-1a"),))
    assert zoned.machine(machine, "us-east-1", "us-east-1b") is machine
    assert zoned.machine(machine, "us-east-1", "us-east-1a") is not machine


def test_a_plan_takes_the_speed_of_the_place_and_can_be_made_again() -> None:
    book = embedded_book()
    experience = learn(RunRecords(fabrics=(SLOW,)), [JOB], book, NOW)
    assert experience is not None
    assert describe_experience(experience) == ("all-reduces measured in 1 place (--learned none leaves them out)",)
    finder = CandidateFinder(book, Limits.none(), NOW, advisory=False, experience=experience)
    found, _ = finder.find(JOB)
    speeds = {(c.region.region, c.parts[0].offer.instance_type): c for c in found}
    slow, usual = speeds["us-east-1", P5], speeds["us-east-2", P5]
    assert slow.steps_per_hour < usual.steps_per_hour
    assert "over ethernet: an all-reduce there gave 4 of 400 GB/s" in slow.speed_basis
    plan = make_plan(PlanRequest(jobs=(JOB,), book=book, limits=Limits.none(), now=NOW, experience=experience))
    assert {line.region for line in plan.lines} == {"us-east-2"}
    assert plan_from_json(plan_to_json(plan), "plan").learned == experience


def test_without_measurements_a_plan_has_no_such_key(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert learn(RunRecords(), [JOB], embedded_book(), NOW) is None
    assert "fabrics" not in str(Experience().digest)
    file = tmp_path_factory.mktemp("runs") / "runs.json"
    file.write_text(runs_to_json(RunRecords(fabrics=(SLOW,))))
    assert runs_from_file(file) == RunRecords(fabrics=(SLOW,))
