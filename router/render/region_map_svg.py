"""Draw regions on an equirectangular grid as SVG: a mark per place by market, labels that never meet. Pure functions.

The coast is the page's own drawing with the id ``coast``, in tenths of a degree (``templates/coastline.svg``).
"""

from __future__ import annotations

from collections.abc import Sequence

from pricing.money import Usd
from pricing.places import Market
from router.render import drawing
from router.render.drawing import LabelBox, element, line, rect, text, text_width
from router.render.figures import MARKET_LETTERS, MARKET_WORDS, money
from router.render.prices_view import RegionPrices

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
    market = _market(regions)
    size = 3.5 if width == _NARROW else _MARK
    words = drawing.title("; ".join(_tooltip(region) for region in regions))
    data = {"data_regions": " ".join(str(region.id) for region in regions), "data_market": market.value}
    return drawing.mark(_SHAPES[market], x, y, size, f"full {market}", words, **data)


def _market(regions: Sequence[RegionPrices]) -> Market:
    return min((region.cheapest for region in regions), key=lambda row: row.usd_per_accelerator_hour).offer.market


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
