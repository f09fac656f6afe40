"""Fit the time of a step to measured points: compute affine in the batch, synchronisation by placement. Pure.

    T = (C^g + S^g)^(1/g)      C = c (f + (1 - f) m / m0)
    S = 0 on one accelerator, s (k/2)^e on k of one machine, s x q^d (n/2)^v on n machines with q each

Pollux and AdaptDL have this form; q^d is the share of the network card, their terms in the number of replicas are
powers here. m is the batch of one accelerator, m0 the geometric mean of the points. The parameters are fitted, in
logarithms, by least squares with a normal prior on each: one that no point shows stays at its prior, with the prior's
error. The covariance at the optimum gives the error of a prediction, and how much another point would narrow it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_Residuals = Callable[[Floats], Floats]
_StepTable = tuple[Floats, Floats, Floats, npt.NDArray[np.int64]]  # machines, accelerators of each, batch, kind

MISFIT: Final = 0.08  # standard deviation of measured step times about the form, where its parameters are well known
_ANY: Final = 3.0  # standard deviation of a logarithm of which nothing is known beforehand
_STEP: Final = 1e-5
_NO_SYNC: Final = 1e-12  # seconds
_MOST_ROUNDS: Final = 60


class Prior(NamedTuple):
    """A parameter before anything is measured: mean and standard deviation."""

    mean: float
    error: float


# Parameters in their order: log c, logit f, log s/c, e, log x, v, d, log(g - 1). The first is found from the points.
# Large batches are computed in parts, so that little of a step is independent of the batch.
_COMPUTE = (Prior(0.0, _ANY), Prior(math.log(0.05 / 0.95), 1.5))
_OVERLAP = Prior(0.0, 0.7)
# A bus is shared by its accelerators; over switched links the ring's traffic for each hardly grows with their number.
_SHARED_BUS = (Prior(math.log(0.2), 1.5), Prior(0.7, 0.3))
_SWITCHED = (Prior(math.log(0.03), 1.2), Prior(0.3, 0.3))
# Over Ethernet the accelerators of a machine share its card; RDMA machines have cards for each.
_ETHERNET = (Prior(math.log(4.0), 1.2), Prior(0.25, 0.15), Prior(0.35, 0.25))
_RDMA = (Prior(math.log(2.0), 1.0), Prior(0.2, 0.15), Prior(0.1, 0.15))
_SHAPE = 8
_SYNC_RATIO = Prior(0.0, 0.7)  # synchronisation on another accelerator over that on this one
RATIO_ERROR: Final = 0.3  # compute on another accelerator over the ratio that data sheets give


@dataclass(frozen=True, slots=True)
class PointLinks:
    """Whether the accelerators of a machine are joined by a switch or mesh, and machines by an RDMA fabric."""

    switched: bool
    rdma: bool

    @property
    def priors(self) -> tuple[Prior, ...]:
        """Return the priors of the shape of the form, in the order of its parameters."""
        inside = _SWITCHED if self.switched else _SHARED_BUS
        return (*_COMPUTE, *inside, *(_RDMA if self.rdma else _ETHERNET), _OVERLAP)


@dataclass(frozen=True, slots=True)
class StepPlace:
    """A step as it runs: ``batch`` on each accelerator, ``per_machine`` accelerators (a mean) on ``machines``."""

    machines: int
    per_machine: float
    batch: float

    @property
    def accelerators(self) -> float:
        return self.machines * self.per_machine


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """Seconds of a step at a place, with the standard deviation of their logarithm.

    ``kind`` 0 is the accelerator that is asked about; another number is the position, from 1, in the ratios of the fit.
    """

    place: StepPlace
    seconds: float
    error: float
    kind: int = 0


@dataclass(frozen=True, eq=False)
class StepForm:
    """The fitted form."""

    parameters: Floats
    covariance: Floats
    reference_batch: float

    def predict(self, place: StepPlace) -> tuple[float, float]:
        """Return the seconds of a step on the accelerator asked about, and their relative error."""
        seconds = float(np.exp(_log_seconds(self.parameters, _table([place], [0], self.reference_batch))[0]))
        slope = self._slope(place)
        return seconds, math.sqrt(float(slope @ self.covariance @ slope) + MISFIT**2)

    def with_point(self, place: StepPlace, error: float) -> StepForm:
        """Return the form as it would be if a point there were measured as predicted: only its error is smaller."""
        seen = self.covariance @ self._slope(place)
        spread = float(self._slope(place) @ seen) + error**2 + MISFIT**2
        covariance = self.covariance - np.outer(seen, seen) / spread
        return StepForm(self.parameters, covariance, self.reference_batch)

    def _slope(self, place: StepPlace) -> Floats:
        slope: Floats = _slopes(self.parameters, _table([place], [0], self.reference_batch))[0]
        return slope


@lru_cache(maxsize=4096)
def fit_form(points: tuple[StepMeasurement, ...], links: PointLinks, log_ratios: tuple[float, ...] = ()) -> StepForm:
    """Return the form fitted to at least one point; the same points give the same form.

    ``log_ratios`` has, for each other accelerator among the points, the logarithm of its compute time over that of the
    one asked about, as data sheets say; points of both correct it.
    """
    reference = math.exp(sum(math.log(p.place.batch) for p in points) / len(points))
    table = _table([p.place for p in points], [p.kind for p in points], reference)
    priors = [*links.priors, *(Prior(r, RATIO_ERROR) for r in log_ratios), *(_SYNC_RATIO for _ in log_ratios)]
    seconds = np.log([p.seconds for p in points])
    spread = np.array([math.hypot(p.error, MISFIT) for p in points])
    mean = np.array([p.mean for p in priors])
    mean[0] = min(s - (log_ratios[p.kind - 1] if p.kind else 0.0) for s, p in zip(seconds, points, strict=True))
    width = np.array([p.error for p in priors])

    def residuals(at: Floats) -> Floats:
        return np.concatenate([(_log_seconds(at, table) - seconds) / spread, (at - mean) / width])

    def jacobian(at: Floats) -> Floats:
        return np.concatenate([_slopes(at, table) / spread[:, None], np.diag(1 / width)])

    best = _least_squares(residuals, jacobian, mean)
    slopes = jacobian(best)
    covariance: Floats = np.linalg.inv(slopes.T @ slopes).astype(np.float64)
    return StepForm(best, covariance, reference)


def _least_squares(residuals: _Residuals, jacobian: _Residuals, start: Floats) -> Floats:
    """Return a local minimum of the sum of squares, by Levenberg and Marquardt's steps from ``start``."""
    at, damping = start, 1e-2
    error = residuals(at)
    for _ in range(_MOST_ROUNDS):
        slopes = jacobian(at)
        normal = slopes.T @ slopes
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slopes.T @ error)
        tried = residuals(at + step)
        gain = float(error @ error - tried @ tried)
        if gain > 0:
            at, error, damping = at + step, tried, max(damping / 5, 1e-9)
            if gain < 1e-10 * (1 + float(error @ error)):
                break
        elif (damping := damping * 4) > 1e8:
            break
    return at


