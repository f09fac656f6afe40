"""How often a gang is hit: the order of evidence, what each level of it does, and machines of one pool together."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from pricing.book_file import embedded_book
from pricing.hazard import Hazard, HazardShape, deviation_of
from pricing.offers import Offer
from pricing.places import Market
from pricing.pool_experience import ExperienceKind, PoolExperience
from pricing.risk import (
    AWS_BANDS,
    AZURE_BANDS,
    GANG_EXPONENTS,
    TOLD_HOURS,
    GangRisk,
    RiskPrior,
    RiskSignal,
    RiskTable,
    describe_risk,
    join_risks,
)
from tests.support.books import AN_OFFER, DAY, MACHINE, PRIORS, a_book, spot

HARDWARE = 8 / 30_000
PRIOR_LEVEL = 0.3
MONTH = timedelta(days=30.44)
CALM = RiskSignal("aws", "<5%", "falling", 0.04, 0.013, 0.13, 11.0, "the advisor", "2026-11-21")
ROUGH = RiskSignal("aws", ">20%", "falling", 1.0, 0.36, 2.8, 11.0, "the advisor", "2026-11-21")
HOURLY = RiskSignal("azure", "5-10%/h", "constant", 0.078, 0.032, 0.19, 1.0, "by the hour", "2026-11-21")
TABLE = RiskTable(
    PRIORS,
    (CALM, ROUGH, HOURLY),
    {"H100": "hopper", "A100-80GB": "ampere"},
    DAY,
    shares={("aws", "H100"): 0.2},
    accelerators={
        ("aws", "p5.48xlarge"): "H100",
        ("aws", "p4de.24xlarge"): "A100-80GB",
        ("gcp", "a3-highgpu-8g"): "H100",
    },
)
NOW = datetime(2026, 11, 21, tzinfo=UTC)
POOL = spot("30", zone="us-east-1a")
NEXT_DOOR, FARTHER = replace(POOL, zone="us-east-1b"), replace(POOL, instance_type="p4de.24xlarge")
ABROAD = replace(POOL, cloud="gcp", region="us-central1", zone=None, instance_type="a3-highgpu-8g")
SMALLER = replace(MACHINE, instance_type="p4de.24xlarge", accelerator="A100-80GB")
# Pairs of cloud and accelerator of which somebody has published a record (docs/interruptions.md).
PUBLISHED = {
    *(("aws", name) for name in ("T4", "L4", "V100-16GB", "V100-32GB")),
    *(("gcp", name) for name in ("H100", "A100-40GB", "A100-80GB", "L4", "T4", "V100-16GB")),
}


def record(interruptions: float, exposure: float, **changes: object) -> PoolExperience:
    """Return the record of gangs of one machine in ``POOL``."""
    pool = ("aws", "us-east-1", "us-east-1a", "p5.48xlarge", Market.SPOT)
    made = PoolExperience(*pool, 1, 9.0, exposure, interruptions, 3, NOW, NOW)
    return replace(made, **changes)  # type: ignore[arg-type]


def risk_of(offer: Offer, table: RiskTable = TABLE, machines: int = 1) -> GangRisk:
    return table.gang(offer, SMALLER if offer.instance_type == SMALLER.instance_type else MACHINE, machines)


def median(offer: Offer, table: RiskTable = TABLE) -> float:
    return risk_of(offer, table).hazard.quantile(0.5)


def width(risk: GangRisk) -> float:
    low, high = risk.hazard.interval
    return high / low


def banded(band: str, dated: date | None = DAY) -> Offer:
    return spot("30", interruption_band=band, band_as_of=dated)


def test_without_evidence_the_prior_stands_with_its_interval() -> None:
    risk = risk_of(spot("30"))
    assert risk.hazard.shape is HazardShape.FALLING
    assert risk.hazard.quantile(0.5) == pytest.approx(PRIOR_LEVEL, rel=0.01)
    assert risk.hazard.interval == pytest.approx((0.1, 0.9), rel=0.05)
    assert (risk.source, risk.weak, risk.recovery_hours) == ("prior: a trace (far away)", "far away", 1.5)


def test_evidence_is_told_nearest_first_and_what_is_stated_ends_it() -> None:
    table = TABLE.with_records(
        (
            record(1.0, 2.0),
            record(3.0, 2.0, zone="us-east-1c"),
            record(1.0, 1.0, cloud="gcp", region="us-central1", zone=None, instance_type="a3-highgpu-8g"),
        )
    )
    all_of_it = replace(banded(">20%"), zone="us-east-1a", preempted_share=0.4)
    found = [one.level for one in risk_of(all_of_it, table).evidence]
    assert found == ["own gangs", "level", "all", "band", "share", "prior"]
    assert [one.level for one in risk_of(NEXT_DOOR, table).evidence] == ["level", "all", "prior"]
    stated = risk_of(replace(all_of_it, interruptions_per_hour=0.02), table)
    assert [one.level for one in stated.evidence] == ["stated"]


def test_an_own_record_goes_before_a_band_and_a_band_before_the_prior() -> None:
    """The band says contested, the record calm: each pulls the level to its side, the record more."""
    rough = replace(banded(">20%"), zone="us-east-1a")
    assert median(rough) > 3 * PRIOR_LEVEL
    assert median(rough, TABLE.with_records([record(0.0, 40.0)])) < PRIOR_LEVEL / 2


@pytest.mark.parametrize(("signal", "band"), [(ROUGH, ">20%"), (CALM, "<5%")])
def test_a_band_is_a_factor_that_is_bounded_and_fades_with_its_age(signal: RiskSignal, band: str) -> None:
    """By the book's day: whole when it is new, to the power 1/e after its memory, in the end not."""
    whole = signal.level / PRIOR_LEVEL
    for months, kept in ((-3.0, 1.0), (0.0, 1.0), (11.0, math.exp(-1)), (22.0, math.exp(-2)), (400.0, 0.0)):
        risk = risk_of(banded(band, DAY - months * MONTH))
        assert risk.hazard.quantile(0.5) == pytest.approx(PRIOR_LEVEL * whole**kept, rel=0.03), months
        # It moves the level; how far pools of one band differ is what it was.
        assert width(risk) == pytest.approx(width(risk_of(spot("30"))), rel=0.05)
        assert risk.hazard.shape is HazardShape.FALLING
    assert median(banded(band, None)) == pytest.approx(median(banded(band, DAY - 11 * MONTH)), rel=0.01)


