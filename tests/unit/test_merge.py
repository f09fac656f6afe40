"""The next book: what was seen replaces, what was not stays and is marked, what looks wrong is held back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from pricing.book import PriceBook
from pricing.book_check import check_book
from pricing.money import UsdPerHour
from pricing.offers import Offer, is_stale
from pricing.places import Market, make_unknown_region
from pricing.pool_experience import ExperienceKind, PoolExperience
from pricing.risk import RiskSignal
from providers.protocol import FetchResult
from router.prices.merge import GateLimits, MergedBook, extend_tables, merge_books
from tests.support.made_up_book import book as a_book

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
DAY = NOW.date()


def offer(
    price: object,
    *,
    region: str = "",
    zone: str | None = None,
    market: Market = Market.SPOT,
    cloud: str = "aws",
    kind: str = "p9.48xlarge",
    as_of: date = DAY,
) -> Offer:
    return Offer(cloud, region or regions()[0], zone, kind, market, UsdPerHour.parse(str(price)), "a source", as_of)


def regions(cloud: str = "aws") -> list[str]:
    return [r.id.region for r in a_book(()).regions if r.id.cloud == cloud]


def book(*offers: Offer) -> PriceBook:
    return a_book(offers)


def merged(
    old: PriceBook, parts: Mapping[str, Sequence[FetchResult]], *, asked: Sequence[str] = ("aws",), mark: bool = True
) -> MergedBook:
    result = merge_books(old, old, parts, NOW, GateLimits(), asked_clouds=asked if mark else ())
    check_book(result.book)
    return result


def seen(
    *offers: Offer, markets: Sequence[Market] = (Market.SPOT,), region: str = ""
) -> dict[str, Sequence[FetchResult]]:
    place = region or regions()[0]
    return {"aws": (FetchResult(offers=offers, covered=frozenset((place, market) for market in markets)),)}


def test_what_was_seen_whole_replaces_what_was_there() -> None:
    gone, stays = offer(30, kind="p9.24xlarge"), offer(20)
    result = merged(book(gone, stays), seen(offer(21)))
    assert [(o.instance_type, str(o.usd_per_hour)) for o in result.book.offers] == [("p9.48xlarge", "21.00")]
    assert (result.counts["aws"].changed, result.counts["aws"].removed, result.counts["aws"].kept) == (1, 1, 0)


def test_what_was_not_seen_stays_and_is_marked_once() -> None:
    other = offer(50, market=Market.ON_DEMAND)
    first = merged(book(other, offer(20)), seen(offer(20)))
    kept = next(o for o in first.book.offers if o.market is Market.ON_DEMAND)
    assert is_stale(kept)
    assert kept.as_of == other.as_of
    again = merged(first.book, seen(offer(20)))
    assert again.book.offers == first.book.offers


def test_a_cloud_that_was_not_asked_is_left_alone() -> None:
    theirs = offer(40, cloud="gcp", region=regions("gcp")[0], kind="a9-highgpu-8g")
    result = merged(book(theirs), seen(offer(20)))
    assert theirs in result.book.offers


def test_a_fresh_price_takes_the_mark_away() -> None:
    stale = merged(book(offer(20)), seen(offer(50, market=Market.ON_DEMAND), markets=[Market.ON_DEMAND]))
    fresh = merged(stale.book, seen(offer(20)))
    assert [is_stale(o) for o in fresh.book.offers if o.market is Market.SPOT] == [False]


def test_zones_replace_a_price_for_the_region_and_the_other_way_round() -> None:
    """The same machine would be there twice, once at an old price. Without coverage a price for the region is known
    less well than those of its zones, and waits until they are old."""
    zoned = {"aws": (FetchResult(offers=(offer(20, zone="z1"), offer(21, zone="z2"))),)}
    result = merged(book(offer(10)), zoned)
    assert [o.zone for o in result.book.offers] == ["z1", "z2"]
    blurred = {"aws": (FetchResult(offers=(offer(15),)),)}
    assert [o.zone for o in merged(result.book, blurred).book.offers] == ["z1", "z2"]
    assert [o.zone for o in merged(result.book, seen(offer(15))).book.offers] == [None]
    aged = book(*(replace(o, as_of=DAY - timedelta(days=60)) for o in result.book.offers))
    assert [o.zone for o in merged(aged, blurred).book.offers] == [None]


def test_a_jump_keeps_the_older_row() -> None:
    yesterday = DAY - timedelta(days=1)
    result = merged(book(offer(20, as_of=yesterday)), seen(offer(90)))
    assert [str(o.usd_per_hour) for o in result.book.offers] == ["20.00"]
    assert [h.gate for h in result.held] == ["price jump"]
    assert is_stale(result.book.offers[0])


def test_a_vanished_market_keeps_its_rows() -> None:
    result = merged(book(offer(20, as_of=DAY - timedelta(days=1))), seen())
    assert [h.gate for h in result.held] == ["region vanished"]
    assert len(result.book.offers) == 1


def test_spot_above_on_demand_is_left_out() -> None:
    both = seen(offer(20), offer(19, market=Market.ON_DEMAND), markets=list(Market))
    result = merged(book(), both)
    assert [o.market for o in result.book.offers] == [Market.ON_DEMAND]
    assert [h.gate for h in result.held] == ["spot above on demand"]


def test_a_fresh_spot_price_beats_an_older_on_demand_price() -> None:
    result = merged(book(offer(19, market=Market.ON_DEMAND)), seen(offer(20)))
    assert [o.market for o in result.book.offers] == [Market.SPOT]
    assert "of an older book" in result.held[0].what


def test_a_hair_of_rounding_is_no_difference() -> None:
    both = seen(offer("27.4330"), offer("27.43298", market=Market.ON_DEMAND), markets=list(Market))
    result = merged(book(), both)
    assert [str(o.usd_per_hour) for o in result.book.offers] == ["27.43298", "27.43298"]
    assert result.held == ()


def test_new_places_and_machines_come_along() -> None:
    place = make_unknown_region("aws", "xx-new-1", "made up", DAY)
    machine = replace(a_book(()).machines[0], cloud="aws", instance_type="p10.48xlarge")
    new = offer(20, region="xx-new-1", kind="p10.48xlarge")
    parts = {"aws": (FetchResult(offers=(new,), machines=(machine,), regions=(place,)),)}
    result = merged(book(), parts)
    assert result.book.region(place.id) == place
    assert result.book.machine("aws", "p10.48xlarge") == machine


def test_without_marking_what_was_not_seen_stays_as_it_is() -> None:
    kept = offer(50, market=Market.ON_DEMAND)
    assert kept in merged(book(kept), seen(offer(20)), asked=(), mark=False).book.offers


def test_a_doubtful_price_does_not_replace_a_sound_recent_one() -> None:
    """A refresh without the account, the night after one with it."""
    sound = offer(20, zone="z1", as_of=DAY - timedelta(days=1))
    weak = replace(offer(18), weak="rounded savings")
    result = merged(book(sound), seen(weak))
    assert [(o.zone, str(o.usd_per_hour)) for o in result.book.offers] == [("z1", "20.00")]
    assert result.held == ()  # the region has not vanished: it was priced, only less well
    old = replace(sound, as_of=DAY - timedelta(days=60))
    assert [o.zone for o in merged(book(old), seen(weak)).book.offers] == [None]


def test_a_corrected_word_replaces_what_was_learnt_but_not_the_tables() -> None:
    """A pool file with a wrong country, put right; and a source that contradicts our own table."""
    tables = book()
    wrong = make_unknown_region("static", "hall-77", "pool.yaml", DAY)
    right = replace(wrong, country="DE", geo="EU", residency_group="EU")
    learnt = replace(tables, regions=(*tables.regions, wrong))
    known = next(r for r in tables.regions if r.id.cloud == "aws")
    parts = {"static": (FetchResult(regions=(right, replace(known, country="XX"))),)}
    result = merge_books(learnt, tables, parts, NOW, GateLimits(), asked_clouds=()).book
    assert result.region(right.id) == right
    assert result.region(known.id) == known


def test_an_older_catalogue_does_not_replace_a_price_of_today() -> None:
    today, older = offer(20), offer(25, as_of=DAY - timedelta(days=3))
    result = merged(book(today), seen(older), asked=())
    assert [str(o.usd_per_hour) for o in result.book.offers] == ["20.00"]
    assert result.passed_over == 1
    assert [str(o.usd_per_hour) for o in merged(book(older), seen(today)).book.offers] == ["20.00"]


def test_signals_are_this_versions_and_records_stay() -> None:
    """No cloud is asked for records: they are counted from the history, and from what gangs lived through."""
    at = NOW - timedelta(days=3)
    record = PoolExperience(
        "aws", regions()[0], None, "p9.48xlarge", Market.SPOT, 1, 40.0, 9.0, 2.0, 3, at, at, ExperienceKind.AVAILABILITY
    )
    old_signal, new_signal = (
        RiskSignal("aws", "<5%", "falling", level, 0.01, 0.3, 11.0, "a study", "2026-11-01") for level in (0.03, 0.04)
    )
    old = replace(book(offer(20)), records=(record,), signals=(old_signal,))
    tables = replace(book(), signals=(new_signal,))
    result = merge_books(old, tables, seen(offer(21)), NOW, GateLimits(), asked_clouds=("aws",))
    assert result.book.signals == (new_signal,)
    assert result.book.records == (record,)
    assert extend_tables(tables, None, old).records == (record,)
    newer = replace(record, interruptions=5.0)
    assert extend_tables(replace(tables, records=(newer,)), None, old).records == (newer,), (
        "of one pool the first counts"
    )
