"""Estimates of gangs against plans of the same job, and their parts: layouts, intervals, reasons, flags."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pricing.book import PriceBook
from pricing.book_file import embedded_book
from pricing.money import Usd
from pricing.places import Market
from router.config.job_files import load_jobs
from router.jobs.gang import GangOption
from router.jobs.gang_layout import GangLayout, gang_layout
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.jobs.speed import Speed, gang_speed
from router.jobs.workload import Transformer, Workload
from router.planning.document.plan import Plan
from router.planning.document.plan_usage import COST_TERMS
from router.planning.estimate.estimate_json import estimate_schema, estimate_schema_text, estimate_to_json, launcher_of
from router.planning.estimate.gang_estimates import (
    DEVIATIONS,
    EstimateInputs,
    GangEstimate,
    JobEstimate,
    estimate_gangs,
)
from router.planning.planner import PlanRequest, make_plan
from tests.support.books import MACHINE, MODEL
from tests.support.narrowed import present, typed
from tests.support.repository import ROOT
from tests.support.scenes import SHAPE

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
BOTH = (Market.SPOT, Market.ON_DEMAND)
JOB: dict[str, Any] = {
    "name": "tune",
    "team": "search",
    "steps": 2000,
    "workload": {"transformer": SHAPE},
    "gang": {"accelerators": "H100:8"},
    "checkpoint": {"size_gib": 90},
    "startup": "20m",
}


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return embedded_book()


def a_job(**changes: Any) -> Job:
    return Job.model_validate(JOB | changes)


def gang(words: str) -> GangOption:
    name, _, count = words.partition(":")
    return GangOption(accelerator=name, count=int(count))


def estimated(job: Job, book: PriceBook, *gangs: str, markets: tuple[Market, ...] = BOTH) -> JobEstimate:
    options = tuple(gang(words) for words in gangs) or job.gang.options
    return estimate_gangs(job, options, markets, EstimateInputs(book, NOW))


def planned(job: Job, book: PriceBook) -> Plan:
    return make_plan(
        PlanRequest(
            jobs=(job,),
            book=book,
            limits=Limits.none(),
            now=NOW,
            horizon=timedelta(hours=24),
            slot=timedelta(hours=1),
            explained=False,
            gap=0.0,
            time_limit=timedelta(minutes=2),
        )
    )


MEASURED = {"profile": [{"accelerators": "H100:8", "steps_per_hour": 300}]}
AGREEING = {
    "spot": {"market": {"spot": "only"}},
    "on demand": {"market": {"spot": "never"}},
    "measured, without a checkpoint": {"workload": MEASURED, "checkpoint": None, "market": {"spot": "never"}},
    "data to move": {"data": {"uri": "s3://a/b", "at": "gcp/us-central1", "gib": 3000}},
    "data to stream": {"data": {"uri": "s3://a/b", "at": "aws/us-east-2", "gib": 900, "mode": "stream"}},
    "half done": {"status": {"steps_done": 900, "checkpoint_in": "aws/us-east-2"}},
    "with an on-demand core": {"gang": {"accelerators": "H100:16", "on_demand_share": 0.5}},
    "with a deadline": {"deadline": "2026-11-24T18:00:00Z", "market": {"spot": "never"}},
    "on either market": {},
}


@pytest.mark.parametrize("changes", AGREEING.values(), ids=AGREEING)
def test_figures_are_those_of_a_plan(changes: dict[str, Any], book: PriceBook) -> None:
    """The plan holds whole hours but pays for what it needs; its runs are rounded to the microsecond each."""
    job = a_job(**{"residency": {"allow": ["US"]}} | changes)
    plan, found = planned(job, book), estimated(job, book)
    line, summary = plan.lines[-1], plan.jobs[0]
    row = present(found.best)
    assert row.answer is not None
    part = row.answer.parts[-1]
    assert (part.cloud, part.region, part.zone, part.instance_type, part.market.value) == (
        line.cloud,
        line.region,
        line.zone,
        line.instance_type,
        line.market,
    )
    assert row.answer.steps_per_hour.expected == line.steps_per_hour
    assert summary.usd_per_step is not None
    assert abs((row.answer.usd_per_step.expected - summary.usd_per_step).nanos) <= 1
    assert row.answer.cost_usd.dollars() == pytest.approx(summary.cost_usd.dollars(), abs=1e-4)
    assert plan.usage is not None
    planned_terms = plan.usage.cost_terms[0]
    for name in COST_TERMS:
        assert getattr(row.answer.terms, name).dollars() == pytest.approx(
            getattr(planned_terms, name).dollars(), abs=1e-4
        ), name


def test_a_deadline_adds_to_an_estimate_what_its_guard_may_need(book: PriceBook) -> None:
    """An estimate knows no deadline. A plan to one falls back on demand the more often, the nearer it is."""
    best = present(estimated(a_job(residency={"allow": ["US"]}), book).best)
    assert best.answer is not None
    costs, fallbacks = [best.answer.usd_per_step.expected], [best.answer.terms.fallback_usd]
    for deadline in ("2026-11-24T18:00Z", "2026-11-22T18:00Z", "2026-11-22T12:00Z"):
        plan = planned(a_job(residency={"allow": ["US"]}, deadline=deadline), book)
        line, usd = plan.lines[-1], plan.jobs[0].usd_per_step
        assert (line.market, line.region) == (Market.SPOT, best.answer.parts[-1].region)
        assert usd is not None
        assert plan.usage is not None
        costs.append(usd)
        fallbacks.append(plan.usage.cost_terms[0].fallback_usd)
    assert costs == sorted(set(costs))
    assert fallbacks == sorted(set(fallbacks))
    assert costs[-1].dollars() > 1.2 * costs[0].dollars()


@pytest.mark.slow
def test_each_example_job_costs_what_its_own_plan_says(book: PriceBook) -> None:
    """Each is planned alone, without its deadline and limits; the figure is in design note costs-and-estimates.

    An estimate is of one gang, which falls back on one like it; a plan of several gangs may know a cheaper way back.
    """
    jobs = load_jobs([ROOT / "examples" / "nightly"], NOW).jobs
    assert len(jobs) == 24
    for job in jobs:
        alone = job.model_copy(update={"deadline": None, "earliest_start": None})
        best = present(estimated(alone, book).best)
        assert best.answer is not None
        one = alone.model_copy(update={"gang": alone.gang.model_copy(update={"options": (best.option,)})})
        usd = present(planned(one, book).jobs[0].usd_per_step)
        assert abs((best.answer.usd_per_step.expected - usd).nanos) <= 1, job.name
        if len(alone.gang.options) > 1:
            of_all = present(planned(alone, book).jobs[0].usd_per_step)
            assert of_all.nanos - best.answer.usd_per_step.expected.nanos <= 1, job.name


def test_a_running_job_pays_no_start_where_it_runs(book: PriceBook) -> None:
    waiting = a_job(market={"spot": "never"})
    answer = present(estimated(waiting, book, markets=(Market.ON_DEMAND,)).rows[0].answer)
    part = answer.parts[0]
    place = {"cloud": part.cloud, "region": part.region, "instance_type": part.instance_type, "accelerators": 8}
    status = {"running": place | {"market": "on_demand"}, "checkpoint_in": f"{part.cloud}/{part.region}"}
    running = present(
        estimated(a_job(market={"spot": "never"}, status=status), book, markets=(Market.ON_DEMAND,)).rows[0].answer
    )
    assert running.terms.startups_usd == Usd(0)
    assert answer.terms.startups_usd.nanos > 0
    assert abs((running.cost_usd + answer.terms.startups_usd - answer.cost_usd).nanos) <= 1


def test_rows_are_sorted_and_their_terms_add_up(book: PriceBook) -> None:
    found = estimated(a_job(), book, "H100:8", "H200:8", "MI300X:8", "T4:8", "A100-80GB:8")
    costs = [row.answer.usd_per_step.expected.nanos for row in found.rows if row.answer is not None]
    assert len(costs) >= 6
    assert costs == sorted(costs)
    answered = [row.answer is not None for row in found.rows]
    assert answered == sorted(answered, reverse=True)
    for row in found.rows:
        assert (row.answer is None) != (row.refusal is None)
        if row.answer is not None:
            assert row.answer.terms.together_usd == row.answer.cost_usd
            assert row.answer.step_terms.together_usd == row.answer.usd_per_step.expected
            million = present(row.answer.usd_per_million_tokens)
            step = row.answer.usd_per_step.expected.dollars()
            assert million.expected.dollars() == pytest.approx(step / SHAPE["tokens_per_step"] * 1e6, abs=1e-9)
            tokens = present(row.answer.tokens_per_s)
            assert tokens.expected * 3600 == pytest.approx(
                row.answer.steps_per_hour.expected * SHAPE["tokens_per_step"]
            )


@pytest.mark.parametrize(
    ("words", "market", "code", "said"),
    [
        ("H1000:8", Market.SPOT, "unknown", "did you mean H100"),
        (
            "MI300X:8",
            Market.SPOT,
            "no price",
            "no spot offer of MI300X: no price is known of azure Standard_ND96isr_MI300X_v5",
        ),
        ("MI300X:12", Market.ON_DEMAND, "size", "not a whole number of machines of 8"),
        ("H200:12", Market.SPOT, "advisory", "cannot be ordered"),
        ("T4:8", Market.SPOT, "speed", "usable"),
    ],
)
def test_a_gang_without_an_answer_has_a_reason(
    words: str, market: Market, code: str, said: str, book: PriceBook
) -> None:
    row = estimated(a_job(), book, words, markets=(market,)).rows[0]
    assert row.refusal is not None
    assert (str(row.option), row.refusal.code) == (words, code)
    assert said in row.refusal.reason


def test_a_job_that_is_longer_than_any_plan_is_estimated(book: PriceBook) -> None:
    """As many steps as a year takes cost as much each as those of a week, on demand to the dollar of the start."""
    job = a_job(workload=MEASURED, steps=300 * 24 * 365)
    year, week = (estimated(a_job(workload=MEASURED, steps=300 * 24 * days), book) for days in (365, 7))
    assert [row.answer is not None for row in year.rows] == [True, True]
    long, short = (
        next(present(row.answer) for row in found.rows if row.market is Market.ON_DEMAND) for found in (year, week)
    )
    assert long.usd_per_step.expected.dollars() == pytest.approx(short.usd_per_step.expected.dollars(), rel=0.01)
    assert "366 days of run time" in long.weak
    assert short.weak == ""
    assert planned(job, book).unplaced[0].job == "tune"


def test_a_stated_number_of_machines_holds_for_the_gangs_of_the_file(book: PriceBook) -> None:
    job = a_job(gang={"accelerators": "H100:8", "machines": 4})
    machines = {
        str(row.option): sum(part.machines for part in row.answer.parts)
        for row in estimated(job, book, "H100:8", "H100:16", markets=(Market.SPOT,)).rows
        if row.answer is not None
    }
    assert machines == {"H100:8": 4, "H100:16": 2}


def test_the_reason_is_that_of_the_offer_that_came_farthest(book: PriceBook) -> None:
    """Most T4 offers break the residency; where the job may run, memory is what is missing."""
    row = estimated(a_job(residency={"allow": ["EU"]}), book, "T4:8", markets=(Market.ON_DEMAND,)).rows[0]
    assert row.refusal is not None
    assert row.refusal.code == "speed"
    assert dict(row.refusal.dropped)["residency"] > dict(row.refusal.dropped)["speed"] > 0
    assert row.layout is not None
    assert not row.layout.fits
    assert row.layout.largest_need in {"states", "activations", "logits"}
    assert f"{row.layout.need.total:.0f} GiB" in row.refusal.reason


@pytest.mark.parametrize(("market", "rule"), [(Market.SPOT, "never"), (Market.ON_DEMAND, "only")])
def test_the_job_s_own_rule_on_markets_holds(book: PriceBook, market: Market, rule: str) -> None:
    rows = {row.market: row for row in estimated(a_job(market={"spot": rule}), book).rows}
    refused = present(rows.pop(market).refusal)
    assert refused.code == "market"
    assert next(iter(rows.values())).answer is not None


def test_an_interval_is_that_of_the_speed_where_the_rate_is_sure(book: PriceBook) -> None:
    """With a rate that has no interval only the speed's error counts: 1.28 deviations of the run time each way."""
    stated = [replace(o, interruptions_per_hour=1e-6) for o in book.offers if o.market is Market.ON_DEMAND]
    answer = present(
        estimated(a_job(checkpoint={"size_gib": 1}), book.with_offers(stated), markets=(Market.ON_DEMAND,))
        .rows[0]
        .answer
    )
    fixed = (answer.terms.startups_usd + answer.terms.moves_usd).dollars() / answer.steps
    for usd, sign in ((answer.usd_per_step.low, -1), (answer.usd_per_step.high, 1)):
        assert usd is not None
        working = answer.usd_per_step.expected.dollars() - fixed
        wanted = fixed + working * (1 + sign * DEVIATIONS * answer.relative_error)
        assert usd.dollars() == pytest.approx(wanted, rel=1e-6)
    high = present(answer.steps_per_hour.high)
    rate = answer.steps_per_hour
    assert rate.low * (1 + DEVIATIONS * answer.relative_error) == pytest.approx(rate.expected)
    assert high * (1 - DEVIATIONS * answer.relative_error) == pytest.approx(rate.expected)