def test_the_age_of_a_band_counts_to_the_day_of_the_book() -> None:
    offer = banded(">20%", date(2026, 10, 1))
    levels = []
    for day in (date(2026, 10, 1), date(2026, 11, 21), date(2028, 10, 1)):
        made = a_book((AN_OFFER, offer))
        made = replace(made, signals=(ROUGH,), as_of=datetime(day.year, day.month, day.day, tzinfo=UTC))
        levels.append(median(offer, made.risk))
    assert levels == sorted(levels, reverse=True)
    assert levels[0] == pytest.approx(ROUGH.level, rel=0.02)
    assert levels[-1] < 1.5 * PRIOR_LEVEL
    assert ">20% (2026-10-01), counts" in risk_of(offer).source


def test_a_band_without_a_meaning_for_its_cloud_says_nothing() -> None:
    assert median(banded("10-15%")) == median(spot("30"))
    assert [one.level for one in risk_of(banded("5-10%/h")).evidence] == ["prior"]


def test_a_rate_of_azure_is_read_by_the_hour_and_the_same_at_any_age() -> None:
    azure = replace(banded("5-10%/h"), cloud="azure")
    risk = risk_of(azure)
    assert risk.hazard.shape is HazardShape.CONSTANT
    assert 0.05 < 1 - math.exp(-risk.hazard.quantile(0.5)) < 0.10, "of five to ten in a hundred in the next hour"
    assert risk.hazard.interval == pytest.approx((HOURLY.low, HOURLY.high), rel=0.1)
    assert risk.hazard.rate_over(8.0) == pytest.approx(risk.hazard.rate_over(24.0)) == pytest.approx(risk.hazard.mean)
    falling = risk_of(replace(spot("30"), cloud="azure")).hazard
    assert falling.rate_over(24.0) < 0.6 * falling.rate_over(8.0)
    assert "read as it is defined" in risk.source


