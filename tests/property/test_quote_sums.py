"""Every figure that a quote explains adds up from its own parts: money by part, a step, spot and its restarts, levels,
the curve, what the text shows."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from pricing.money import Usd
from pricing.offers import Offer
from router.quotes.quote import LEVELS, Quote
from router.render.quote_text import text
from tests.support.asked_quotes import answer
from tests.support.made_up_book import offer
from tests.support.scenes import ALPS, BAY, LAKE, NORTH, NORTH_SPOT, SOUTH, a_job

SOUTH_SPOT = offer("aws/south-1", "p9.48xlarge", "spot", "20")
LAKE_SPOT = offer("gcp/lake-1", "a9-highgpu-8g", "spot", "18")
OFFERS = (NORTH, NORTH_SPOT, SOUTH, SOUTH_SPOT, ALPS, LAKE, LAKE_SPOT, BAY)
OF_THESE = "of these: "
_CENTS = r"\$([\d,]+\.\d\d)"


def dollars(found: str) -> Decimal:
    return Decimal(found.replace(",", ""))


def check_money(q: Quote) -> None:
    """The parts are all of the expected cost; start-ups and lost work are some of the machines' part."""
    assert q.usd.mean is not None
    parts = [each for each in q.drivers if not each.what.startswith(OF_THESE)]
    assert Usd.total(each.usd for each in parts if each.usd is not None) == q.usd.mean
    assert sum(each.share for each in parts) == pytest.approx(1)
    machines = Usd.total(each.usd for each in parts if each.usd is not None and "machines" in each.what)
    for each in q.drivers:
        assert each.usd is not None
        assert each.usd > Usd(0)
        assert each.usd.nanos / q.usd.mean.nanos == pytest.approx(each.share, abs=0.006 / q.usd.mean.dollars())
        if each.what.startswith(OF_THESE):
            assert each.usd <= machines
    assert q.usd_per_step is not None
    assert q.usd_per_step.nanos * q.steps == pytest.approx(q.usd.mean.nanos, abs=q.steps)
    assert q.steps_per_usd == pytest.approx(q.steps / q.usd.mean.dollars())


def check_time(q: Quote) -> None:
    """Spot that is paid for is spot that runs, and what never runs on spot is never interrupted."""
    spot = sum(each.share for each in q.drivers if each.what == "spot machines")
    assert (spot > 0) is (q.spot_share > 0)
    assert 0 <= q.spot_share <= 1
    if q.spot_share == 0:
        assert q.interruptions == 0
    if q.spot_share == 1:
        assert [each.what for each in q.drivers if "demand" in each.what] == []
    assert all(one.end <= two.start for one, two in zip(q.run, q.run[1:], strict=False))
    assert all(leg.start < leg.end for leg in q.run)
    assert not q.run or q.run[0].start == q.start


def check_levels(q: Quote) -> None:
    """The quantiles are those of the headline, and so is the curve's point at the deadline."""
    levels = dict(zip((round(1000 * level) for level in LEVELS), q.usd_levels, strict=True))
    assert (levels[500], levels[900]) == (q.usd.p50, q.usd.p90)
    finite = [usd for usd in q.usd_levels if usd is not None]
    assert finite == sorted(finite)
    (here,) = (point for point in q.curve if point.deadline == q.deadline)
    assert (here.mean, here.p50, here.p90, here.on_time) == (q.usd.mean, q.usd.p50, q.usd.p90, q.on_time)
    assert q.on_time_low <= q.on_time <= q.on_time_high


def check_text(q: Quote) -> None:
    """The parts that a quote prints add up to its headline."""
    assert q.usd.mean is not None
    shown = " ".join(text(q, "quote-1").split())
    (headline,) = re.findall(rf"WHAT IT COSTS \({_CENTS} expected\)", shown)
    said, _, _ = shown.partition("WHAT IT COSTS")[2].partition("DONE BY")
    parts = re.findall(rf"\d+% {_CENTS} (?!of these)", said)
    assert sum(map(dollars, parts)) == dollars(headline)
    assert f"{q.job} by" in shown
    assert f": ${headline} expected" in shown
    for other in q.alternatives:
        if other.mean is not None and f"{other.change} " in shown:
            assert f"{other.mean.nanos / q.usd.mean.nanos - 1:+.0%}" in shown.partition("INSTEAD")[2]


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@example(steps=900, hours=12, offers=[NORTH, NORTH_SPOT, SOUTH, SOUTH_SPOT], checkpoint=360, data=None)
@example(steps=300, hours=10, offers=[SOUTH, SOUTH_SPOT], checkpoint=10, data=5000)
@example(steps=300, hours=24, offers=[NORTH], checkpoint=10, data=None)
@given(
    steps=st.integers(1, 1500),
    hours=st.integers(4, 48),
    offers=st.lists(st.sampled_from(OFFERS), min_size=1, max_size=6, unique=True),
    checkpoint=st.integers(1, 500),
    data=st.none() | st.integers(1, 9000),
)
def test_what_a_quote_says_adds_up(
    steps: int, hours: int, offers: list[Offer], checkpoint: int, data: int | None
) -> None:
    more: dict[str, Any] = {} if data is None else {"data": {"uri": "s3://a/b", "at": "aws/north-1", "gib": data}}
    job = a_job(steps=steps, checkpoint={"size_gib": checkpoint, "interval": "1h"}, **more)
    quote = answer(job, hours, offers)
    assume(isinstance(quote, Quote))
    assert isinstance(quote, Quote)
    if quote.usd.mean is None:
        assert quote.drivers == ()
        return
    check_money(quote)
    check_time(quote)
    check_levels(quote)
    check_text(quote)
