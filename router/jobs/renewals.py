"""Lives of gangs on spot, and renewal tables: how much of the work is done after n interruptions. Pure.

A life X of a gang ends by the hazard of its pool. Its first a hours (start-up, and what is lost since the last save)
leave nothing; the rest K = max(X - a, 0) is kept. After n lives P_n = K_1 + ... + K_n is kept. The tables hold
P(P_n < w) and E[max(w - P_n, 0)] / w for levels of the hazard, work w, a and n, in units of the hazard's own scale, so
that one table serves every job. They come from convolution powers of K on a lattice that keeps its mean (Gerber 1982),
by a Fourier transform damped against wrapping.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pricing.hazard import AGE_SCALE_HOURS, LEVELS, HazardShape

Floats = NDArray[np.float64]
#: Numbers of interruptions in the tables; between them figures are interpolated.
COUNTS: Final = np.array(
    [*range(1, 13), 14, 16, 18, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256], dtype=np.int64
)
_LEAST_RATE: Final = 1e-9
_CELLS: Final = 64
_DAMPING: Final = 1e-7  # what wraps around counts by this
_WORK: Final = np.geomspace(0.03, 6000.0, 48)  # work over the scale of kept life, where the hazard falls with age
_RATES: Final = np.geomspace(1e-3, 3e3, 120)  # work times the rate, where the hazard is constant
_WASTE: Final = np.geomspace(0.03, 10.0, 12)  # a in units of the scale
_MASS: Final = 1 / (1 + np.exp(-np.linspace(-7.0, 7.0, 57)))  # probability that a life keeps anything


@dataclass(frozen=True, eq=False, slots=True)
class KeptWork:
    """By [..., level, count]: the probability that the work is not done after so many lives, and the share left.

    The first axes are those of the work.
    """

    not_done: Floats
    remaining_share: Floats


def kept_work(
    shape: HazardShape, levels: Floats, work: Floats | float, waste: Floats | float, last: int = len(COUNTS)
) -> KeptWork:
    """Return what is done of ``work`` hours after each of the first counts of lives.

    Each life wastes its first ``waste`` hours.

    Where the hazard falls with age ``levels`` are every second one of :data:`~pricing.hazard.LEVELS`.
    """
    hours, wastes = np.broadcast_arrays(work, waste)
    pairs = list(zip(hours.ravel().tolist(), wastes.ravel().tolist(), strict=True))
    if shape is HazardShape.FALLING:
        table = _falling_table()
        works = [_place(_WORK, own / (AGE_SCALE_HOURS + lost)) for own, lost in pairs]
        firsts = [_place(_WASTE, lost / AGE_SCALE_HOURS) for _, lost in pairs]
        cells = np.array([table[:, :last, x : x + 2, y : y + 2] for (x, _), (y, _) in zip(works, firsts, strict=True)])
        dx, dy = (np.array([share for _, share in places])[:, None, None, None] for places in (works, firsts))
        rows = _between(cells, dx, dy[..., None])
    else:
        rows = np.array([_constant_rows(levels, own, lost, last) for own, lost in pairs])
    by_count = np.ascontiguousarray(np.moveaxis(rows, (1, 3), (0, 2))).reshape(2, *hours.shape, len(levels), last)
    return KeptWork(by_count[0], by_count[1])


def _constant_rows(rates: Floats, work: float, waste: float, last: int) -> Floats:
    """Return the figures by [figure, count, rate] where the hazard is constant."""
    table = _constant_table()
    works = [_place(_RATES, work * rate) for rate in rates.tolist()]
    masses = [_place_by_value(_MASS, math.exp(-rate * waste)) for rate in rates.tolist()]
    corners = [table[:, :last, x : x + 2, y : y + 2] for (x, _), (y, _) in zip(works, masses, strict=True)]
    return _between(np.stack(corners, axis=-1), np.array([dx for _, dx in works]), np.array([dy for _, dy in masses]))


def _between(cells: Floats, x: Floats, y: Floats) -> Floats:
    """Return the figures at shares of the way along the last two axes but one of cells."""
    along = cells[..., 0, :] * (1 - y) + cells[..., 1, :] * y
    return np.asarray(along[..., 0, :] * (1 - x) + along[..., 1, :] * x)


def _place(grid: Floats, value: float) -> tuple[int, float]:
    """Return the cell of a geometric grid that holds the value, and the share of the way through it by the log."""
    step = math.log(grid[1] / grid[0])
    at = min(max(math.log(max(value, 1e-300) / grid[0]) / step, 0.0), len(grid) - 1.0)
    cell = min(int(at), len(grid) - 2)
    return cell, at - cell


def _place_by_value(grid: Floats, value: float) -> tuple[int, float]:
    cell = min(max(int(np.searchsorted(grid, value)) - 1, 0), len(grid) - 2)
    return cell, float(min(max((value - grid[cell]) / (grid[cell + 1] - grid[cell]), 0.0), 1.0))


@lru_cache(maxsize=1)
def _falling_table() -> Floats:
    """Return by [figure, count, work, waste, level] the figures of Lomax lives: P(X > t) = (1 + t/c)^-level."""
    level = np.array(LEVELS[::2])[None, None, :]
    work, waste = _WORK[:, None, None], _WASTE[None, :, None]
    mass = (1 + waste) ** -level * np.ones_like(work)
    # Beyond a the life is again Lomax, of scale c + a: the integral of its survival, in units of that scale.
    edges = np.arange(_CELLS + 2) / _CELLS * work[..., None]
    power = 1 - level[..., None]
    near = np.abs(power) < 1e-9
    integral = np.where(near, np.log1p(edges), np.expm1(power * np.log1p(edges)) / np.where(near, 1.0, power))
    return _convolution_figures(mass, integral / work[..., None])


@lru_cache(maxsize=1)
def _constant_table() -> Floats:
    """Return by [figure, count, work x rate, mass] the figures of exponential lives."""
    rate, mass = _RATES[:, None], _MASS[None, :] * np.ones((len(_RATES), 1))
    edges = np.arange(_CELLS + 2) / _CELLS * rate[..., None]
    integral = -np.expm1(-edges) / rate[..., None] * np.ones_like(mass)[..., None]
    return _convolution_figures(mass, integral)


def _convolution_figures(mass: Floats, integral: Floats) -> Floats:
    """Return by [figure, count, ...] the figures of the powers of K, whose work is 1.

    ``mass`` is P(K > 0), ``integral`` by [..., edge] that of the survival of K given K > 0, from 0 to each cell's edge.
    """
    survival = integral * mass[..., None]
    weights = np.empty((*mass.shape, _CELLS + 1))
    weights[..., 0] = 1 - survival[..., 1] * _CELLS
    weights[..., 1:] = (2 * survival[..., 1:-1] - survival[..., :-2] - survival[..., 2:]) * _CELLS
    damping = _DAMPING ** (np.arange(2 * _CELLS) / (2 * _CELLS))
    # A figure of the distribution is a weighted sum of its spectrum.
    cells = np.arange(2 * _CELLS)
    below = np.where(cells < _CELLS, 1.0, 0.0)
    below[_CELLS] = 0.5
    functionals = np.stack([_dual(f / damping) for f in (below, np.maximum(1 - cells / _CELLS, 0.0))]).T
    figures = np.empty((2, len(COUNTS), *mass.shape), dtype=np.float64)
    # One row of the table at a time: its powers stay in the processor's cache.
    for row, weights_of_row in enumerate(weights):
        damped = np.fft.rfft(weights_of_row * damping[: _CELLS + 1], n=2 * _CELLS)
        for i, power in enumerate(_powers(damped)):
            figures[:, i, row] = np.moveaxis((power @ functionals).real, -1, 0)
    return np.clip(figures, 0.0, 1.0, out=figures)


def _powers(spectrum: NDArray[np.complex128]) -> Iterator[NDArray[np.complex128]]:
    """Yield the powers of a spectrum to each of :data:`COUNTS`, whose steps are powers of two, in one array."""
    power, step_power, exponent = np.ones_like(spectrum), spectrum, 1
    for step in np.diff(COUNTS, prepend=0).tolist():
        while exponent < step:
            step_power, exponent = step_power * step_power, 2 * exponent
        power *= step_power
        yield power


def _dual(functional: Floats) -> NDArray[np.complex128]:
    """Return the weights with which a real spectrum gives the sum of ``functional`` times its sequence."""
    spectrum = np.fft.rfft(functional).conj() / len(functional)
    spectrum[1:-1] *= 2
    return np.asarray(spectrum, dtype=np.complex128)


@dataclass(frozen=True, eq=False, slots=True)
class Lives:
    """Lives X after their first hours, by level: how likely they reach them, and the scale of the hazard from there.

    ``square`` is that of the scale.
    """

    shape: HazardShape
    levels: Floats
    alive: Floats
    scale: Floats
    square: Floats

    @classmethod
    def of_windows(cls, lives: Sequence[Lives], run_of: NDArray[np.intp]) -> Lives:
        """Return lives by [window, level], each by its number among lives of the same levels."""
        first = lives[0]
        alive, scale, square = (
            np.array([getattr(each, name) for each in lives])[run_of] for name in ("alive", "scale", "square")
        )
        return cls(first.shape, first.levels, alive, scale[:, None], square[:, None])

    def kept(self, hours: Floats) -> tuple[Floats, Floats]:
        """Return the mean of K = min(max(X - begin, 0), hours), and of its square; levels are the last axis."""
        if self.shape is HazardShape.CONSTANT:
            rate = np.maximum(self.levels, _LEAST_RATE)
            x = rate * hours
            return -self.alive * np.expm1(-x) / rate, 2 * self.alive * (1 - np.exp(-x) * (1 + x)) / rate**2
        grown = np.log1p(hours / self.scale)

        def grown_to(power: Floats) -> Floats:
            near = np.abs(power) < 1e-6
            if not near.any():
                return np.asarray(np.expm1(power * grown) / power)
            return np.where(near, grown, np.expm1(power * grown) / np.where(near, 1.0, power))

        first = grown_to(1 - self.levels)
        second = grown_to(2 - self.levels) - first
        return self.alive * self.scale * first, 2 * self.alive * self.square * second


@lru_cache(maxsize=4096)
def lives_after(shape: HazardShape, levels: tuple[float, ...], begin: float) -> Lives:
    """Return the lives of these levels after ``begin`` hours."""
    grid, scale = np.array(levels), AGE_SCALE_HOURS + begin
    if shape is HazardShape.CONSTANT:
        alive = np.exp(-np.maximum(grid, _LEAST_RATE) * begin)
    else:
        alive = (1 + begin / AGE_SCALE_HOURS) ** -grid
    return Lives(shape, grid, alive, np.array(scale), np.array(scale**2))


@lru_cache(maxsize=4096)
def mean_life_within(shape: HazardShape, levels: tuple[float, ...], hours: float) -> Floats:
    """Return by level the mean of min(X, hours) of a life X."""
    return lives_after(shape, levels, 0.0).kept(np.array(hours))[0]