@pytest.mark.parametrize("dated", [DAY - timedelta(days=25), None])
def test_a_rate_of_azure_that_is_weeks_old_or_undated_counts_no_more(dated: date | None) -> None:
    azure = replace(banded("5-10%/h", dated), cloud="azure")
    assert risk_of(azure).hazard == risk_of(replace(spot("30"), cloud="azure")).hazard
    assert "too old to count" in risk_of(azure).source
    assert risk_of(replace(azure, band_as_of=DAY - timedelta(days=15))).hazard.shape is HazardShape.CONSTANT


@pytest.mark.parametrize(
    ("share", "factor"),
    [(0.2, 1.0), (0.8, 2.0), (0.05, 0.5), (0.0, math.sqrt(0.1)), (1.0, math.sqrt(5.0)), (0.1, math.sqrt(0.5))],
)
def test_a_share_of_preempted_machines_counts_by_its_ratio_to_the_usual_one(share: float, factor: float) -> None:
    offer = spot("30", preempted_share=share)
    assert median(offer) == pytest.approx(PRIOR_LEVEL * factor, rel=0.03)
    assert f"{share:.0%} of stops were preemptions, 20% in the mean of its kind" in risk_of(offer).source
    both = replace(banded(">20%"), preempted_share=share)
    assert median(both) == pytest.approx(ROUGH.level * factor, rel=0.03), "beside what a band says"


def test_a_share_says_nothing_where_no_usual_one_is_known() -> None:
    elsewhere = spot("30", cloud="gcp", preempted_share=0.9)
    assert risk_of(elsewhere).hazard == risk_of(replace(elsewhere, preempted_share=None)).hazard
    assert [one.level for one in risk_of(elsewhere).evidence] == ["prior"]


def test_the_usual_share_is_the_mean_of_the_book() -> None:
    calm, rough, silent = (
        spot("30", zone=f"us-east-1{letter}", preempted_share=share)
        for letter, share in (("a", 0.1), ("b", 0.7), ("c", None))
    )
    table = a_book((AN_OFFER, calm, rough, silent)).risk
    assert median(silent, table) == pytest.approx(PRIOR_LEVEL, rel=0.01)
    assert median(calm, table) == pytest.approx(PRIOR_LEVEL * math.sqrt(0.1 / 0.4), rel=0.03)
    assert median(rough, table) == pytest.approx(PRIOR_LEVEL * math.sqrt(0.7 / 0.4), rel=0.03)


@pytest.mark.parametrize(("interruptions", "exposure"), [(24.0, 16.0), (1.0, 40.0)])
def test_an_own_record_narrows_the_interval_and_moves_neighbours_the_less_the_farther_they_are(
    interruptions: float, exposure: float
) -> None:
    table = TABLE.with_records([record(interruptions, exposure)])
    own = risk_of(POOL, table)
    assert width(own) < 0.6 * width(risk_of(POOL))
    shifts = [abs(math.log(median(each, table) / PRIOR_LEVEL)) for each in (POOL, NEXT_DOOR, FARTHER, ABROAD)]
    assert shifts == sorted(shifts, reverse=True)
    assert shifts[0] > 1.2 * shifts[1]
    assert shifts[-1] > 0.005
    rate = interruptions / exposure
    assert abs(math.log(own.hazard.quantile(0.5) / rate)) < abs(math.log(PRIOR_LEVEL / rate)) / 2


@pytest.mark.parametrize(
    ("interruptions", "exposure", "weak"),
    [(1.9, 4.9, "far away"), (2.0, 0.1, ""), (0.0, 5.0, ""), (0.0, 0.0, "far away")],
)
def test_the_doubt_of_the_prior_ends_with_an_own_record_that_is_enough(
    interruptions: float, exposure: float, weak: str
) -> None:
    table = TABLE.with_records([record(interruptions, exposure)])
    assert risk_of(POOL, table).weak == weak
    assert risk_of(NEXT_DOOR, table).weak == "far away", "one of its neighbours is not its own"