def test_the_interval_of_the_rate_of_interruptions_widens_that_of_the_cost(book: PriceBook) -> None:
    """A prior spreads far to both sides of its mean."""
    offers = [
        replace(offer, interruptions_per_hour=None, interruption_band=None)
        for offer in book.offers
        if offer.market is Market.SPOT and offer.cloud == "gcp"
    ]
    answer = present(estimated(a_job(), book.with_offers(offers), markets=(Market.SPOT,)).rows[0].answer)
    fixed = (answer.terms.startups_usd + answer.terms.moves_usd).dollars() / answer.steps
    expected, low, high = (
        answer.usd_per_step.expected.dollars(),
        answer.usd_per_step.low.dollars(),
        answer.usd_per_step.high,
    )
    alone = DEVIATIONS * answer.relative_error * (expected - fixed)
    assert alone * 1.01 < expected - low < alone * 2
    assert high is None or high.dollars() - expected > alone * 1.01
    rate = answer.steps_per_hour
    assert rate.low * (1 + DEVIATIONS * answer.relative_error) < rate.expected * 0.99


def model(**changes: Any) -> Transformer:
    return Transformer.model_validate(SHAPE | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layout": "auto", "recompute": "auto", "sharding": "auto"},
        {"parameters": "70B", "layers": 80, "hidden": 8192, "layout": "auto"},
        {"experts": 64, "active_parameters": "2B", "layout": "auto"},
        {"lora": True, "sharding": "none"},
    ],
)
def test_the_parts_of_a_step_are_those_of_the_speed(changes: dict[str, Any]) -> None:
    shape, machines = model(**changes), 8
    found = typed(GangLayout, gang_layout(shape, MACHINE, machines, MODEL))
    assert found.fits
    speed = typed(Speed, gang_speed(Workload(transformer=shape), MACHINE, machines, MODEL))
    seconds = found.seconds
    assert 3600 / seconds.step == pytest.approx(speed.steps_per_hour)
    compute = seconds.matrices + seconds.attention + seconds.launches + seconds.memory + seconds.bubble
    assert f"{compute:.3g} s compute" in speed.basis
    assert f"{seconds.tensor + seconds.experts + seconds.exchange:.3g} s exchange" in speed.basis
    assert compute <= seconds.step * (1 + 1e-9) <= sum(seconds.kinds.values()) * (1 + 1e-9)
    name, share = seconds.largest
    assert 0.25 < share <= 1
    assert seconds.kinds[name] == max(seconds.kinds.values())


