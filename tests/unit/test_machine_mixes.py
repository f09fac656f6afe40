"""Gangs of two machine types: which there are, what they cost and do, and how a plan shows them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pricing.book_file import embedded_book
from pricing.machines import Machine
from pricing.offers import Offer
from pricing.places import Market
from router.controller.history.job_history import matches_machines
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.document.plan_facts import main_placement
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import candidates_for
from router.planning.find.listings import listings_by_accelerator
from router.planning.find.machine_mixes import MOST_SPLITS, machine_pairs
from router.planning.planner import PlanRequest, make_plan
from router.render.explain_text import job_text
from router.render.gantt import runs_of
from router.render.plan_text import table, wide
from router.spot.venues import unquotable_reason
from tests.support import state_values
from tests.support.checker import check_plan
from tests.support.made_up_book import made_up_machine, offer
from tests.support.made_up_jobs import make_job, make_limits
from tests.support.mixed_instances import mixing_book
from tests.support.scenes import HOUR, NOW

BIG = offer("aws/south-1", "g9.48xlarge", "on_demand", "33", cap=9)
SMALL = offer("aws/south-1", "g9d.48xlarge", "on_demand", "27", cap=2)
PARAMETERS = {"layers": 32, "hidden": 4096, "sequence_length": 2048, "tokens_per_step": 1_000_000}


def a_job(machines: int = 4, *, mixed: bool = True, **more: Any) -> Job:
    """A job on A100 of either size, 100 steps an hour on the large ones and 80 on the small ones; 300 steps."""
    count = 8 * machines
    profile = [
        {"accelerator": name, "count": count, "steps_per_hour": speed, "relative_error": error, "fabric": "ethernet"}
        for name, speed, error in (("A100-80GB", 100.0, 0.0), ("A100-40GB", 80.0, 0.0))
    ]
    options = [("A100-80GB", count), ("A100-40GB", count)]
    fields = {"name": "a", "steps": 300, "options": options, "profile": profile, "mixed": mixed, **more}
    return make_job({"checkpoint": {"size_gib": 10}, "startup_minutes": 12, **fields})


def found(job: Job, *offers: Offer, limits: Limits | None = None) -> dict[str, Candidate]:
    """The candidates of two machine types, by key."""
    kept, _ = candidates_for(job, mixing_book(offers), limits or make_limits({}), NOW, False)
    return {c.key: c for c in kept if len({part.offer.instance_type for part in c.parts}) > 1}


def counts(candidates: dict[str, Candidate]) -> list[int]:
    """How many machines of the cheaper type each has."""
    return sorted(c.parts[-1].machines for c in candidates.values())


def planned(job: Job, *offers: Offer, limits: Limits | None = None) -> Plan:
    """The plan of one job."""
    known = limits or make_limits({})
    request = PlanRequest(jobs=(job,), book=mixing_book(offers), limits=known, now=NOW, gap=0.0, horizon=8 * HOUR)
    plan = make_plan(request)
    assert check_plan(plan, (job,), request.book, known) == []
    return plan


def test_a_mix_costs_the_sum_and_is_as_fast_as_the_slower_type() -> None:
    spots = [
        replace(one, market=Market.SPOT, interruptions_per_hour=rate) for one, rate in ((BIG, 0.02), (SMALL, 0.05))
    ]
    mixes = found(a_job(), *spots)
    assert sorted(mixes) == [
        "aws/south-1/g9d.48xlarge/spotx32+2xg9.48xlarge",
        "aws/south-1/g9d.48xlarge/spotx32+3xg9.48xlarge",
    ]
    mix = mixes["aws/south-1/g9d.48xlarge/spotx32+3xg9.48xlarge"]
    assert [(part.offer.instance_type, part.machines) for part in mix.parts] == [
        ("g9.48xlarge", 3),
        ("g9d.48xlarge", 1),
    ]
    assert mix.usd_per_hour.dollars() == 3 * 33 + 27
    assert mix.risk.nominal_steps_per_hour == 80.0
    book = mixing_book(tuple(spots))
    risks = [book.risk.gang(p.offer, p.machine, p.machines) for p in mix.parts]
    for hours in (1.0, 8.0):
        assert mix.gang_risk.per_hour_over(hours) == pytest.approx(sum(risk.per_hour_over(hours) for risk in risks))
    assert min(risk.hazard.mean for risk in risks) > 0
    assert mix.gang_risk.hardware_per_hour == pytest.approx(32 / 30_000)
    # What is planned with is what the risk says: a stated rate does not fall with age, and calm gangs run shorter.
    assert mix.risk.interruptions_per_hour == pytest.approx(mix.gang_risk.per_hour_over(8.0), rel=0.1)


def test_only_where_the_job_says_so_and_allows_both_accelerators() -> None:
    assert found(a_job(), BIG, SMALL)
    assert not found(a_job(mixed=False), BIG, SMALL)
    alone = a_job()
    one = alone.gang.model_copy(update={"options": alone.gang.options[:1]})
    assert not found(alone.model_copy(update={"gang": one}), BIG, SMALL)


def test_not_where_both_are_sold_in_other_zones_or_markets() -> None:
    assert not found(a_job(), BIG, replace(SMALL, market=Market.SPOT))
    assert not found(a_job(), replace(BIG, zone="south-1a"), replace(SMALL, zone="south-1b"))
    assert found(a_job(same_zone=False), replace(BIG, zone="south-1a"), replace(SMALL, zone="south-1a"))


def test_memory_fits_by_the_smaller_type() -> None:
    def shaped(parameters: float) -> Job:
        shape = {**PARAMETERS, "parameters": parameters, "sharding": "zero3", "recompute": "full"}
        job = a_job().model_dump(mode="json")
        return Job.model_validate({**job, "workload": {"transformer": shape}})

    # 18 bytes a parameter over 32 accelerators: 40 GB do not hold 100 billion of them, 80 GB do.
    book, limits = mixing_book((BIG, SMALL)), make_limits({})
    large = candidates_for(shaped(100e9), book, limits, NOW, False)[0]
    assert {c.offer.instance_type for c in large} == {"g9.48xlarge"}
    assert all(len(c.parts) == 1 for c in large)
    assert found(shaped(7e9), BIG, SMALL)


@pytest.mark.parametrize(
    ("cap", "limits", "cheap"),
    [
        (None, [], []),  # nothing bounds the cheaper type
        (3, [], [1, 2, 3]),
        (99, [], [1, 2, 3]),
        (None, [{"unit": "machines", "amount": 2, "instance_type": "g9d.48xlarge"}], [1, 2]),
        (None, [{"unit": "accelerators", "amount": 15, "accelerator": "A100-40GB"}], [1]),
        (None, [{"unit": "vcpus", "amount": 200, "instance_type": "g9d.48xlarge"}], [1, 2]),
        (3, [{"unit": "machines", "amount": 2, "instance_type": "g9.48xlarge"}], [2, 3]),
        (3, [{"unit": "machines", "amount": 3}], []),
    ],
)
def test_splits_are_those_that_limits_make_of_use(
    cap: int | None, limits: list[dict[str, Any]], cheap: list[int]
) -> None:
    known = make_limits({"limits": [{"name": f"q{n}", "cloud": "aws", **x} for n, x in enumerate(limits)]})
    assert counts(found(a_job(), BIG, replace(SMALL, machines_cap=cap), limits=known)) == cheap


def test_splits_of_a_large_gang_are_few_and_reach_from_the_most_to_the_fewest() -> None:
    many = replace(SMALL, machines_cap=30)
    assert counts(found(a_job(32), replace(BIG, machines_cap=12), many)) == [20, 24, 27, 30]
    assert MOST_SPLITS == 4


def test_no_mix_is_paid_by_two_commitments() -> None:
    both = [
        {"name": f"c-{family}", "cloud": "aws", "family": [family], "usd_per_hour": "50", "discount": 0.3}
        for family in ("g9", "g9d")
    ]
    assert found(a_job(), BIG, SMALL, limits=make_limits({"commitments": both[:1]}))
    assert not found(a_job(), BIG, SMALL, limits=make_limits({"commitments": both}))


def test_a_mix_of_two_reservations_keeps_the_dates_of_both() -> None:
    paid = [
        {"name": name, "cloud": "aws", "region": "south-1", "instance_type": kind, "machines": 2, "usd_per_hour": "9"}
        for name, kind in (("old", "g9d.48xlarge"), ("new", "g9.48xlarge"))
    ]
    until = NOW + timedelta(hours=5)
    limits = make_limits({"reservations": [{**paid[0], "until": until.isoformat()}, paid[1]]})
    (mix,) = (c for c in found(a_job(), BIG, SMALL, limits=limits).values() if c.market == "reserved")
    assert mix.dates == (None, until)
    plan = planned(a_job(), BIG, SMALL, limits=limits)
    assert {(line.instance_type, line.machines, line.market) for line in plan.lines} == {
        ("g9.48xlarge", 2, "reserved"),
        ("g9d.48xlarge", 2, "reserved"),
    }
    assert plan.cost_usd.nanos == 0


def test_a_job_that_runs_on_a_mix_goes_on_there_and_on_no_other() -> None:
    running = {"cloud": "aws", "region": "south-1", "instance_type": "g9.48xlarge", "market": "on_demand"}
    mixed_with = {"instance_type": "g9d.48xlarge", "accelerators": 8}
    job = a_job(status={"running": {**running, "accelerators": 32, "mixed_with": mixed_with}})
    # Nothing bounds the small type: the gang that runs is a candidate all the same.
    kept, _ = candidates_for(job, mixing_book((BIG, replace(SMALL, machines_cap=None))), make_limits({}), NOW, False)
    assert [c.key for c in kept if c.running] == ["aws/south-1/g9d.48xlarge/on_demandx32+3xg9.48xlarge"]
    pure = a_job(status={"running": {**running, "accelerators": 32}})
    kept, _ = candidates_for(pure, mixing_book((BIG, SMALL)), make_limits({}), NOW, False)
    assert [c.key for c in kept if c.running] == ["aws/south-1/g9.48xlarge/on_demandx32"]


def test_a_job_file_without_the_word_keeps_its_digest() -> None:
    # SHA-256 as in the first release; a field at its default is no part of it.
    plain, running = a_job(mixed=False), {"cloud": "aws", "region": "x", "instance_type": "y", "market": "spot"}
    assert plain.digest == DIGEST
    assert a_job().digest != DIGEST
    placed = a_job(mixed=False, status={"running": {**running, "accelerators": 16}})
    assert placed.digest == DIGEST_RUNNING


DIGEST = "046041673dc81f8dbaebecdbdf898c08e5bdb76ec9f8a9b35446acf6f14e1ac2"
DIGEST_RUNNING = "695c0d7730fecd57f3a26463fe6527f10786fc9ced3edef87babde76ed56a75e"


def a_mixed_plan() -> Plan:
    """A plan in which two small machines and two large ones are one gang: there are no more of either."""
    return planned(a_job(), replace(BIG, machines_cap=2), SMALL)


def test_a_plan_and_what_is_printed_of_it_show_both_types() -> None:
    plan = a_mixed_plan()
    assert {(line.instance_type, line.accelerator, line.machines) for line in plan.lines} == {
        ("g9.48xlarge", "A100-80GB", 2),
        ("g9d.48xlarge", "A100-40GB", 2),
    }
    assert len({line.gang for line in plan.lines}) == 1
    assert "a: one gang of 2x g9.48xlarge + 2x g9d.48xlarge" in table(plan)
    assert " 32xA100 " in table(plan)
    assert all(kind in wide(plan) for kind in ("g9.48xlarge", "g9d.48xlarge"))
    assert all(kind in job_text(plan, "a") for kind in ("2x g9.48xlarge", "2x g9d.48xlarge"))
    (run,) = runs_of(plan.lines)
    assert run.size == "32 A100-80GB + A100-40GB"
    assert str(main_placement(plan.lines, "a")) == ("aws/south-1 2x g9.48xlarge + 2x g9d.48xlarge on_demand x32")
    assert plan_from_json(plan_to_json(plan)) == plan


def test_an_alternative_tells_both_types() -> None:
    plan = planned(a_job(), replace(BIG, machines_cap=4), SMALL)
    mixes = [a.mix for a in plan.jobs[0].alternatives if a.mix]
    assert "2x g9.48xlarge + 2x g9d.48xlarge" in mixes
    assert plan_from_json(plan_to_json(plan)) == plan
    text = job_text(plan, "a")
    assert "4 of two types" in text
    assert any(line.endswith("2x g9.48xlarge + 2x g9d.48xlarge") for line in text.splitlines())


def test_the_checker_sees_a_mix_that_the_job_does_not_allow_and_one_that_is_too_fast() -> None:
    plan, book = a_mixed_plan(), mixing_book((replace(BIG, machines_cap=2), SMALL))
    words = " ".join(check_plan(plan, (a_job(mixed=False),), book, make_limits({})))
    assert "which the job does not allow" in words
    slower = a_job(
        profile=[{**p, "steps_per_hour": 70.0} for p in a_job().model_dump(mode="json")["workload"]["profile"]]
    )
    assert "the slower type alone does 70.0" in " ".join(check_plan(plan, (slower,), book, make_limits({})))


def test_a_quote_counts_on_no_mix() -> None:
    (mix, *_) = found(a_job(), BIG, SMALL).values()
    assert "how both types are had together" in unquotable_reason(mix, None)


def test_the_controller_tells_gangs_by_the_number_of_each_type() -> None:
    kept, _ = candidates_for(a_job(), mixing_book((BIG, replace(SMALL, machines_cap=4))), make_limits({}), NOW, False)
    running = state_values.attempt("a1", cloud="aws", region="south-1", machines=4)

    def matching(*types: str) -> list[str]:
        nodes = [
            state_values.node("a1", rank, instance_type=name, market=Market.ON_DEMAND)
            for rank, name in enumerate(types)
        ]
        return [c.key for c in kept if matches_machines(c, running, nodes)]

    big, small = "g9.48xlarge", "g9d.48xlarge"
    assert matching(big, small, small, big) == ["aws/south-1/g9d.48xlarge/on_demandx32+2xg9.48xlarge"]
    assert matching(big, big, big, big) == ["aws/south-1/g9.48xlarge/on_demandx32"]
    assert matching(small, small, small, small) == ["aws/south-1/g9d.48xlarge/on_demandx32"]
    assert matching(big, big, "p9.48xlarge", "p9.48xlarge") == []


def pairs_of(book_machines: tuple[Machine, ...]) -> set[tuple[str, str]]:
    """The pairs of types that may share a gang, were all of these sold in one place."""
    base = mixing_book(())
    places = {"aws": "aws/north-1", "gcp": "gcp/lake-1", "azure": "azure/fjord-1", "lambda": "lambda/bay-1"}
    kept = [m for m in book_machines if m.cloud in places]
    offers = tuple(offer(places[m.cloud], m.instance_type, "on_demand", "50") for m in kept)
    accelerators = {a.name: a for a in (*embedded_book().accelerators, *base.accelerators)}
    book = replace(base, machines=tuple(kept), offers=offers, accelerators=tuple(accelerators.values()))
    limits = make_limits({})
    found_pairs = machine_pairs((x for rows in listings_by_accelerator(book, limits).values() for x in rows), limits)
    return {tuple(sorted(x.offer.instance_type for x in pair.listings)) for pair in found_pairs}  # type: ignore[misc]


def test_pairs_of_the_embedded_tables() -> None:
    pairs = pairs_of(embedded_book().machines)
    assert ("p4d.24xlarge", "p4de.24xlarge") in pairs
    assert ("a2-highgpu-8g", "a2-ultragpu-8g") in pairs
    # GPUDirect-TCPX and TCPXO are two protocols; Azure's InfiniBand joins one scale set, of one type.
    assert ("a3-highgpu-8g", "a3-megagpu-8g") not in pairs
    assert ("Standard_ND96amsr_A100_v4", "Standard_ND96asr_v4") not in pairs
    assert ("p5.48xlarge", "p5en.48xlarge") not in pairs  # H100 and H200 are two families


def test_no_pairs_on_clouds_where_nothing_is_made() -> None:
    machines = tuple(made_up_machine("lambda", name, "H100", 8, 208, "infiniband") for name in ("one", "two"))
    assert pairs_of(machines) == set()