def test_a_record_of_a_gang_counts_as_one_of_a_machine_that_lived_longer() -> None:
    gangs = TABLE.with_records([record(3.0, 2.0, machines=16)])
    machine = TABLE.with_records([record(3.0, 2.0 * 16**0.35)])
    assert risk_of(POOL, gangs).machine.weights == pytest.approx(risk_of(POOL, machine).machine.weights)


@pytest.mark.parametrize("changes", [{"market": "on_demand"}, {"instance_type": "p9.unheard-of"}])
def test_records_off_spot_and_of_unknown_machines_say_nothing(changes: dict[str, str]) -> None:
    table = TABLE.with_records([record(9.0, 3.0, **changes)])
    assert risk_of(POOL, table) == risk_of(POOL)


def test_records_of_the_whole_region_and_of_a_zone_concern_each_other() -> None:
    whole = TABLE.with_records([record(9.0, 3.0, zone=None)])
    assert risk_of(POOL, whole).evidence[0].level == "own gangs"
    one = TABLE.with_records([record(9.0, 3.0)])
    assert risk_of(replace(POOL, zone=None), one).evidence[0].level == "own gangs"
    assert risk_of(NEXT_DOOR, one).evidence[0].level == "level"


@pytest.mark.parametrize(("kind", "known"), [(ExperienceKind.AVAILABILITY, True), (ExperienceKind.GANGS, False)])
def test_it_is_known_whether_the_history_of_the_pool_is_among_the_evidence(kind: ExperienceKind, known: bool) -> None:
    table = TABLE.with_records([record(1.0, 2.0, kind=kind)])
    assert risk_of(POOL, table).knows_availability is known
    assert not risk_of(NEXT_DOOR, table).knows_availability


def test_no_record_however_long_makes_a_rate_zero() -> None:
    risk = risk_of(POOL, TABLE.with_records([record(0.0, 1e6)]))
    assert 0 < risk.hazard.interval[0] < risk.hazard.interval[1]
    assert risk.interval_over(8.0)[0] > 0


def test_machines_of_one_pool_are_hit_more_often_and_not_n_times_as_often() -> None:
    one = risk_of(POOL).hazard
    means = []
    for machines in (2, 4, 16):
        found = risk_of(POOL, machines=machines)
        factor = sum(share * machines**exponent for share, exponent in GANG_EXPONENTS)
        means.append(found.hazard.mean)
        assert found.hazard.mean == pytest.approx(one.mean * factor, rel=0.03)
        assert one.mean < found.hazard.mean < machines * one.mean
        assert found.machine == one
    assert means == sorted(means)
    assert sum(share for share, _ in GANG_EXPONENTS) == pytest.approx(1.0)
    assert min(exponent for _, exponent in GANG_EXPONENTS) == 0, "all may be taken together"
    # How often they are taken together is not known either.
    assert width(risk_of(POOL, machines=16)) > 1.2 * width(risk_of(POOL))


def test_a_stated_rate_is_taken_as_it_is() -> None:
    table = TABLE.with_records([record(9.0, 3.0)])
    risk = risk_of(replace(banded(">20%"), zone="us-east-1a", interruptions_per_hour=0.02), table)
    assert risk.hazard == Hazard.known(0.02)
    assert risk.hazard.interval == (0.02, 0.02)
    assert risk.per_hour_over(1.0) == pytest.approx(0.02 + HARDWARE)
    assert risk.per_hour_at(40.0) == pytest.approx(0.02 + HARDWARE)
    assert (risk.weak, risk.source) == ("", "stated: with the offer, a list")


def test_a_stated_rate_of_one_machine_leaves_open_how_often_a_gang_is_hit() -> None:
    risk = risk_of(spot("30", interruptions_per_hour=0.02), machines=16)
    assert risk.machine == Hazard.known(0.02)
    assert risk.hazard.levels == pytest.approx(tuple(0.02 * 16**exponent for _, exponent in GANG_EXPONENTS))
    assert risk.hazard.weights == tuple(share for share, _ in GANG_EXPONENTS)
    low, high = risk.hazard.interval
    assert low < risk.hazard.mean < high


