"""Estimate published runs by a plain baseline: one efficiency for each accelerator and size, without any physics.

The logarithm of the reached share of the peak is a ridge regression on accelerator, precision, kind and size of the
model. What the speed model earns is its distance from this.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.bench.published_runs import Run

_RIDGE = 1.0


def _columns(run: Run) -> dict[str, float]:
    kind = "experts" if run.experts else "dense"
    return {
        "all": 1.0,
        f"family:{run.rates.family}": 1.0,
        f"accelerator:{run.rates.accelerator}": 1.0,
        f"precision:{run.rates.family}:{run.precision}": 1.0,
        kind: 1.0,
        f"size:{kind}": float(np.log10(run.active / 1e10)),
    }


def _log_share(run: Run) -> float:
    """Return the logarithm of the model FLOP/s over the peak of the gang."""
    model = run.model
    flops = 6 * run.active + 6 * model.layers * model.hidden * model.sequence_length
    return float(np.log(flops * run.tokens_per_s / run.gang_peak))


def baseline_errors(runs: Sequence[Run], folds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the logarithm of estimated over published tokens/s of each run; the other folds fit it."""
    rows = [_columns(run) for run in runs]
    names = sorted({name for row in rows for name in row})
    table = np.array([[row.get(name, 0.0) for name in names] for row in rows])
    shares = np.array([_log_share(run) for run in runs])
    penalty = _RIDGE * np.diag([0.0 if name == "all" else 1.0 for name in names])
    errors = np.zeros(len(runs))
    for f in range(int(folds.max()) + 1):
        seen = folds != f
        weights = np.linalg.solve(table[seen].T @ table[seen] + penalty, table[seen].T @ shares[seen])
        errors[~seen] = table[~seen] @ weights - shares[~seen]
    return errors
