"""Bound blocks of rows at given prices, and find their columns; a block is not priced twice at the same prices.

From round to round most blocks meet the prices they had: those of limits that they do not take, or that hardly move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from router.planning.columns.column import Column, mixed_column, path_column
from router.planning.columns.paths import Path, PathBounds, bound_paths, trace_paths
from router.planning.columns.runs import Surcharges
from router.planning.columns.table import Floats, Ints, Table
from router.planning.columns.whole_slots import bound_whole_slots


@dataclass
class _Known:
    """Bounds and columns found before, by block and the number of its prices; ``numbers`` tells prices apart."""

    numbers: dict[bytes, int] = field(default_factory=dict)
    paths: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    path_columns: dict[tuple[int, int, float], tuple[Column, ...]] = field(default_factory=dict)
    whole_slots: dict[tuple[int, int, int], tuple[float, Column | None]] = field(default_factory=dict)

    def number(self, prices: bytes) -> int:
        return self.numbers.setdefault(prices, len(self.numbers))


@dataclass
class BlockPricer:
    """Prices blocks of one table; its columns have the costs of ``costed``, a table of the same rows."""

    table: Table
    costed: Table
    _known: _Known = field(default_factory=_Known)

    def over(self, table: Table) -> BlockPricer:
        """Return a pricer of a table that differs in its limits' capacities alone; what is known is shared."""
        return BlockPricer(table, self.costed, self._known)

    def bound_paths(self, charges: Surcharges, blocks: Ints, upper: Floats) -> PathBounds:
        """Return the bounds of :func:`~router.planning.columns.paths.bound_paths`."""
        known = self._known.paths
        keys = list(zip(blocks.tolist(), self._prices_of(charges, blocks), strict=True))
        new = np.array([i for i, key in enumerate(keys) if key not in known], dtype=np.int64)
        found = bound_paths(self.table, charges, blocks[new], upper=upper[new])
        for i, value, nu in zip(new.tolist(), found.value.tolist(), found.nu.tolist(), strict=True):
            known[keys[i]] = value, nu
        both = np.array([known[key] for key in keys], dtype=np.float64).reshape(-1, 2)
        return PathBounds(blocks, both[:, 0], both[:, 1])

    def columns_of_paths(self, charges: Surcharges, bounds: PathBounds) -> list[Column]:
        """Return the columns of the paths that reach these bounds: each fitted to its job, and their mixtures."""
        known = self._known.path_columns
        numbers = self._prices_of(charges, bounds.blocks)
        keys = list(zip(bounds.blocks.tolist(), numbers, bounds.nu.tolist(), strict=True))
        new = np.array([i for i, key in enumerate(keys) if key not in known], dtype=np.int64)
        paths = trace_paths(self.table, charges, PathBounds(bounds.blocks[new], bounds.value[new], bounds.nu[new]))
        for i, low, high in zip(new.tolist(), *paths, strict=True):
            known[keys[i]] = self._affordable(_columns_between(self.costed, low, high, charges))
        return [column for key in keys for column in known[key]]

    def bound_whole_slots(self, charges: Surcharges, blocks: Ints, units: int) -> tuple[Floats, list[Column]]:
        """Return the bounds of :func:`~router.planning.columns.whole_slots.bound_whole_slots`, and their columns."""
        known = self._known.whole_slots
        keys = [
            (block, units, prices)
            for block, prices in zip(blocks.tolist(), self._prices_of(charges, blocks), strict=True)
        ]
        new = np.array([i for i, key in enumerate(keys) if key not in known], dtype=np.int64)
        found = bound_whole_slots(self.table, charges, blocks[new], units)
        for i, value, path in zip(new.tolist(), found.value.tolist(), found.paths, strict=True):
            column = path_column(self.costed, path, charges) if path.slots else None
            known[keys[i]] = value, next(iter(self._affordable([column])), None)
        values = np.array([known[key][0] for key in keys])
        return values, [column for key in keys if (column := known[key][1]) is not None]

    def _affordable(self, columns: Sequence[Column | None]) -> tuple[Column, ...]:
        allowance = self.table.allowance
        return tuple(c for c in columns if c is not None and c.counted <= allowance[c.job])

    def _prices_of(self, charges: Surcharges, blocks: Ints) -> list[int]:
        """Return by block a number for the prices of all that its rows take."""
        table, known = self.table, self._known
        slot = np.array([known.number(row.tobytes()) for row in charges.slot], dtype=np.int64)
        cover = np.array([known.number(row.tobytes()) for row in charges.cover], dtype=np.int64)
        sizes = table.block_sizes(blocks)
        rows = table.members(blocks)
        each = np.stack([slot[table.kind[rows]], cover[table.pool[rows]]], axis=1)
        team = charges.team[table.block_job[blocks]].tolist()
        ends = np.cumsum(sizes).tolist()
        return [
            known.number(each[end - size : end].tobytes() + np.float64(usd).tobytes())
            for size, end, usd in zip(sizes.tolist(), ends, team, strict=True)
        ]


def _columns_between(table: Table, low: Path, high: Path, charges: Surcharges) -> list[Column | None]:
    """Return the columns made of two paths: each fitted to the job, and their mixture."""
    columns: list[Column | None] = []
    if high.slots:
        columns.append(path_column(table, high, charges))
    if low.slots and low != high:
        columns.append(path_column(table, low, charges))
    if low != high:
        columns.append(mixed_column(table, low, high))
    return columns