def test_a_rate_stated_for_on_demand_counts() -> None:
    risk = TABLE.gang(replace(AN_OFFER, interruptions_per_hour=0.01), MACHINE, 1)
    assert risk.per_hour_over(8.0) == pytest.approx(0.01 + HARDWARE)


def test_even_a_stated_zero_leaves_the_hardware() -> None:
    risk = risk_of(spot("30", interruptions_per_hour=0.0), machines=4)
    assert risk.hazard.mean == 0
    assert risk.per_hour_over(8.0) == pytest.approx(4 * HARDWARE)
    assert risk.interval_over(8.0) == pytest.approx((4 * 8 / 50_000, 4 * 8 / 15_000))


@pytest.mark.parametrize("market", [Market.ON_DEMAND, Market.RESERVED])
def test_hardware_alone_on_the_other_markets(market: Market) -> None:
    """A gang of 16 x 8 accelerators fails once in about 234 hours."""
    risk = TABLE.gang(replace(AN_OFFER, market=market, interruption_band=">20%", band_as_of=DAY), MACHINE, 16)
    assert risk.per_hour_over(8.0) == risk.per_hour_at(24.0) == pytest.approx(128 / 30_000)
    assert risk.interval_over(8.0) == pytest.approx((128 / 50_000, 128 / 15_000))
    assert (risk.hazard.mean, risk.recovery_hours) == (0, 0.5)
    assert [one.level for one in risk.evidence] == ["hardware"]


@pytest.mark.parametrize("market", list(Market))
def test_hardware_fails_on_every_market(market: Market) -> None:
    risk = TABLE.gang(replace(AN_OFFER, market=market), MACHINE, 4)
    assert risk.hardware_per_hour == pytest.approx(4 * HARDWARE)
    assert risk.per_hour_over(8.0) - risk.hazard.rate_over(8.0) == pytest.approx(4 * HARDWARE)
    assert risk.per_hour_at(2.0) - risk.hazard.rate_at(2.0) == pytest.approx(4 * HARDWARE)


def test_the_rate_falls_with_age_and_lies_in_its_interval() -> None:
    risk = risk_of(POOL, machines=2)
    assert risk.per_hour_at(0.0) > risk.per_hour_at(2.0) > risk.per_hour_at(24.0)
    low, high = risk.interval_over(8.0)
    assert low < risk.per_hour_over(8.0) < high
    assert high > 5 * low


def test_the_most_specific_prior_applies() -> None:
    rows = [("*", "*"), ("*", "H100"), ("aws", "*"), ("aws", "H100")]
    for known in range(1, 5):
        priors = tuple(
            RiskPrior(c, a, "spot", "falling", 0.1 * known, 0.03 * known, 0.3 * known, 1.0, 0.0, f"{c}/{a}", "", "")
            for c, a in rows[:known]
        )
        table = RiskTable(priors)
        assert table.prior("aws", "H100", Market.SPOT).source == "/".join(rows[known - 1])
        assert median(spot("30"), table) == pytest.approx(0.1 * known, rel=0.02)


def test_no_prior_is_an_error_and_not_zero() -> None:
    for table in (RiskTable(()), RiskTable(tuple(prior for prior in PRIORS if prior.market != "spot"))):
        with pytest.raises(LookupError, match="no interruption prior covers aws H100 spot"):
            table.gang(spot("30"), MACHINE, 1)
        with pytest.raises(LookupError, match="no interruption prior"):
            table.refusal_probability(spot("30"), MACHINE)


def test_a_gang_has_machines() -> None:
    with pytest.raises(ValueError, match="at least one"):
        TABLE.gang(spot("30"), MACHINE, 0)


def test_one_part_is_its_own_risk() -> None:
    assert join_risks([risk_of(POOL)]) == risk_of(POOL)


