"""Whatever was fetched and whatever was known: the next book is sound, nothing is invented, nothing is lost unseen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pricing.book import PriceBook
from pricing.book_check import check_book
from pricing.money import UsdPerHour
from pricing.offers import Offer, is_stale
from pricing.places import Market
from providers.protocol import FetchResult
from router.prices.merge import GateLimits, MergedBook, merge_books
from tests.support.made_up_book import book

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
DAY = NOW.date()
REGIONS, KINDS, ZONES = ("north-1", "south-1"), ("p9.48xlarge", "p9.24xlarge"), (None, "z1", "z2")
MARKETS = (Market.ON_DEMAND, Market.SPOT)


@st.composite
def offers(draw: st.DrawFn, days: tuple[int, ...]) -> tuple[Offer, ...]:
    """Of two regions, two machines, three grains and two markets; spot never above on demand of the same grain."""
    found = {}
    for _ in range(draw(st.integers(0, 10))):
        market = draw(st.sampled_from(MARKETS))
        price = draw(st.integers(10, 40)) if market is Market.SPOT else draw(st.integers(40, 99))
        one = Offer(
            "aws",
            draw(st.sampled_from(REGIONS)),
            draw(st.sampled_from(ZONES)),
            draw(st.sampled_from(KINDS)),
            market,
            UsdPerHour.parse(price),
            "a source",
            DAY - timedelta(days=draw(st.sampled_from(days))),
            weak=draw(st.sampled_from(("", "", "rounded"))),
        )
        found[one.key] = one
    grain = {kind(o): o.zone is None for o in found.values()}  # by zone or for the region, as the protocol says
    return tuple(o for o in found.values() if grain[kind(o)] == (o.zone is None))


covers = st.frozensets(st.tuples(st.sampled_from(REGIONS), st.sampled_from(MARKETS)))
olds = offers((0, 1, 30, 400)).map(book)
harvests = st.builds(FetchResult, offers=offers((0, 0, 0, 3)), covered=covers)


def merged(old: PriceBook, *parts: FetchResult, limits: GateLimits | None = None) -> MergedBook:
    return merge_books(old, old, {"aws": parts}, NOW, limits or GateLimits(), asked_clouds=("aws",))


def kind(offer: Offer) -> tuple[str, str, Market]:
    return (offer.region, offer.instance_type, offer.market)


@given(olds, harvests)
def test_the_book_is_always_one_that_can_be_written(old: PriceBook, harvest: FetchResult) -> None:
    check_book(merged(old, harvest).book)


@given(olds, harvests)
def test_every_price_was_said_by_somebody(old: PriceBook, harvest: FetchResult) -> None:
    said = {(o.key, o.usd_per_hour) for o in (*old.offers, *harvest.offers)}
    assert {(o.key, o.usd_per_hour) for o in merged(old, harvest).book.offers} <= said


@given(olds, harvests)
def test_what_nobody_looked_at_stays(old: PriceBook, harvest: FetchResult) -> None:
    """Unless the same machine was fetched there, or a fresh spot price shows that its list price is outdated."""
    fetched = {kind(o) for o in harvest.offers}
    spot = {(o.region, o.instance_type) for o in harvest.offers if o.market is Market.SPOT}
    after = {o.key: o for o in merged(old, harvest).book.offers}
    for o in old.offers:
        outdated = o.market is Market.ON_DEMAND and (o.region, o.instance_type) in spot
        if (o.region, o.market) not in harvest.covered and kind(o) not in fetched and not outdated:
            if o.market is Market.SPOT and (o.region, o.instance_type, Market.ON_DEMAND) in fetched:
                continue  # a fresh list price may be below an older spot price
            assert after[o.key].usd_per_hour == o.usd_per_hour
            assert is_stale(after[o.key])


@given(olds, harvests)
def test_what_was_seen_whole_and_is_sound_is_what_there_is(old: PriceBook, harvest: FetchResult) -> None:
    """With everything fresh, sound and covered, the book is the harvest."""
    parts = replace(
        harvest,
        offers=tuple(replace(o, as_of=DAY, weak="") for o in harvest.offers),
        covered=frozenset((region, market) for region in REGIONS for market in MARKETS),
    )
    result = merged(old, parts, limits=GateLimits(accept=True))
    left_out = {held.key for held in result.held}
    assert {o.key for o in result.book.offers} == {o.key for o in parts.offers} - left_out


@given(olds, harvests)
def test_again_changes_nothing(old: PriceBook, harvest: FetchResult) -> None:
    once = merged(old, harvest).book
    twice = merged(once, harvest).book
    assert [(o.key, o.usd_per_hour) for o in once.offers] == [(o.key, o.usd_per_hour) for o in twice.offers]


@given(olds, offers((0,)), st.integers(0, 10), covers)
def test_scopes_may_come_in_any_order(
    old: PriceBook, fresh: tuple[Offer, ...], cut: int, covered: frozenset[tuple[str, Market]]
) -> None:
    first = FetchResult(offers=fresh[:cut], covered=covered)
    second = FetchResult(offers=fresh[cut:])
    assert merged(old, first, second).book == merged(old, second, first).book