def test_what_does_not_fit_names_its_largest_term() -> None:
    large = typed(GangLayout, gang_layout(model(parameters="70B", layers=80, hidden=8192), MACHINE, 1, MODEL))
    assert not large.fits
    assert large.largest_need == "states"
    wide = typed(GangLayout, gang_layout(model(sequence_length=2**20, recompute="none"), MACHINE, 1, MODEL))
    assert wide.largest_need == "activations"


def rows_of(estimate: JobEstimate) -> list[GangEstimate]:
    return [row for row in estimate.rows if row.answer is not None]


def test_flags_are_those_of_the_layout(book: PriceBook) -> None:
    shape = SHAPE | {"parameters": "70B", "layers": 80, "hidden": 8192, "layout": "auto"}
    row = rows_of(estimated(a_job(workload={"transformer": shape}), book, "H100:64"))[0]
    assert row.layout is not None
    flags, layout = launcher_of(row), row.layout.layout
    assert flags is not None
    assert flags.torchrun == ("--nnodes=8", "--nproc-per-node=8")
    assert flags.megatron is not None
    assert f"--tensor-model-parallel-size={layout.tensor}" in flags.megatron
    assert flags.deepspeed is not None
    assert flags.deepspeed["gradient_accumulation_steps"] == layout.accumulation
    product = layout.tensor * layout.pipeline * layout.context * layout.data
    assert product == 64 == math.prod(int(flag.partition("=")[2]) for flag in flags.torchrun)


