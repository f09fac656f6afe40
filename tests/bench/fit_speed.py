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
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from router.jobs.layouts import layout_steps
from router.jobs.step_model import (
    Coefficients,
    EfficiencyKind,
    EstimateAccuracy,
    Steps,
    as_steps,
    parse_coefficients,
    read_coefficients,
    time_steps,
)
from tests.bench.published_jobs import KINDS, JudgedRun, judge_all
from tests.bench.published_runs import FACTS, RUN_TABLES, Run, read_runs

STORED = Path(__file__).resolve().parents[2] / "router/jobs/speed_coefficients.json"
DATE = "2026-12-01"
FOLDS = 10
_FEW = 20  # runs, of which a median and a spread say little
_NOISE = 0.12  # scale of a residual below which the loss is quadratic
_FAMILIES = {"volta": 0.6, "ampere": 0.6, "hopper": 0.6, "blackwell": 0.6, "tpu": 0.6, "cdna": 0.6}
_UNFITTED = {"family:card": math.log(0.5), "family:other": math.log(0.45)}
_NOTHING = Coefficients(_UNFITTED, {}, 0.0, {})
# Positive coefficients: prior median, and prior standard deviation of the logarithm.
_POSITIVE = {
    "memory": (1.0, 0.5), "launch": (2e-5, 0.7), "tensor": (1.0, 0.4), "data": (1.0, 0.4), "overlap": (4.0, 0.5),
    "attention": (1.3, 0.4), "width": (500.0, 0.7), "tokens": (1000.0, 0.8), "experts": (1.0, 0.6),
    "gathers": (1.0, 0.5), "bubble": (1.0, 0.2), "pipeline": (0.7, 0.5), "latency": (2e-5, 0.7),
    "grouped": (1.5, 0.3), "expert_tokens": (50.0, 0.4), "dispatch": (1.0, 0.7), "expert_launches": (3.0, 0.8),
    "expert_width": (300.0, 0.4),
}  # fmt: skip
_LOGARITHMS = {
    "fp8": (math.log(0.8), 0.25), "fp8:hopper": (0.0, 0.15), "fp8:blackwell": (0.0, 0.15), "fp8:cdna": (0.0, 0.15),
    "age": (-0.05, 0.05), "age:experts": (-0.1, 0.15), "fp8:experts": (-0.15, 0.15),
    "fp4": (math.log(0.6), 0.3), "tf32": (math.log(1.2), 0.25), "fp32": (math.log(1.2), 0.25),
}  # fmt: skip


