"""Fit the coefficients of the speed model on published runs and store them: ``make fit``.

Least squares of the logarithm of tokens/s with a soft L1 loss. Every coefficient has a prior, so that a family with
few rows stays near the others; runs that differ only in their software or date share one weight.

    python -m tests.bench.fit_speed [--check] [--every 1]
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from router.jobs.step_model import Coefficients, Steps, as_steps, parse_coefficients, read_coefficients, time_steps
from tests.bench.published_runs import FACTS, RUNS, Run, read_runs

STORED = Path(__file__).resolve().parents[2] / "router/jobs/speed_coefficients.json"
DATE = "2026-11-24"
_FOLDS = 10
_NOISE = 0.12  # scale of a residual below which the loss is quadratic
_FAMILIES = {"volta": 0.6, "ampere": 0.6, "hopper": 0.6, "blackwell": 0.6, "tpu": 0.6, "cdna": 0.6}
_UNFITTED = {"family:card": math.log(0.5), "family:other": math.log(0.45)}
# Positive coefficients: prior median, and prior standard deviation of the logarithm.
_POSITIVE = {
    "memory": (1.0, 0.5), "launch": (2e-5, 0.7), "tensor": (1.0, 0.4), "data": (1.0, 0.4), "overlap": (4.0, 0.5),
    "attention": (1.3, 0.4), "width": (500.0, 0.7), "tokens": (1000.0, 0.8), "tile": (1.1, 0.1),
    "experts": (1.0, 0.6), "gathers": (1.0, 0.5), "bubble": (1.0, 0.2), "pipeline": (0.7, 0.5), "latency": (2e-5, 0.7),
}  # fmt: skip
_LOGARITHMS = {
    "fp8": (math.log(0.8), 0.25), "fp8:hopper": (0.0, 0.15), "fp8:blackwell": (0.0, 0.15), "fp8:cdna": (0.0, 0.15),
    "fp4": (math.log(0.6), 0.3), "tf32": (math.log(1.2), 0.25), "fp32": (math.log(1.2), 0.25),
    "experts_efficiency": (math.log(0.7), 0.4),
}  # fmt: skip


def _priors(runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """Return mean and standard deviation of each fitted figure, on the scale on which it is fitted."""
    found = {name: (math.log(median), spread) for name, (median, spread) in _POSITIVE.items()}
    found |= _LOGARITHMS
    found |= {f"family:{name}": (math.log(share), 0.3) for name, share in _FAMILIES.items()}
    return found | {f"accelerator:{name}": (0.0, 0.12) for name in sorted({r.rates.accelerator for r in runs})}


def message_sizes(path: Path = FACTS / "nccl_busbw.csv") -> dict[str, float]:
    """Return the message at which half the bus bandwidth is reached, c x machines^p bytes, from measured curves."""
    curves: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if int(row["machines"]) > 1 and row["collective"] == "all_reduce":
                key = row["fabric"], int(row["machines"])
                curves.setdefault(key, []).append((float(row["bytes"] or 0), float(row["busbw_GBps"])))
    halves = []
    for (_, machines), points in sorted(curves.items()):
        top = max(rate for _, rate in points)
        sizes = [size * (top / rate - 1) for size, rate in points if size and 0.2 * top < rate < 0.9 * top]
        if sizes:
            halves.append((math.log(machines), math.log(float(np.median(sizes)))))
    logs = np.array(halves, dtype=np.float64)
    power, start = np.polyfit(logs[:, 0], logs[:, 1], 1)
    return {"half_message": round(math.exp(start), 0), "half_message_power": round(float(power), 3)}


class Fit:
    """The runs as arrays, and the fit of any part of them."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.priors = _priors(runs)
        self.names = list(self.priors)
        self.fixed = message_sizes() | _UNFITTED
        self._values = {f.name: np.array([r.values.get(f.name, 0.0) for r in runs]) for f in fields(Steps)}
        self._measured = np.log([r.tokens_per_s for r in runs])
        kinds = Counter(r.group for r in runs)
        self._weights = np.array([kinds[r.group] ** -0.5 for r in runs])
        self._shares = np.array([[self._loads(r, name) for name in self.names] for r in runs])
        self._base = np.array([[self._loads(r, name, plain=True) for name in self.names] for r in runs])

    def _loads(self, run: Run, name: str, plain: bool = False) -> float:
        """Return how often a figure counts in the logarithm of the run's efficiency; ``plain`` is that in 16 bit."""
        family = run.rates.family
        if name in (f"family:{family}", f"accelerator:{run.rates.accelerator}"):
            return 1.0
        eight = run.precision in ("fp8", "fp4") and name in ("fp8", f"fp8:{family}")
        experts = run.experts and name == "experts_efficiency"
        return float(not plain and (eight or experts or name == run.precision))

    def coefficients(self, theta: NDArray[np.float64]) -> dict[str, float]:
        """Return the figures by name, on the scale on which they are used."""
        named = zip(self.names, (float(x) for x in theta), strict=True)
        return {n: math.exp(x) if n in _POSITIVE else x for n, x in named} | self.fixed

    def errors(self, theta: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the logarithms of estimated over published tokens/s."""
        values = {name: column[rows] for name, column in self._values.items()}
        values["log_efficiency"] = self._shares[rows] @ theta
        values["log_attention"] = self._base[rows] @ theta
        seconds = time_steps(as_steps(values), self.coefficients(theta)).seconds
        tokens = values["sequences"] * values["sequence"]
        return np.asarray(np.log(tokens) - np.log(seconds) - self._measured[rows], dtype=np.float64)

    def fit(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the figures that fit these rows best, each held near its prior."""
        mean, spread = np.array(list(self.priors.values())).T

        def residuals(theta: NDArray[np.float64]) -> NDArray[np.float64]:
            off = self.errors(theta, rows) / _NOISE * self._weights[rows]
            soft = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off * off) - 1))
            return np.concatenate([soft, (theta - mean) / spread])

        return np.asarray(least_squares(residuals, mean, x_scale=spread, ftol=1e-6).x, dtype=np.float64)

    def cross_validate(self, keys: Sequence[str], folds: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the errors of rows that their fit never saw, and their folds; rows of one key stay together."""
        fold = assign_folds(keys, folds)
        errors = np.zeros(len(keys))
        for f in range(int(fold.max()) + 1):
            seen, unseen = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
            errors[unseen] = self.errors(self.fit(seen), unseen)
        return errors, fold


def assign_folds(keys: Sequence[str], folds: int) -> NDArray[np.int64]:
    """Return a fold for each key, equal keys in one, spread by a digest of the key."""
    ordered = sorted(set(keys), key=lambda key: hashlib.sha256(key.encode()).hexdigest())
    place = {key: i % folds for i, key in enumerate(ordered)}
    return np.array([place[key] for key in keys])


def spread_of(errors: NDArray[np.float64]) -> float:
    """Return the standard deviation, as a share of the estimate, whose middle 80 % hold 80 % of the speeds."""
    return round(float(np.quantile(np.abs(np.expm1(-errors)), 0.8)) / 1.2816, 3)


def fit_all(runs: Sequence[Run]) -> Coefficients:
    """Return the coefficients of all runs, their spreads from cross-validation, and where they come from."""
    fit = Fit(runs)
    theta = fit.fit(np.arange(len(runs)))
    errors, _ = fit.cross_validate([r.group for r in runs], _FOLDS)
    by_source, _ = fit.cross_validate([r.source for r in runs], len({r.source for r in runs}))
    experts = np.array([r.experts for r in runs])
    spread = {
        "dense": spread_of(errors[~experts]),
        "experts": spread_of(errors[experts]),
        "unseen": max(spread_of(by_source), spread_of(errors)),
    }
    provenance = {
        "command": "make fit",
        "fitted_on": DATE,
        "rows": len(runs),
        "rows_by_family": dict(sorted(Counter(r.rates.family for r in runs).items())),
        "table": "published_training_runs.csv",
        "table_sha256": hashlib.sha256(RUNS.read_bytes()).hexdigest(),
    }
    values = {name: float(f"{value:.5g}") for name, value in sorted(fit.coefficients(theta).items())}
    return Coefficients(values, spread, provenance)


def as_stored(found: Coefficients) -> dict[str, Any]:
    """Return the form in which coefficients are stored."""
    mappings: dict[str, Mapping[str, Any]] = {
        "provenance": found.provenance,
        "spread": found.spread,
        "coefficients": found.values,
    }
    return {name: dict(values) for name, values in mappings.items()}


def main() -> None:
    """Fit, and write the coefficients (or with ``--check`` compare them with those that are stored)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the stored ones differ")
    parser.add_argument("--every", type=int, default=1, help="fit every Nth run alone, and write nothing")
    chosen = parser.parse_args()
    if not RUNS.is_file():
        print(f"skipped: {RUNS.name} is not beside the repository")
        return
    stored = as_stored(fit_all(read_runs()[:: chosen.every]))
    if chosen.every > 1:
        parse_coefficients(stored)
        print(f"fitted on {stored['provenance']['rows']} runs, not stored; errors: {stored['spread']}")
        return
    if chosen.check:
        before = read_coefficients()
        same = as_stored(before)["provenance"] == stored["provenance"] and before == parse_coefficients(stored)
        print("the stored coefficients are those of a fit" if same else "the stored coefficients differ from a fit")
        raise SystemExit(0 if same else 1)
    STORED.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    print(f"fitted on {stored['provenance']['rows']} runs; errors of 1 standard deviation: {stored['spread']}")


if __name__ == "__main__":
    main()
