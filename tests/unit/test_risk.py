"""How often a gang is hit: the order of evidence, and machines of one pool taken together."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pricing.book_file import embedded_book
from pricing.places import Market
from pricing.risk import RiskPrior, RiskTable, band_rate
from tests.support.books import AN_OFFER, MACHINE, PRIORS, spot

TABLE = RiskTable(PRIORS)
HARDWARE = 8 / 30_000


def test_bands_are_taken_at_their_upper_edge() -> None:
    assert band_rate("<5%") == pytest.approx(-math.log(0.95) / 730)
    assert band_rate(">20%") == pytest.approx(-math.log(0.60) / 730)
    with pytest.raises(KeyError):
        band_rate("seldom")


def test_a_stated_rate_beats_a_band_which_beats_the_prior() -> None:
    both = spot("30", interruptions_per_hour=0.02, interruption_band="<5%")
    stated = TABLE.gang(both, MACHINE, 1)
    banded = TABLE.gang(replace(both, interruptions_per_hour=None), MACHINE, 1)
    prior = TABLE.gang(spot("30"), MACHINE, 1)
    assert stated.interruptions_per_hour == pytest.approx(0.02 + HARDWARE)
    assert banded.interruptions_per_hour == pytest.approx(band_rate("<5%") + HARDWARE)
    assert prior.interruptions_per_hour == pytest.approx(0.1 + HARDWARE)
    assert (stated.weak, banded.weak, prior.weak) == ("", "", "far away")
    assert "stated" in stated.source
    assert "<5%" in banded.source
    assert prior.source == "a trace"


def test_an_open_band_is_weak() -> None:
    assert "no upper edge" in TABLE.gang(spot("30", interruption_band=">20%"), MACHINE, 1).weak


def test_a_gang_of_one_pool_is_not_hit_n_times_as_often() -> None:
    one = TABLE.gang(spot("30"), MACHINE, 1).interruptions_per_hour - HARDWARE
    sixteen = TABLE.gang(spot("30"), MACHINE, 16).interruptions_per_hour - 16 * HARDWARE
    assert sixteen / one == pytest.approx(16**0.4)


@pytest.mark.parametrize("market", [Market.ON_DEMAND, Market.RESERVED])
def test_hardware_alone_on_the_other_markets(market: Market) -> None:
    """A gang of 16 x 8 accelerators fails once in about 234 hours."""
    risk = TABLE.gang(replace(AN_OFFER, market=market, interruption_band=">20%"), MACHINE, 16)
    assert risk.interruptions_per_hour == pytest.approx(128 / 30_000)
    assert risk.recovery_hours == 0.5


def test_a_rate_stated_for_on_demand_counts() -> None:
    risk = TABLE.gang(replace(AN_OFFER, interruptions_per_hour=0.01), MACHINE, 1)
    assert risk.interruptions_per_hour == pytest.approx(0.01 + HARDWARE)


def test_even_a_stated_zero_leaves_the_hardware() -> None:
    assert TABLE.gang(spot("30", interruptions_per_hour=0.0), MACHINE, 1).interruptions_per_hour > 0


def test_the_most_specific_prior_applies() -> None:
    rows = [("*", "*"), ("*", "H100"), ("aws", "*"), ("aws", "H100")]
    for known in range(1, 5):
        table = RiskTable(tuple(RiskPrior(c, a, "spot", known, 0, 1, f"{c}/{a}", "", "") for c, a in rows[:known]))
        assert table.prior("aws", "H100", Market.SPOT).source == "/".join(rows[known - 1])


def test_no_prior_is_an_error_and_not_zero() -> None:
    with pytest.raises(LookupError, match="no interruption prior"):
        RiskTable(()).gang(spot("30"), MACHINE, 1)


def test_a_gang_has_machines() -> None:
    with pytest.raises(ValueError, match="at least one"):
        TABLE.gang(spot("30"), MACHINE, 0)


def test_every_embedded_offer_has_a_risk_above_zero() -> None:
    book = embedded_book()
    for offer in book.offers:
        machine = book.machine(offer.cloud, offer.instance_type)
        assert machine is not None
        risk = book.risk.gang(offer, machine, 2)
        assert risk.interruptions_per_hour > 0
        assert risk.recovery_hours > 0
        assert risk.source
        if offer.market is Market.SPOT and not offer.interruption_band:
            assert risk.weak


def test_spot_without_evidence_is_riskier_than_on_demand() -> None:
    book = embedded_book()
    for prior in book.priors:
        assert prior.source
        assert prior.as_of == "2026-11-21"
        if prior.market == "spot":
            assert prior.interruptions_per_machine_hour > 0
            assert prior.weak