def _table(places: list[StepPlace], kinds: list[int], reference: float) -> _StepTable:
    columns = np.array([(p.machines, p.per_machine, p.batch / reference) for p in places], float)
    machines, per_machine, batch = np.ascontiguousarray(columns.T)
    return machines, per_machine, batch, np.array(kinds, int)


def _log_seconds(parameters: Floats, table: _StepTable) -> Floats:
    """Return the logarithm of the seconds of a step at each place; parameters may have leading axes."""
    machines, per_machine, batch, kind = table
    compute, fixed, inside, growth, outside, by_machines, sharing, norm = (
        parameters[..., i, None] for i in range(_SHAPE)
    )
    others = (parameters.shape[-1] - _SHAPE) // 2
    zero = np.zeros_like(compute)
    ratio = np.concatenate([zero, parameters[..., _SHAPE : _SHAPE + others]], axis=-1)[..., kind]
    sync_ratio = np.concatenate([zero, parameters[..., _SHAPE + others :]], axis=-1)[..., kind]
    share = 1 / (1 + np.exp(-fixed))
    log_compute = compute + ratio + np.log(share + (1 - share) * batch)
    pairs = np.log(np.maximum(per_machine, 2.0) / 2)
    across = outside + sharing * np.log(per_machine) + by_machines * np.log(np.maximum(machines, 2.0) / 2)
    log_sync = compute + inside + sync_ratio + np.where(machines > 1, across, growth * pairs)
    log_sync = np.where(machines * per_machine > 1, log_sync, math.log(_NO_SYNC))
    power = 1 + np.exp(norm)
    log_seconds: Floats = np.logaddexp(power * log_compute, power * log_sync) / power
    return log_seconds


def _slopes(parameters: Floats, table: _StepTable) -> Floats:
    """Return the derivative of each place's logarithm by each parameter, [place, parameter]."""
    nudges = np.eye(len(parameters)) * _STEP
    slopes: Floats = (_log_seconds(parameters + nudges, table) - _log_seconds(parameters - nudges, table)).T
    return slopes / (2 * _STEP)
