"""What machines boot from: each that can be ordered has a documented image, and none without one is ordered."""

from __future__ import annotations

from collections import Counter
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

from pricing.book_file import embedded_book
from pricing.machine_images import MachineImage, explain_unmade, find_machine_image, machine_images, with_usable_fabric
from pricing.machines import Machine
from pricing.money import UsdPerHour
from pricing.offers import Offer, mark_capped_spot
from pricing.places import PROVISIONABLE_CLOUDS, Market
from pricing.table_rows import parse_rows, read_table
from router.agent.config import GPU_VENDORS
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.find.candidates import CandidateFinder
from router.planning.planner import PlanRequest, make_plan
from tests.support.narrowed import present
from tests.support.scenes import NOW

CLOUDS = {"aws", "azure", "gcp"}


@cache
def documented() -> tuple[MachineImage, ...]:
    """The table as it is, without what tests add for made-up machines."""
    return parse_rows(MachineImage, read_table("images"))


def a_job(accelerators: str, **more: Any) -> Job:
    return Job.model_validate(
        {
            "name": "alone",
            "team": "a",
            "steps": 3600,
            "workload": {"profile": {"accelerators": accelerators, "seconds_per_step": 1}},
            "gang": {"accelerators": accelerators},
            "checkpoint": {"size_gib": 1},
            **more,
        }
    )


def the_plan(job: Job, limits: Limits | None = None) -> Plan:
    return make_plan(PlanRequest(jobs=(job,), book=embedded_book(), limits=limits or Limits.none(), now=NOW))


def test_every_offer_that_can_be_ordered_has_a_row_with_image_source_and_date() -> None:
    made = {(o.cloud, o.instance_type) for o in embedded_book().offers if o.cloud in CLOUDS and o.provisionable}
    assert len(made) > 70
    for cloud, instance_type in made:
        (row,) = (row for row in documented() if row.cloud == cloud and fnmatchcase(instance_type, row.machines))
        assert row.image, instance_type
        assert row.source.startswith("https://"), instance_type
        assert date.fromisoformat(row.as_of) <= date(2026, 11, 30)
        assert row.vendor in GPU_VENDORS
        assert row.container_runtime, instance_type
        assert (row.toolkit is None) == (row.vendor == "amd"), instance_type


def test_every_row_is_whole_and_none_names_what_another_names() -> None:
    types = {(m.cloud, m.instance_type) for m in embedded_book().machines}
    for cloud, instance_type in types:
        found = [row for row in documented() if row.cloud == cloud and fnmatchcase(instance_type, row.machines)]
        assert len(found) <= 1, instance_type
    assert {row.cloud for row in documented()} == CLOUDS <= PROVISIONABLE_CLOUDS
    for row in documented():
        assert row.source, row
        assert date.fromisoformat(row.as_of) <= date(2026, 11, 30)
        assert row.image or row.note, row
        assert row.image is None or row.architecture == "arm64" or "arm64" not in row.image
        assert (row.fabric is None) == (row.fabric_gbps is None)
        assert (row.installs is None) == (row.container_runtime in (None, "present"))


def test_what_no_row_documents_is_not_ordered_in_any_book() -> None:
    unmade = Counter((o.cloud, o.unmade) for o in embedded_book().offers if o.cloud in CLOUDS and not o.provisionable)
    assert sum(unmade.values()) == 194
    assert all(why.startswith("no image documents this machine (") for _, why in unmade)
    new = Offer("aws", "us-east-1", None, "p77.48xlarge", Market.SPOT, UsdPerHour(1), "an import", date(2026, 11, 21))
    assert (new.provisionable, new.unmade) == (False, "no image documents this machine")
    assert (explain_unmade("static", "dgx"), explain_unmade("sandbox", "sim-8xh100")) == ("", "")
    assert (explain_unmade("lambda", "gpu_8x_h100"), find_machine_image("lambda", "gpu_8x_h100")) == ("", None)


@pytest.mark.parametrize(
    ("accelerators", "why"),
    [
        ("TPU-v6e:8", "a slice of TPUs is no instance of Compute Engine"),
        ("GB200:4", "in no list of Microsoft's"),
        ("V100-16GB:4", "NVIDIA's proprietary driver"),
        ("A10:2", "NVIDIA's GRID driver"),
    ],
)
def test_a_job_that_only_such_machines_would_do_for_is_left_out_with_the_reason(accelerators: str, why: str) -> None:
    plan = the_plan(a_job(accelerators))
    assert plan.lines == ()
    (left_out,) = plan.unplaced
    assert left_out.reason.startswith("only machines that cannot be ordered from here would do")
    assert left_out.reason.count("no image documents this machine (") == 1
    assert why in left_out.reason


def test_mi300x_is_ordered_with_the_image_that_has_rocm() -> None:
    (line,) = {line.instance_type for line in the_plan(a_job("MI300X:8")).lines}
    row = present(find_machine_image("azure", line))
    assert line == "Standard_ND96isr_MI300X_v5"
    assert (row.image, row.vendor) == ("microsoft-dsvm:ubuntu-hpc:2204-rocm", "amd")


