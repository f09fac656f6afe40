"""Draw the import graph of the packages and the rooms of ``router`` as ``docs/rooms.svg``.

    python docs/room_graph.py [--check]

Rows are the layers of the import contracts in pyproject.toml. An arrow means "imports"; arrows that follow from others
are left out. ``--check`` writes nothing and exits with 1 if the picture is out of date.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "rooms.svg"
PACKAGES: Final = ("router", "providers", "terraform", "pricing")
#: What a room does, in the few words that fit its box.
PURPOSE: Final = {
    "api": "library for Python",
    "cli": "commands, options",
    "console": "HTTP: pages, API",
    "app": "questions, composition",
    "render": "text, tables, pages",
    "config": "YAML files to values",
    "backtest": "policies on traces",
    "controller": "apply, watch, migrate",
    "showback": "bills, reports, FOCUS",
    "prices": "refresh, history",
    "quotes": "deadline to cost",
    "deploy": "deploy file as values",
    "faults": "what went wrong, how far",
    "coordinator": "talks to agents",
    "spot": "availability, policies",
    "planning": "placement program",
    "jobs": "job, gang, limits",
    "state": "database, journal",
    "ledger": "money entries",
    "agent": "runs on each machine",
    "checkpoints": "durable copies",
    "demo": "training to try out",
    "access": "identities, roles",
    "files": "DuckDB over Parquet",
    "providers": "cloud adapters",
    "terraform": "runs Terraform",
    "pricing": "money, places, offers",
}
#: Where a room stands in its row, in widths of a box: deciding to the left, running in the middle, books to the right.
COLUMN: Final = {
    "api": 1.5,
    "cli": 4.6,
    "console": 3.4,
    "app": 0.4,
    "render": 2.8,
    "config": 1.5,
    "backtest": 0,
    "controller": 2.1,
    "showback": 3.6,
    "prices": 1.05,
    "deploy": 1.3,
    "quotes": 0,
    "coordinator": 2.6,
    "spot": 0.3,
    "planning": 0.2,
    "jobs": 0,
    "state": 3.6,
    "faults": 2.5,
    "checkpoints": 1,
    "agent": 2.8,
    "ledger": 3.85,
    "files": 4.9,
    "demo": 5.9,
    "access": 0,
    "terraform": 0.75,
    "providers": 1.92,
    "pricing": 1.92,
}
BOX: Final = (150, 44)
GAP: Final = (18, 46)
MARGIN: Final = 16

Edges = Mapping[str, frozenset[str]]


def layers() -> tuple[tuple[str, ...], ...]:
    """Return the rows of the picture, from the top: rooms of ``router``, then the other packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    inside = next(each for each in contracts if each.get("containers") == ["router"] and each["type"] == "layers")
    rows = [tuple(room.strip(" ()") for room in row.split("|")) for row in inside["layers"]]
    return (*rows, ("terraform", "providers"), ("pricing",))


def imports() -> Edges:
    """Return which rooms each room imports, from the code as it is installed."""
    graph = grimp.build_graph(*PACKAGES)
    found: dict[str, set[str]] = {}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            importer, target = _room(module), _room(imported)
            if importer and target and importer != target:
                found.setdefault(importer, set()).add(target)
    return {room: frozenset(targets) for room, targets in found.items()}


def _room(module: str) -> str | None:
    package, *rest = module.split(".")
    if package != "router":
        return package
    return rest[0] if rest and rest[0] != "__main__" else None


def reduced(edges: Edges) -> Edges:
    """Return the edges without those that a longer path implies (transitive reduction of an acyclic graph)."""
    reach: dict[str, frozenset[str]] = {}

    def reachable(room: str) -> frozenset[str]:
        if room not in reach:
            targets = edges.get(room, frozenset())
            reach[room] = targets.union(*(reachable(target) for target in targets))
        return reach[room]

    return {
        room: frozenset(
            target for target in targets if not any(target in reachable(other) for other in targets if other != target)
        )
        for room, targets in edges.items()
    }


def drawing(rows: Iterable[tuple[str, ...]], edges: Edges) -> str:
    """Return the picture as SVG text; equal input gives equal bytes."""
    rows = tuple(rows)
    width = (max(COLUMN.values()) + 1) * (BOX[0] + GAP[0]) - GAP[0] + 2 * MARGIN
    height = len(rows) * (BOX[1] + GAP[1]) - GAP[1] + 2 * MARGIN
    at = {
        room: (MARGIN + COLUMN[room] * (BOX[0] + GAP[0]), MARGIN + level * (BOX[1] + GAP[1]))
        for level, row in enumerate(rows)
        for room in row
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img">',
        "<style>text { font-family: sans-serif }</style>",
        "<title>Which room imports which</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<path d="M0 0 8 4 0 8z" fill="#7a869a"/></marker></defs>',
        f'<rect width="{width:g}" height="{height}" fill="#ffffff"/>',
    ]
    for room in at:
        parts += [_arrow(at[room], at[target]) for target in sorted(edges.get(room, ())) if target in at]
    parts += [_box(room, x, y) for room, (x, y) in at.items()]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    x1, y1 = start[0] + BOX[0] / 2, start[1] + BOX[1]
    x2, y2 = end[0] + BOX[0] / 2, end[1] - 1
    bend = max(24.0, (y2 - y1) / 2)
    curve = f"M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"
    return f'<path d="{curve}" fill="none" stroke="#7a869a" stroke-width="1.2" marker-end="url(#head)"/>'


def _box(room: str, x: float, y: float) -> str:
    colour = "#eaf1fb" if room not in PACKAGES else "#f4efe2"
    return (
        f'<g><rect x="{x:g}" y="{y:g}" width="{BOX[0]}" height="{BOX[1]}" rx="6" fill="{colour}" stroke="#41597f"/>'
        f'<text x="{x + BOX[0] / 2:g}" y="{y + 18:g}" text-anchor="middle" font-size="14" font-weight="bold"'
        f' fill="#1b2a41">{escape(room)}</text>'
        f'<text x="{x + BOX[0] / 2:g}" y="{y + 34:g}" text-anchor="middle" font-size="11" fill="#41597f">'
        f"{escape(PURPOSE[room])}</text></g>"
    )


def main() -> int:
    """Write the picture, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if out of date")
    check: bool = parser.parse_args().check
    text = drawing(layers(), reduced(imports()))
    if check:
        if PICTURE.is_file() and PICTURE.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write("docs/rooms.svg is out of date: run python docs/room_graph.py\n")
        return 1
    PICTURE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
