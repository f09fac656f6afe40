"""Plan, quote, policy, guard and saves read interruptions from one object: no second source of a rate exists."""

from __future__ import annotations

import ast
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from pricing.book import PriceBook
from pricing.book_file import embedded_book
from pricing.places import Market
from pricing.pool_experience import PoolExperience
from router.jobs.experience import Experience
from router.planning.find import gang_rates
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import CandidateFinder
from router.spot.availability.hazard_model import LossRates
from router.spot.availability.observed import estimate_availability
from router.spot.options import build_option
from router.spot.venues import build_quote_option
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits, simple_job
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ON_DEMAND = offer("aws/north-1", "p9.48xlarge", "on_demand", "60")
SPOT = offer("aws/north-1", "p9.48xlarge", "spot", "20")
BOOK = book([ON_DEMAND, SPOT])
JOB = simple_job("a", ("H100", 8), steps=3000, steps_per_hour=100, checkpoint={"size_gib": 100}, deadline="+48h")
LIMITS = make_limits({})
#: What only the object itself may be made from.
SOURCES = {"priors", "signals", "interruption_band", "band_as_of", "preempted_share"}
#: The rooms that read, write and show these fields.
MAY_NAME_THEM = ("router/prices/", "router/config/", "router/render/offers_text.py", "router/render/pool_risk_text.py")
#: Speeds of workloads have priors of their own; the query keeps equal pools together by their signals.
OTHER_PRIORS = ("router/jobs/point_model.py", "router/app/queries/prices.py")


def worse(of: PriceBook, factor: float) -> PriceBook:
    rows = tuple(
        replace(p, level=p.level * factor, low=p.low * factor, high=p.high * factor) if p.market == "spot" else p
        for p in of.priors
    )
    return replace(of, priors=rows)


def spot_candidate(of: PriceBook, experience: Experience | None = None) -> Candidate:
    finder = CandidateFinder(of, LIMITS, NOW, advisory=False, experience=experience)
    return next(c for c in finder.find(JOB)[0] if c.market.value == "spot")


def test_everything_moves_with_the_prior_of_the_book() -> None:
    calm, hit = (spot_candidate(of) for of in (BOOK, worse(BOOK, 3.0)))
    assert hit.gang_risk.hazard.mean == pytest.approx(3 * calm.gang_risk.hazard.mean, rel=0.02)
    # The plan and its guard.
    assert calm.guard is not None
    assert hit.guard is not None
    assert hit.guard.probability > 2 * calm.guard.probability
    assert hit.expected_usd(3000) > calm.expected_usd(3000)
    # The running policy, and the quote: losses by class of age, of the same mean.
    for candidate in (calm, hit):
        option = build_option(candidate, JOB, LIMITS)
        assert option.losses == LossRates.of(candidate.gang_risk)
        quoted = estimate_availability((build_quote_option(JOB, candidate, LIMITS),), {}, NOW).hazard_model
        assert quoted.mean()[0, 1] == pytest.approx(np.array(option.losses.per_hour))
        assert quoted.spread[0] == pytest.approx(option.losses.spread)
    # Saves.
    assert hit.gang_risk.per_hour_at(1.0) > 2 * calm.gang_risk.per_hour_at(1.0)
    assert hit.risk.interval_hours < calm.risk.interval_hours


def test_what_was_counted_moves_the_plan_too() -> None:
    lost = PoolExperience("aws", "north-1", None, "p9.48xlarge", Market.SPOT, 1, 6.0, 5.0, 8.0, 8, NOW, NOW)
    plain, counted = spot_candidate(BOOK), spot_candidate(BOOK, Experience(pools=(lost,)))
    assert counted.gang_risk == Experience(pools=(lost,)).gang_risk(SPOT, counted.parts[0].machine, 1, BOOK)
    assert counted.gang_risk.hazard.quantile(0.5) > 2 * plain.gang_risk.hazard.quantile(0.5)
    assert counted.expected_usd(3000) > plain.expected_usd(3000)
    assert "own gangs" in counted.risk_basis


def test_only_the_object_reads_priors_and_signals() -> None:
    found = []
    for path in sorted(ROOT.glob("router/**/*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith((*MAY_NAME_THEM, *OTHER_PRIORS)):
            continue
        text = path.read_text(encoding="utf-8")
        if not any(source in text for source in SOURCES):
            continue
        found += [
            f"{name}:{node.lineno} {node.attr}"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Attribute)
            and node.attr in SOURCES
            and not (isinstance(node.value, ast.Name) and node.value.id == "links")
        ]
    assert found == []


def test_the_waits_that_the_table_assumes_of_spot_are_planned_with_to_the_digit() -> None:
    """Gangs whose waits are near share their figures: steps of the wait begin at the table's own."""
    assumed = {prior.recovery_hours for prior in embedded_book().priors if prior.market == Market.SPOT}
    assert {gang_rates._round_to_step(wait, gang_rates._WAIT_UNIT, 4) for wait in assumed} == assumed
