"""Risks of spot pools as users see them: which pools, in which order, with which figures and doubts."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from pricing.book import PriceBook
from pricing.hazard import HazardShape
from pricing.offers import Offer
from pricing.places import Market
from pricing.pool_experience import ExperienceKind, PoolExperience
from pricing.problems import InvalidInputError
from pricing.risk import RiskPrior, RiskSignal
from router.app.queries.prices import compute_pool_risks, find_pool_risks, list_pool_risks
from router.render import pool_risk_text
from router.render.offers_text import OfferFilters
from router.render.pool_risk_view import WATCHES, PoolRisk
from tests.support.books import AN_OFFER, MACHINE, PRIORS, a_book, spot

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
UNPUBLISHED = "nobody has published any of a held machine"
ZONE_A, ZONE_B = (spot("30", zone=f"us-east-1{letter}") for letter in "ab")
EUROPE = spot("31", region="eu-west-1")
SIGNAL = RiskSignal("aws", ">20%", "falling", 1.0, 0.36, 2.8, 11.0, "the advisor", "2026-11-21")
HOURLY = RiskSignal("aws", "5-10%/h", "constant", 0.078, 0.032, 0.19, 1.0, "by the hour", "2026-11-21")


def book(*offers: Offer, records: tuple[PoolExperience, ...] = (), weak: str = UNPUBLISHED) -> PriceBook:
    priors = tuple(replace(prior, weak=weak) if prior.market == "spot" else prior for prior in PRIORS)
    made = a_book((AN_OFFER, *(offers or (ZONE_A, ZONE_B, EUROPE))))
    return replace(made, priors=priors, signals=(SIGNAL, HOURLY), records=records)


def record(interruptions: float, exposure: float, zone: str | None = "us-east-1a", **changes: object) -> PoolExperience:
    made = PoolExperience(
        "aws", "us-east-1", zone, "p5.48xlarge", Market.SPOT, 1, 40.0, exposure, interruptions, 7, NOW, NOW
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def risks(of: PriceBook, **filters: tuple[str, ...]) -> tuple[PoolRisk, ...]:
    return list_pool_risks(of, of.risk, OfferFilters(**filters), NOW.date())  # type: ignore[arg-type]


def test_each_spot_pool_is_there_once_the_calmest_first() -> None:
    contested = replace(ZONE_B, interruption_band=">20%", band_as_of=date(2026, 11, 20))
    found = risks(book(ZONE_A, contested, EUROPE))
    assert [risk.place for risk in found] == ["aws/eu-west-1", "aws/us-east-1a", "aws/us-east-1b"]
    assert found[0].median == pytest.approx(found[1].median)
    assert found[2].median > 2 * found[1].median
    assert risks(book(AN_OFFER)) == (), "nothing interrupts what is not on spot"


def test_filters_are_those_of_offers_and_an_unknown_name_is_refused() -> None:
    assert [risk.place for risk in risks(book(), regions=("eu-west-1",))] == ["aws/eu-west-1"]
    assert len(risks(book(), accelerators=("h100",))) == 3
    with pytest.raises(InvalidInputError, match="unknown region 'eu-west-9'"):
        risks(book(), regions=("eu-west-9",))


@pytest.mark.parametrize(
    ("pool", "zones"),
    [
        ("aws/us-east-1/p5.48xlarge", ["us-east-1a", "us-east-1b"]),
        ("AWS/us-east-1b/P5.48xlarge", ["us-east-1b"]),
        ("aws/us-east-1/us-east-1a/p5.48xlarge", ["us-east-1a"]),
        ("aws/eu-west-1/p5.48xlarge", [None]),
    ],
)
def test_a_pool_is_named_by_region_or_zone(pool: str, zones: list[str | None]) -> None:
    made = book()
    found = find_pool_risks(made, made.risk, pool)
    assert [risk.offer.zone for risk in found] == zones
    assert find_pool_risks(made, made.risk, found[0].pool) == found[:1], "the name that is shown finds it again"


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        ("p5.48xlarge", "is no pool"),
        ("aws//p5.48xlarge", "is no pool"),
        ("aws/a/b/c/d", "is no pool"),
        ("aws/us-east-1/p5.48xlarg", "no spot pool"),
        ("aws/us-east-1/eu-west-1/p5.48xlarge", "no spot pool"),
    ],
)
def test_what_names_no_pool_is_refused_with_what_to_do(pool: str, words: str) -> None:
    made = book()
    with pytest.raises(InvalidInputError, match=words) as raised:
        find_pool_risks(made, made.risk, pool)
    assert raised.value.problems[0].remedy


def test_own_events_and_hours_are_those_of_the_pool_alone() -> None:
    own = (record(1.5, 9.0), record(1.0, 2.0, kind=ExperienceKind.AVAILABILITY, hours=8.0, runs=2))
    made = book(records=(*own, record(9.0, 1.0, zone="us-east-1b")))
    here = find_pool_risks(made, made.risk, "aws/us-east-1a/p5.48xlarge")[0]
    assert (here.interruptions, here.hours) == (2.5, 48.0)
    assert set(here.experience) == set(own)
    assert here.basis[:2] == ("own availability", "own gangs")
    assert "level" in here.basis
    elsewhere = find_pool_risks(made, made.risk, "aws/eu-west-1/p5.48xlarge")[0]
    assert (elsewhere.experience, elsewhere.interruptions, elsewhere.basis[0]) == ((), 0, "level")


def test_equal_pools_are_computed_once_and_those_with_records_apart() -> None:
    """The cheaper way must give what asking for each pool gives."""
    made = book(records=(record(3.0, 4.0),))
    for risk in risks(made):
        assert risk.risk == made.risk.gang(risk.offer, MACHINE, 1)


def test_that_nobody_has_published_any_is_said_until_the_own_record_is_enough() -> None:
    for made, expected in (
        (book(), True),
        (book(weak="of 2021"), False),
        (book(records=(record(2.0, 3.0),)), False),
        (book(records=(record(0.0, 0.5),)), True),
    ):
        here = find_pool_risks(made, made.risk, "aws/us-east-1a/p5.48xlarge")[0]
        assert here.is_unpublished is expected
        text = pool_risk_text.table([here])
        assert (" ~" in text, "nobody has published any" in text) == (expected, expected)
        assert ("nobody has published any" in pool_risk_text.ledger(here).partition("WHAT IT RESTS ON")[0]) is expected
        assert json.loads(pool_risk_text.as_json([here], made, NOW))["pools"][0]["unpublished"] is expected


def test_what_would_change_it_is_the_posterior_after_seeing_that() -> None:
    here = risks(book())[0]
    assert [change.watch for change in here.changes] == list(WATCHES)
    for change in here.changes:
        lives, each = change.watch.lives, math.log1p(change.watch.hours / 0.6)
        assert change.exposure == pytest.approx(lives * each)
        after = here.hazard.observed(change.watch.interruptions, lives * each)
        assert (change.median, change.chance) == (after.quantile(0.5), after.survival(24.0))
    soon, _, often, four, week = here.changes
    assert often.median > soon.median > here.median > week.median > four.median
    assert often.chance < soon.chance < here.hazard.survival(24.0) < week.chance < four.chance


def test_a_change_is_what_a_record_of_that_makes_of_the_pool() -> None:
    """A promised change comes true: the same interruption, once recorded, gives the promised level."""
    before = find_pool_risks(book(), book().risk, "aws/us-east-1a/p5.48xlarge")[0]
    change = before.changes[0]
    made = book(records=(record(change.watch.interruptions, change.exposure),))
    after = find_pool_risks(made, made.risk, "aws/us-east-1a/p5.48xlarge")[0]
    assert after.median == pytest.approx(change.median, rel=0.1), "the levels between pools blur it a little"


def test_nothing_changes_what_an_owner_states() -> None:
    made = book(replace(ZONE_A, interruptions_per_hour=0.0), replace(ZONE_B, interruptions_per_hour=0.3))
    none, some = compute_pool_risks(made, made.risk, (o for o in made.offers if o.zone))
    assert (none.median, some.median, none.changes, some.changes) == (0.0, 0.3, (), ())
    assert (none.is_constant, some.basis) == (True, ("stated",))
    assert "nothing that is seen changes it" in pool_risk_text.ledger(some)
    assert "0.30/h" in pool_risk_text.table([some])


def test_a_rate_by_the_hour_is_shown_as_such() -> None:
    made = book(replace(ZONE_A, interruption_band="5-10%/h", band_as_of=date(2026, 11, 21)))
    here = risks(made)[0]
    assert here.hazard.shape is HazardShape.CONSTANT
    assert f"{pool_risk_text.two_digits(here.median)}/h" in pool_risk_text.table([here])
    text = pool_risk_text.ledger(here)
    assert "the same at any age" in text
    assert "0.6 h" not in text
    quiet = here.changes[-1]
    assert quiet.exposure == 168, "hours, not operational time"


def test_an_offer_that_no_prior_covers_is_left_out() -> None:
    lacking = replace(book(), priors=tuple(prior for prior in PRIORS if prior.market != "spot"))
    assert isinstance(PRIORS[0], RiskPrior)
    assert risks(lacking) == ()


def test_the_table_fits_the_screen_and_the_ledger_has_every_part() -> None:
    made = book(
        replace(ZONE_A, interruption_band=">20%", band_as_of=date(2025, 6, 28), preempted_share=0.4),
        ZONE_B,
        EUROPE,
        records=(record(2.0, 9.0),),
    )
    found = risks(made)
    table = pool_risk_text.table(found)
    assert max(map(len, table.splitlines())) <= 80
    header = ["PLACE", "MACHINE", "LEVEL", "80%", "8", "H", "24", "H", "OWN", "RESTS", "ON"]
    assert table.splitlines()[0].split() == header
    (here,) = (risk for risk in found if risk.offer.zone == "us-east-1a")
    text = pool_risk_text.ledger(here)
    for words in (
        "own gangs       2 interruptions in 40.0 h of 7 lives (2026-11-21)",
        "band            >20% (2025-06-28), counts",
        "prior           a trace",
        "2 in 40 h of 7 lives, the last on 2026-11-21",
        "every 3,750 h in the mean",
        "AGE                    0 h",
        "WHAT WOULD CHANGE IT",
        f"{pool_risk_text.two_digits(here.median)} -> ",
    ):
        assert words in text


def test_programs_get_every_figure() -> None:
    made = book(replace(ZONE_A, preempted_share=0.4), ZONE_B, records=(record(2.0, 9.0),))
    document = json.loads(pool_risk_text.as_json(risks(made), made, NOW))
    assert (document["schema_version"], document["book"]["digest"]) == (1, made.digest)
    rows = list(csv.DictReader(pool_risk_text.as_csv(risks(made)).splitlines()))
    assert tuple(rows[0]) == pool_risk_text.CSV_FIELDS
    for row, pool, risk in zip(rows, document["pools"], risks(made), strict=True):
        assert float(row["level_median"]) == pool["level"]["median"] == pytest.approx(risk.median, rel=1e-5)
        assert pool["level"]["low"] < pool["level"]["median"] < pool["level"]["high"]
        assert float(row["no_interruption_24h"]) == pool["no_interruption"]["24h"]
        assert pool["interruptions_per_hour_at_age"].keys() == {"0h", "1h", "4h", "12h", "24h"}
        assert [change["what"] for change in pool["would_change"]] == [watch.what for watch in WATCHES]
        assert [each["level"] for each in pool["evidence"]] == [each.level for each in risk.risk.evidence]
        assert row["rests_on"] == ", ".join(risk.basis)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.004, "0.004"),
        (0.0131, "0.013"),
        (0.0951, "0.095"),
        (0.0996, "0.10"),
        (0.2, "0.20"),
        (0.996, "1.0"),
        (9.96, "10"),
        (1.27, "1.3"),
        (31.6, "32"),
    ],
)
def test_levels_have_two_digits(value: float, text: str) -> None:
    assert pool_risk_text.two_digits(value) == text