def test_a_cheaper_machine_that_nothing_can_make_is_shown_with_the_reason() -> None:
    points = [{"accelerators": name, "seconds_per_step": 1} for name in ("A10:2", "H100-NVL:2")]
    accelerators = {"A10": 2, "H100-NVL": 2}
    job = a_job("A10:2", workload={"profile": points}, gang={"accelerators": accelerators})
    plan = the_plan(job)
    assert {line.accelerator for line in plan.lines} == {"H100-NVL"}
    second = present(plan.jobs[0].runner_up)
    assert (second.accelerator, second.provisionable) == ("A10", False)
    assert second.cost_usd < plan.jobs[0].cost_usd
    assert second.lacks.startswith("cannot be ordered from here: no image documents this machine (the A10 needs")


@pytest.mark.parametrize(
    ("instance_type", "said"),
    [
        ("Standard_ND96isr_H100_v5", "outside capacity reservations: Azure takes no ND size into one"),
        ("Standard_NC80adis_H100_v5", "outside capacity reservations: Azure takes no NCads H100 v5 size into one"),
        ("Standard_NC96ads_A100_v4", ""),
    ],
)
def test_what_azure_does_not_reserve_is_refused_on_a_reservation(instance_type: str, said: str) -> None:
    machine = present(embedded_book().machine("azure", instance_type))
    held = {"name": "bought", "cloud": "azure", "region": "eastus", "instance_type": instance_type, "machines": 2}
    limits = Limits.model_validate({"reservations": [held]})
    finder = CandidateFinder(embedded_book(), limits, NOW, advisory=False)
    kept, dropped = finder.find(a_job(f"{machine.accelerator}:{machine.accelerator_count}"))
    refused = [drop.reason for drop in dropped if drop.code == "reservation"]
    assert [reason.startswith(said) for reason in refused] == ([True] if said else [])
    assert any(c.parts[-1].listing.reservation for c in kept) == (not said)


def test_a_fabric_that_the_image_cannot_drive_is_not_counted_on() -> None:
    book = embedded_book()
    (stated,) = (m for m in book.machines if m.instance_type == "a3-highgpu-8g")
    usable = present(book.machine("gcp", "a3-highgpu-8g"))
    assert (stated.fabric, stated.inter_node_gbps) == ("gpudirect-tcpx", 1000)
    assert (usable.fabric, usable.inter_node_gbps, usable.has_rdma) == ("ethernet", 200, False)
    others = [m for m in book.machines if m.instance_type != "a3-highgpu-8g"]
    assert [with_usable_fabric(m) for m in others] == others
    finder = CandidateFinder(book, Limits.none(), NOW, advisory=False)
    ethernet = {"accelerators": "H100:16", "seconds_per_step": 1, "placement": "2x8", "fabric": "ethernet"}
    slow = a_job("H100:16", workload={"profile": [ethernet]})
    (basis,) = {c.speed_basis for c in finder.find(slow)[0] if _type_of(c.parts[0].machine) == "a3-highgpu-8g"}
    assert "over ethernet: GPUDirect-TCPX needs a kernel" in basis
    needs = slow.model_copy(update={"gang": slow.gang.model_copy(update={"rdma": "required"})})
    reasons = {d.reason for d in finder.find(needs)[1] if d.listing.machine.instance_type == "a3-highgpu-8g"}
    (reason,) = reasons
    assert reason.startswith("an RDMA fabric is required, a3-highgpu-8g has ethernet (GPUDirect-TCPX needs a kernel")


def _type_of(machine: Machine) -> str:
    return machine.instance_type


def test_a_spot_price_that_equals_on_demand_is_marked_once() -> None:
    bought = Offer("aws", "us-east-1", None, "p5.48xlarge", Market.ON_DEMAND, UsdPerHour(9), "a list", NOW.date())
    spot = [
        Offer("aws", "us-east-1", zone, "p5.48xlarge", Market.SPOT, UsdPerHour(price), "a list", NOW.date(), weak=weak)
        for zone, price, weak in (("use1-az1", 9, ""), ("use1-az2", 8, ""), (None, 9, "old"))
    ]
    marked = mark_capped_spot([bought, *spot])
    capped = "spot equals on demand: capped, or not the price of spot"
    assert [offer.weak for offer in marked] == ["", capped, "", f"old; {capped}"]
    assert mark_capped_spot(marked) == marked
    assert sum("spot equals on demand" in offer.weak for offer in embedded_book().offers) == 22


def test_what_is_missing_in_a_book_says_whether_it_is_sold() -> None:
    book = embedded_book()
    assert book.explain_absence("V100-16GB", (Market.ON_DEMAND,))[0]
    v100 = book.with_offers(()).explain_absence("V100-16GB")[1]
    assert "azure Standard_NC6s_v3 is retired by Azure in 2025" in v100
    assert v100.startswith("no price is known of ")
    assert book.explain_absence("nothing") == (True, "")


def test_tests_have_images_of_made_up_machines_beside_the_table() -> None:
    assert machine_images()[: len(documented())] == documented()