def test_a_gang_of_several_parts_is_hit_when_any_of_them_is() -> None:
    parts = [risk_of(POOL), risk_of(replace(banded(">20%"), zone="us-east-1b"), machines=3)]
    whole = join_risks(parts)
    for hours in (2.0, TOLD_HOURS, 24.0):
        assert whole.per_hour_over(hours) == pytest.approx(sum(part.per_hour_over(hours) for part in parts), rel=0.04)
    assert whole.hazard.mean > max(part.hazard.mean for part in parts)
    assert whole.hardware_per_hour == pytest.approx(4 * HARDWARE)
    # What is not known of the level is common to all: the interval is as wide as that of a part.
    assert width(whole) == pytest.approx(width(parts[1]), rel=0.1)
    assert len(whole.evidence) == 2
    assert (whole.weak, whole.recovery_hours) == ("far away", 1.5)


def test_a_part_with_a_constant_rate_counts_over_a_typical_life() -> None:
    stated = risk_of(spot("30", interruptions_per_hour=0.05))
    for parts in ([risk_of(POOL), stated], [stated, risk_of(POOL)]):
        whole = join_risks(parts)
        assert whole.hazard.shape is HazardShape.FALLING
        total = sum(part.per_hour_over(TOLD_HOURS) for part in parts)
        assert whole.per_hour_over(TOLD_HOURS) == pytest.approx(total, rel=0.04)
        assert {one.level for one in whole.evidence} == {"prior", "stated"}


def test_a_core_on_demand_adds_its_hardware_alone() -> None:
    core, rest = TABLE.gang(AN_OFFER, MACHINE, 2), risk_of(POOL)
    whole = join_risks([core, rest])
    assert whole.hazard.mean == pytest.approx(rest.hazard.mean)
    assert whole.hardware_per_hour == pytest.approx(3 * HARDWARE)
    assert whole.recovery_hours == rest.recovery_hours == 1.5
    sure = join_risks([core, core])
    assert sure.hazard == core.hazard
    assert sure.hardware_per_hour == pytest.approx(4 * HARDWARE)


def test_a_risk_in_words_has_the_sums_of_its_parts() -> None:
    parts = [risk_of(POOL), risk_of(NEXT_DOOR)]
    low, high = parts[0].interval_over(TOLD_HOURS)
    mean = 2 * parts[0].per_hour_over(TOLD_HOURS)
    said = describe_risk(parts)
    assert said == (
        f"interrupted {mean:.2g} times an hour in its first 8 h ({2 * low:.2g} to {2 * high:.2g}): "
        "prior: a trace (far away)"
    )


def test_the_wait_for_machines_is_as_seen_of_the_pool_shrunk_to_what_its_kind_shows() -> None:
    assumed = risk_of(POOL).recovery_hours

    def wait(*rows: PoolExperience) -> float:
        return risk_of(POOL, TABLE.with_records(rows)).recovery_hours

    assert wait(record(3.0, 5.0)) == assumed, "gangs that were held say nothing of waits"
    assert wait(record(3.0, 5.0, waited_hours=20.0, waits=4.0)) == pytest.approx((20 + 4 * assumed) / 8)
    assert wait(record(3.0, 5.0, waited_hours=90.0, waits=0.0)) > assumed + 20, "it never came back"
    assert wait(record(3.0, 5.0, waited_hours=600.0, waits=2000.0)) == pytest.approx(0.3, rel=0.01)
    elsewhere = record(3.0, 5.0, region="eu-west-9", waited_hours=20.0, waits=4.0)
    assert wait(elsewhere) == assumed
    never = record(0.0, 0.0, hours=0.0, runs=0, waited_hours=90.0, kind=ExperienceKind.AVAILABILITY)
    risk = risk_of(POOL, TABLE.with_records([never]))
    assert median(POOL, TABLE.with_records([never])) == pytest.approx(median(POOL), rel=0.01)
    assert risk.source.startswith("own availability: 0 interruptions in 0.0 h of 0 lives, none for 90.0 h")


@pytest.mark.parametrize("machines", [1, 4, 64])
def test_at_the_ends_of_the_interval_a_gang_is_hit_as_often_as_the_interval_says(machines: int) -> None:
    recorded = TABLE.with_records([record(3.0, 5.0)])
    ends = [risk_of(POOL, recorded.at_quantile(each), machines).per_hour_over(TOLD_HOURS) for each in (0.1, 0.9)]
    assert ends == pytest.approx(risk_of(POOL, recorded, machines).interval_over(TOLD_HOURS), rel=1e-6)