def test_virtual_stages_stand_in_the_json_as_in_the_flags(book: PriceBook) -> None:
    layout = {"pipeline_parallel": 2, "tensor_parallel": 8, "virtual_stages": 8, "micro_batch": 1}
    shape = SHAPE | {"parameters": "70B", "layers": 80, "hidden": 8192, "layout": layout}
    estimate = estimated(a_job(workload={"transformer": shape}), book, "H100:64")
    shown = json.loads(estimate_to_json(estimate, NOW))["rows"][0]
    assert (shown["layout"]["pipeline_parallel"], shown["layout"]["virtual_stages"]) == (2, 8)
    assert "--num-virtual-stages-per-pipeline-rank=8" in shown["launcher"]["megatron"]


def test_a_measured_job_has_no_layout_but_machines(book: PriceBook) -> None:
    row = rows_of(estimated(a_job(workload=MEASURED), book))[0]
    flags = launcher_of(row)
    assert row.answer is not None
    assert (row.layout, row.answer.tokens_per_s, row.answer.usd_per_million_tokens) == (None, None, None)
    assert flags is not None
    assert flags.torchrun[1] == "--nproc-per-node=8"
    assert (flags.megatron, flags.deepspeed) == (None, None)


def test_json_follows_its_schema_and_is_the_same_each_time(book: PriceBook) -> None:
    """When the second part fails: `stepfare schema estimate > docs/schema/estimate.json`."""
    validator = Draft202012Validator(estimate_schema())
    for job in (a_job(), a_job(workload=MEASURED)):
        text = estimate_to_json(estimated(job, book, "H100:8", "T4:8", "H1000:8"), NOW)
        assert text == estimate_to_json(estimated(job, book, "H100:8", "T4:8", "H1000:8"), NOW)
        document = json.loads(text)
        assert not list(validator.iter_errors(document))
        assert list(validator.iter_errors(document | {"more": 1}))
        assert all((row["answer"] is None) != (row["refusal"] is None) for row in document["rows"])
    assert (ROOT / "docs/schema/estimate.json").read_text(encoding="utf-8") == estimate_schema_text()