def _priors(runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """Return mean and standard deviation of each fitted figure, on the scale on which it is fitted."""
    found = {name: (math.log(median), spread) for name, (median, spread) in _POSITIVE.items()}
    found |= _LOGARITHMS | {f"software:{name}": (0.0, 0.15) for name in sorted({r.software for r in runs})}
    found |= {f"family:{name}": (math.log(share), 0.3) for name, share in _FAMILIES.items()}
    return found | {f"accelerator:{name}": (0.0, 0.12) for name in sorted({r.rates.accelerator for r in runs})}


def _software_shares(runs: Sequence[Run], weights: NDArray[np.float64]) -> dict[str, dict[str, float]]:
    """Return for each family of accelerators the shares of the software of its runs; they stand in where none is said.

    Near-duplicates count as in the fit.
    """
    sums: dict[str, dict[str, float]] = {}
    for run, weight in zip(runs, weights, strict=True):
        own = sums.setdefault(run.rates.family, {})
        own[run.software] = own.get(run.software, 0.0) + float(weight)
    return {
        family: {name: each / sum(own.values()) for name, each in sorted(own.items())}
        for family, own in sorted(sums.items())
    }


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
    """The runs as inputs of the step model, and the fit of any part of them."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.priors = _priors(runs)
        self.names = list(self.priors)
        self.fixed = message_sizes() | _UNFITTED
        self._measured = np.log([r.tokens_per_s / r.tokens_per_step for r in runs])
        likes = Counter(r.group for r in runs)
        self._weights = np.array([likes[r.group] ** -0.5 for r in runs])
        kinds = [
            EfficiencyKind(
                r.rates.family, r.rates.accelerator, r.precision, r.experts, r.software, r.model.software_year
            ).loads()
            for r in runs
        ]
        self._shares, self._plain = (
            np.array([[loads[i].get(name, 0.0) for name in self.names] for loads in kinds]) for i in range(2)
        )
        self._software = _software_shares(runs, self._weights)
        steps = [layout_steps(r.model, r.links, [r.layout], _NOTHING) for r in runs]
        self._steps = {f.name: np.concatenate([getattr(s, f.name) for s in steps]) for f in fields(Steps)}

    def coefficients(self, theta: NDArray[np.float64]) -> dict[str, float]:
        """Return the figures by name, on the scale on which they are used."""
        named = dict(zip(self.names, (float(x) for x in theta), strict=True))
        unstated = {
            f"unstated:{family}": sum(named[f"software:{name}"] * share for name, share in shares.items())
            for family, shares in self._software.items()
        }
        return {n: math.exp(x) if n in _POSITIVE else x for n, x in named.items()} | unstated | self.fixed

    def as_coefficients(self, theta: NDArray[np.float64]) -> Coefficients:
        """Return the figures as the product reads them; how accurate they are is not known yet."""
        known = dict.fromkeys(KINDS, EstimateAccuracy(0.0, 0.0, 0))
        return Coefficients(self.coefficients(theta), known, 0.0, {"rows_by_family": {}, "rows_by_accelerator": {}})

    def errors(self, theta: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the logarithms of estimated over published tokens/s."""
        values = {name: column[rows] for name, column in self._steps.items()}
        values["log_efficiency"] = self._shares[rows] @ theta
        values["log_attention"] = self._plain[rows] @ theta
        seconds = time_steps(as_steps(values), self.coefficients(theta)).seconds
        return np.asarray(-np.log(seconds) - self._measured[rows], dtype=np.float64)

    def fit(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the figures that fit these rows best, each held near its prior."""
        mean, spread = np.array(list(self.priors.values())).T

        def residuals(theta: NDArray[np.float64]) -> NDArray[np.float64]:
            off = self.errors(theta, rows) / _NOISE * self._weights[rows]
            soft = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off * off) - 1))
            return np.concatenate([soft, (theta - mean) / spread])

        return np.asarray(least_squares(residuals, mean, x_scale=spread, ftol=1e-6).x, dtype=np.float64)

    def cross_fits(self, keys: Sequence[str], count: int) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
        """Return a fit for each fold, which has not seen it, and the folds; runs of one key stay together."""
        folds = assign_folds(keys, count)
        return [self.fit(np.flatnonzero(folds != f)) for f in range(int(folds.max()) + 1)], folds

    def held_out_errors(self, fits: Sequence[NDArray[np.float64]], folds: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the error of each run, laid out as it ran, by the fit that has not seen it."""
        errors = np.zeros(len(folds))
        for f, theta in enumerate(fits):
            unseen = np.flatnonzero(folds == f)
            errors[unseen] = self.errors(theta, unseen)
        return errors


def assign_folds(keys: Sequence[str], folds: int) -> NDArray[np.int64]:
    """Return a fold for each key, equal keys in one, spread by a digest of the key."""
    ordered = sorted(set(keys), key=lambda key: hashlib.sha256(key.encode()).hexdigest())
    place = {key: i % folds for i, key in enumerate(ordered)}
    return np.array([place[key] for key in keys])


def spread_of(errors: NDArray[np.float64]) -> float:
    """Return the standard deviation, as a share of the estimated time, whose middle 80 % hold 80 % of the times."""
    return round(float(np.quantile(np.abs(np.expm1(errors)), 0.8)) / 1.2816, 3)


def like_errors(judged: Sequence[JudgedRun], kind: str) -> NDArray[np.float64]:
    """Return the known errors of one kind of estimate; of too few runs those of any software in their place."""
    known = [j for j in judged if not math.isnan(j.error)]
    own = [j.error for j in known if j.kind == kind]
    wider = kind.rpartition(":")[0]
    return np.array(own if len(own) >= _FEW else [j.error for j in known if j.kind.startswith(wider)])


def accuracy_of(errors: NDArray[np.float64]) -> EstimateAccuracy:
    """Return the median of the errors, and their spread about it."""
    bias = round(float(np.median(errors)), 4)
    return EstimateAccuracy(bias, spread_of(errors - bias), len(errors))


def fit_all(runs: Sequence[Run]) -> Coefficients:
    """Return the coefficients of all runs, the accuracy of each kind by cross-validation, and where they come from."""
    fit = Fit(runs)
    theta = fit.fit(np.arange(len(runs)))
    fits, folds = fit.cross_fits([r.group for r in runs], FOLDS)
    unseen = fit.cross_fits([r.family for r in runs], len({r.family for r in runs}))
    judged = judge_all(runs, [fit.as_coefficients(one) for one in fits], folds.tolist())
    accuracy = {kind: accuracy_of(like_errors(judged, kind)) for kind in KINDS}
    provenance = {
        "command": "make fit",
        "fitted_on": DATE,
        "rows": len(runs),
        "rows_by_family": dict(sorted(Counter(r.rates.family for r in runs).items())),
        "rows_by_accelerator": dict(sorted(Counter(r.rates.accelerator for r in runs).items())),
        "tables": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in RUN_TABLES},
    }
    values = {name: float(f"{value:.5g}") for name, value in sorted(fit.coefficients(theta).items())}
    return Coefficients(values, accuracy, spread_of(fit.held_out_errors(*unseen)), provenance)


def as_stored(found: Coefficients) -> dict[str, Any]:
    """Return the form in which coefficients are stored."""
    return {
        "provenance": dict(found.provenance),
        "unseen_error": found.unseen_error,
        "accuracy": {kind: asdict(accuracy) for kind, accuracy in sorted(found.accuracy.items())},
        "coefficients": dict(found.values),
    }


def main() -> None:
    """Fit, and write the coefficients (or with ``--check`` compare them with those that are stored)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the stored ones differ")
    parser.add_argument("--every", type=int, default=1, help="fit every Nth run alone, and write nothing")
    chosen = parser.parse_args()
    if not all(path.is_file() for path in RUN_TABLES):
        print("skipped: the published runs are not beside the repository")
        return
    stored = as_stored(fit_all(read_runs()[:: chosen.every]))
    if chosen.every > 1:
        parse_coefficients(stored)
        print(f"fitted on {stored['provenance']['rows']} runs, not stored")
        return
    if chosen.check:
        before = read_coefficients()
        same = as_stored(before)["provenance"] == stored["provenance"] and before == parse_coefficients(stored)
        print("the stored coefficients are those of a fit" if same else "the stored coefficients differ from a fit")
        raise SystemExit(0 if same else 1)
    STORED.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    print(f"fitted on {stored['provenance']['rows']} runs")
    for kind, accuracy in stored["accuracy"].items():
        print(f"{kind:<24} {accuracy['runs']:>4} runs, standard deviation {accuracy['error']:.0%}")


if __name__ == "__main__":
    main()
