"""Draw the pages of prices: the book in use with clouds and a map of regions, and the history of offers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from urllib.parse import urlencode

from pricing.hazard import AGE_SCALE_HOURS
from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from pricing.units import format_count
from router.render import drawing
from router.render.drawing import LabelBox, element, in_widths, line, rect, text, text_width
from router.render.figures import MARKET_LETTERS, MARKET_WORDS, day_clock, hours, money, percent
from router.render.history_text import HISTORIES, MOST_ROWS, draw_history, format_place
from router.render.offers_text import OfferRow
from router.render.pages import PageFrame, fill_template
from router.render.pool_risk_text import TOLD_CHANCES, PoolRisk, format_interval, format_level, format_own
from router.render.prices_view import CloudHealth, HistoryReport, PricesReport, RegionPrices, SeriesPicture

# The accelerator that the sentence and the map are about until another one is asked for.
USUAL_ACCELERATOR = "H100"
MOST_BOOKS, MOST_SERIES = 30, 200
# Spot pools in the page's table, and those of them that are seen without opening the rest.
MOST_POOLS, OPEN_POOLS = 100, 12
_STATUS = {
    "fresh": "all of it answered",
    "partial": "answered in part",
    "failed": "did not answer",
    "skipped": "was not asked",
}
_MARKETS = (Market.SPOT, Market.ON_DEMAND, Market.RESERVED)


def prices_page(
    report: PricesReport,
    regions: tuple[RegionPrices, ...],
    risks: tuple[PoolRisk, ...],
    accelerator: str,
    frame: PageFrame | None = None,
) -> str:
    """Return the page of the price book in use; ``regions`` and spot pools (``risks``) are those of the accelerator."""
    book, today = report.book, report.now.date()
    usual = USUAL_ACCELERATOR
    return fill_template(
        "prices.html",
        frame=frame,
        report=report,
        book=book,
        accelerator=accelerator,
        usual=usual,
        age=age_in_words(report.now - book.as_of),
        rows_age=_rows_age(report),
        spot=report.find_orderable(usual, Market.SPOT),
        on_demand=report.find_orderable(usual, Market.ON_DEMAND),
        cheaper=_cheaper_advisory(report, usual),
        failed=[each.cloud for each in report.clouds if each.failed],
        weak=sum(bool(offer.weak) for offer in book.offers),
        undated=sum(offer.as_of is None for offer in book.offers),
        cheapest=[
            (_offer_cells(row), history_url(row.machine.accelerator, row.offer.market)) for row in report.cheapest
        ],
        clouds=[_cloud_cells(each, today) for each in report.clouds],
        open_pools=OPEN_POOLS,
        books=report.books[:MOST_BOOKS],
        more_books=len(report.books) - len(report.books[:MOST_BOOKS]),
        regions=[_region_cells(each, accelerator) for each in regions],
        unplaced=sum(each.position is None for each in regions),
        risks=[_risk_cells(each) for each in risks[:MOST_POOLS]],
        pools=len(risks),
        unpublished=bool(risks) and all(each.is_unpublished for each in risks),
        age_scale=f"{AGE_SCALE_HOURS:g} h",
        markets=[(m.value, MARKET_WORDS[m.value], MARKET_LETTERS[m.value]) for m in _MARKETS],
        map=in_widths(lambda layout: draw_map(regions, accelerator, layout), MAPS),
    )


@dataclass(frozen=True, slots=True)
class HistoryFields:
    """The form of a history: what is asked for, and sentences on what is wrong by the name of the field.

    ``since`` is the length that is shown, and ``written`` what the field holds.
    """

    accelerator: str
    region: str
    market: str
    since: str
    written: str
    problems: Mapping[str, tuple[str, ...]]


def history_page(report: HistoryReport, fields: HistoryFields, frame: PageFrame | None = None) -> str:
    """Return the page of the history of an accelerator, as far as a region and a market confine it."""
    pools = [each for each in report.series if each.exposure is not None and each.exposure.hours > 0]
    return fill_template(
        "price_history.html",
        frame=frame,
        report=report,
        fields=fields,
        drawings=in_widths(lambda layout: draw_history(report, layout), HISTORIES) if report.series else "",
        drawn=min(len(report.series), MOST_ROWS),
        rows=[_series_cells(each) for each in report.series[:MOST_SERIES]],
        lowest=_lowest(report),
        command=_history_command(fields),
        place=format_place,
        changes=sum(each.stats.changes for each in report.series),
        pools=pools,
        losses=round(sum(each.exposure.losses for each in pools if each.exposure is not None)),
        pool_hours=sum(each.exposure.hours for each in pools if each.exposure is not None),
        markets=[(m.value, MARKET_WORDS[m.value]) for m in _MARKETS],
    )


def _cheaper_advisory(report: PricesReport, accelerator: str) -> dict[str, OfferRow]:
    """Return by market the cheapest offer that cannot be ordered, where it costs less than those that can."""
    rows = {market: report.find_cheapest(accelerator, market) for market in (Market.SPOT, Market.ON_DEMAND)}
    return {
        market.value: row
        for market, row in rows.items()
        if row is not None and row != report.find_orderable(accelerator, market)
    }


def _lowest(report: HistoryReport) -> SeriesPicture | None:
    """Return the series whose last price of one accelerator is lowest; of a machine, where no number is known."""
    known = [(each.last_each, each) for each in report.series]
    priced = [(price.nanos, number, each) for number, (price, each) in enumerate(known) if price is not None]
    if priced:
        return min(priced)[2]
    return next((each for each in report.series if each.stats.last is not None), None)


def _history_command(fields: HistoryFields) -> str:
    asked = (
        ("accelerator", fields.accelerator),
        ("region", fields.region),
        ("market", fields.market),
        ("since", fields.since),
    )
    words = [word for name, value in asked if value for word in (f"--{name}", value)]
    return shlex.join(["stepfare", "prices", "history", *words])


def history_url(accelerator: str, market: str = "", region: str = "") -> str:
    """Return the URL of a history."""
    asked = {"accelerator": accelerator, "market": str(market), "region": region}
    return f"/prices/history?{urlencode({name: value for name, value in asked.items() if value})}"


def age_in_words(age: timedelta) -> str:
    """Return an age such as ``4 days`` or ``3.2 h``; a time to come is ``0.0 h``."""
    days = age // timedelta(days=1)
    return format_count(days, "day") if days >= 2 else hours(max(age, timedelta(0)))


def rate(price: UsdPerHour) -> str:
    """Return a price for an hour to the cent; below ten cents with four decimals."""
    usd = Usd(price.nanos)
    return money(usd) if price.nanos >= 100_000_000 else f"${price.nanos / 1e9:.4f}"


def _rows_age(report: PricesReport) -> str:
    if report.days is None:
        return "of unknown age"
    newest, oldest = (max((report.now.date() - day).days, 0) for day in report.days)
    if oldest == 0:
        return "of today"
    return f"{format_count(oldest, 'day')} old" if newest == oldest else f"{newest} to {oldest:,} days old"


def _offer_cells(row: OfferRow) -> dict[str, object]:
    offer = row.offer
    return {
        "accelerator": row.machine.accelerator,
        "market": MARKET_WORDS[offer.market.value],
        "letter": MARKET_LETTERS[offer.market.value],
        "place": offer.place,
        "machine": f"{offer.instance_type}, {row.machine.accelerator_count} {row.machine.accelerator}",
        "each": row.usd_per_accelerator_hour,
        "hour": rate(offer.usd_per_hour),
        "age": _age_of(row.age_days, not_before=offer.not_before),
        "source": offer.source,
        "doubt": offer.weak,
        "advisory": not offer.provisionable,
    }


def _age_of(days: int | None, *, not_before: bool = False) -> str:
    if days is None:
        return "undated"
    return f"{'at most ' if not_before else ''}{format_count(max(days, 0), 'day')}"


def _days_ago(moment: date | None, today: date) -> str:
    return "none dated" if moment is None else f"{format_count(max((today - moment).days, 0), 'day')} old"


def _cloud_cells(health: CloudHealth, today: date) -> dict[str, object]:
    record = health.record
    failures = () if record is None else record.failures
    return {
        "cloud": health.cloud,
        "offers": f"{health.offers:,}",
        "newest": _days_ago(health.newest, today),
        "oldest": _days_ago(health.oldest, today),
        "doubt": f"{health.weak:,} doubtful" if health.weak else "none doubtful",
        "stale": f"{health.stale:,} not refreshed" if health.stale else "",
        "status": "never refreshed here" if record is None else _STATUS.get(record.status, record.status),
        "failed": health.failed,
        "at": "never" if record is None else day_clock(record.at),
        "parts": ""
        if record is None or not record.scopes_total
        else f"{record.scopes_done} of {record.scopes_total} parts",
        "failures": failures,
        "more": 0 if record is None else record.failed - len(failures),
        "dropped": 0 if record is None else record.dropped,
        "held": 0 if record is None else record.held,
    }


def _degrees(latitude: float, longitude: float) -> str:
    north, east = "N" if latitude >= 0 else "S", "E" if longitude >= 0 else "W"
    return f"{abs(latitude):.1f}° {north}, {abs(longitude):.1f}° {east}"


def _region_cells(region: RegionPrices, accelerator: str) -> dict[str, object]:
    def cell(market: Market) -> tuple[UsdPerHour | None, str]:
        row = region.rows.get(market)
        return (None, "no price known") if row is None else (row.usd_per_accelerator_hour, row.offer.instance_type)

    position = region.position
    return {
        "id": str(region.id),
        "city": region.city,
        "where": "not on the map" if position is None else _degrees(*position),
        "cells": [(MARKET_WORDS[m.value], *cell(m)) for m in (Market.SPOT, Market.ON_DEMAND)],
        "reserved": cell(Market.RESERVED),
        "age": _age_of(region.cheapest.age_days, not_before=region.cheapest.offer.not_before),
        "source": region.cheapest.offer.source,
        "weak": bool(region.cheapest.offer.weak),
        "url": history_url(accelerator, region=str(region.id)),
    }


def _risk_cells(pool_risk: PoolRisk) -> dict[str, object]:
    offer = pool_risk.offer
    return {
        "place": offer.place,
        "machine": offer.instance_type,
        "level": format_level(pool_risk),
        "interval": format_interval(pool_risk),
        "chances": [percent(pool_risk.hazard.survival(hours)) for hours in TOLD_CHANCES],
        "own": format_own(pool_risk),
        "basis": ", ".join(pool_risk.basis),
        "evidence": [(row.level, row.text) for row in pool_risk.risk.evidence],
        "losses": pool_risk.told_losses,
        "doubt": pool_risk.risk.weak,
    }


def _series_cells(series: SeriesPicture) -> dict[str, object]:
    stats, exposure = series.stats, series.exposure

    def price(value: UsdPerHour | None) -> str:
        return "not stated" if value is None else rate(value)

    dry = (
        "not observed"
        if exposure is None or not exposure.hours
        else f"{exposure.losses:,.0f} in {exposure.hours:,.0f} h"
    )
    return {
        "place": format_place(stats),
        "machine": stats.instance_type,
        "letter": MARKET_LETTERS[stats.market.value],
        "market": MARKET_WORDS[stats.market.value],
        "source": stats.source or "no price, stock alone",
        "last": price(stats.last),
        "at": "never" if stats.last_at is None else day_clock(stats.last_at),
        "least": price(stats.lowest),
        "most": price(stats.highest),
        "mean": price(stats.mean),
        "changes": f"{stats.changes:,}",
        "found": "nobody looked" if stats.available is None else percent(stats.available),
        "looks": f"{stats.observations:,} looks" if stats.observations else "",
        "dry": dry if stats.market is Market.SPOT else "no spot pool",
    }


_NORTH, _SOUTH = 72.0, -48.0
_WEST, _EAST = -135.0, 180.0
_GRID = 30
_MARK = 4.5
_LINE = 14.0
_SHAPES = {Market.SPOT: "circle", Market.ON_DEMAND: "square", Market.RESERVED: "diamond"}
_CONTINENTS = (
    ("North America", 54.0, -105.0), ("South America", -14.0, -60.0), ("Europe", 63.5, 40.0), ("Africa", 6.0, 20.0),
    ("Asia", 48.0, 95.0), ("Australia", -25.0, 134.0),
)  # fmt: skip

# The widths of the drawing; the narrow one has fewer labels and smaller marks.
MAPS = (1078, 692, 340)
_NARROW = MAPS[-1]


def draw_map(regions: Sequence[RegionPrices], accelerator: str, width: int) -> str:
    """Return the map as an SVG element; regions in one place share a mark, the cheapest is named first."""
    height = width * (_NORTH - _SOUTH) / (_EAST - _WEST)
    parts = [
        rect(0, 0, width, height, "gap", stroke="none"),
        _draw_coast(width, height),
        *_draw_grid(width, height),
    ]
    places: dict[tuple[float, float], list[RegionPrices]] = {}
    for region in regions:
        if region.position is not None:
            places.setdefault(region.position, []).append(region)
    marks = {position: _project(position, width, height) for position in places}
    taken = [LabelBox(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in marks.values()]
    labels = []
    for position, found in places.items():
        x, y = marks[position]
        parts.append(_draw_mark(found, x, y, width))
        words = _label(found, width)
        label = _place_label(words, x, y, width, height, taken)
        if label is not None:
            labels.append(text(*label, words, "halo"))
    name = (
        f"Map of regions that sell {accelerator}: circles where spot is cheapest, squares where on-demand is, diamonds "
        "for reserved. The table below has every region with its prices."
    )
    return drawing.picture(name, width, height, [*parts, *labels])


def _project(position: tuple[float, float], width: int, height: float) -> tuple[float, float]:
    latitude, longitude = position
    x = (longitude - _WEST) / (_EAST - _WEST) * width
    y = (_NORTH - latitude) / (_NORTH - _SOUTH) * height
    return min(max(x, 0.0), float(width)), min(max(y, 0.0), height)


def _draw_coast(width: int, height: float) -> str:
    box = f"{10 * _WEST:.0f} {-10 * _NORTH:.0f} {10 * (_EAST - _WEST):.0f} {10 * (_NORTH - _SOUTH):.0f}"
    coast = element("use", href="#coast")
    return element("svg", coast, width=width, height=height, viewBox=box, cls="cut", aria_hidden="true")


def _draw_grid(width: int, height: float) -> list[str]:
    parts = []
    for longitude in range(-120, int(_EAST) + 1, _GRID):
        x, _ = _project((0.0, longitude), width, height)
        parts.append(line(x, 0, x, height, "g"))
    for latitude in range(-30, int(_NORTH) + 1, _GRID):
        _, y = _project((latitude, 0.0), width, height)
        parts.append(line(0, y, width, y, "ax" if latitude == 0 else "g"))
    if width != _NARROW:
        parts += [text(*_project((lat, lon), width, height), words, "s m") for words, lat, lon in _CONTINENTS]
    return parts


def _draw_mark(regions: Sequence[RegionPrices], x: float, y: float, width: int) -> str:
    cheapest = min((region.cheapest for region in regions), key=lambda row: row.usd_per_accelerator_hour)
    market = cheapest.offer.market
    size = 3.5 if width == _NARROW else _MARK
    words = drawing.title("; ".join(_tooltip(region) for region in regions))
    data = {"data_regions": " ".join(str(region.id) for region in regions), "data_market": market.value}
    return drawing.mark(_SHAPES[market], x, y, size, f"full {market}", words, **data)


def _label(regions: Sequence[RegionPrices], width: int) -> str:
    best = min(regions, key=lambda region: region.cheapest.usd_per_accelerator_hour)
    price = money(Usd(best.cheapest.usd_per_accelerator_hour.nanos))
    letter = MARKET_LETTERS[best.cheapest.offer.market]
    return f"{letter} {price}" if width == _NARROW else f"{letter} {best.city} {price}"


def _tooltip(region: RegionPrices) -> str:
    row = region.cheapest
    price = money(Usd(row.usd_per_accelerator_hour.nanos))
    return f"{region.id}, {region.city}: {MARKET_WORDS[row.offer.market]} {price}"


def _place_label(
    words: str, x: float, y: float, width: float, height: float, taken: list[LabelBox]
) -> tuple[float, float] | None:
    """Return where a label begins, right, left, above or below its mark; None where it would meet another."""
    need = text_width(words)
    gap = _MARK + 3
    starts = ((x + gap, y + 4), (x - gap - need, y + 4), (x - need / 2, y - gap - 1), (x - need / 2, y + gap + 10))
    for left_x, base in starts:
        box = LabelBox(left_x - 2, base - _LINE + 3, left_x + need + 2, base + 4)
        inside = box.left_x >= 0 and box.right_x <= width and box.top_y >= 0 and box.bottom_y <= height
        if inside and not any(box.meets(other) for other in taken):
            taken.append(box)
            return left_x, base
    return None