@pytest.mark.parametrize("machines", [1, 4])
def test_at_a_quantile_a_pool_counts_as_known_and_a_statement_stays(machines: int) -> None:
    recorded = TABLE.with_records([record(3.0, 5.0)])
    low, high = (recorded.at_quantile(quantile) for quantile in (0.1, 0.9))
    whole = risk_of(POOL, recorded, machines)
    assert risk_of(POOL, low).hazard.mean == pytest.approx(risk_of(POOL, recorded).hazard.quantile(0.1))
    means = [risk_of(POOL, table, machines).hazard.mean for table in (low, recorded, high)]
    assert means == sorted(means)
    assert risk_of(POOL, low, machines).recovery_hours == whole.recovery_hours
    assert recorded.at_quantile(None) is recorded
    stated = replace(POOL, interruptions_per_hour=0.3)
    assert risk_of(stated, low, machines) == risk_of(stated, recorded, machines)
    sure = replace(POOL, market=Market.ON_DEMAND)
    assert risk_of(sure, low, machines) == risk_of(sure, recorded, machines)


def test_every_embedded_offer_has_a_risk_above_zero() -> None:
    book = embedded_book()
    for offer in book.offers:
        machine = book.machine(offer.cloud, offer.instance_type)
        assert machine is not None
        risk = book.risk.gang(offer, machine, 2)
        low, high = risk.interval_over(8.0)
        assert 0 < low < risk.per_hour_over(8.0) < high
        assert risk.recovery_hours > 0
        assert risk.source
        assert 0 <= book.risk.refusal_probability(offer, machine) < 1


def test_every_embedded_spot_offer_has_a_wide_interval_and_says_where_nobody_has_published_any() -> None:
    book = embedded_book()
    asked = 0
    for offer in (one for one in book.offers if one.market is Market.SPOT):
        machine = book.machine(offer.cloud, offer.instance_type)
        assert machine is not None
        risk = book.risk.gang(offer, machine, 1)
        published = (offer.cloud, machine.accelerator) in PUBLISHED
        assert risk.weak, offer.key
        assert ("nobody has published any" in risk.weak) is not published, offer.key
        assert ("nobody has published any" in risk.source) is not published, offer.key
        assert width(risk) > (7 if published else 10), offer.key
        asked += not published
    assert asked > 100


def test_embedded_spot_is_riskier_than_on_demand_and_its_assumptions_have_sources() -> None:
    book = embedded_book()
    for prior in book.priors:
        assert prior.source
        assert prior.as_of == "2026-11-21"
        assert (prior.level > 0) is (prior.market == "spot")
        if prior.market == "spot":
            assert 0 < prior.low < prior.level < prior.high
            assert prior.weak
    for offer in (one for one in book.offers if one.market is Market.SPOT):
        machine = book.machine(offer.cloud, offer.instance_type)
        assert machine is not None
        sure = book.risk.gang(replace(offer, market=Market.ON_DEMAND), machine, 1)
        assert book.risk.gang(offer, machine, 1).per_hour_over(8.0) > 2 * sure.per_hour_over(8.0)


def test_embedded_bands_rise_in_their_order_and_azures_mean_what_they_say() -> None:
    signals = {(signal.cloud, signal.band): signal for signal in embedded_book().signals}
    for cloud, bands in (("aws", AWS_BANDS), ("azure", AZURE_BANDS)):
        levels = [signals[cloud, band].level for band in bands]
        assert levels == sorted(set(levels))
    assert len(signals) == len(AWS_BANDS) + len(AZURE_BANDS)
    for low, band in zip((0.0, 0.05, 0.10, 0.15), AZURE_BANDS, strict=False):
        signal = signals["azure", band]
        assert signal.shape == "constant"
        assert low < 1 - math.exp(-signal.level) < low + 0.05
        assert deviation_of(signal.low, signal.high) > 0.3
