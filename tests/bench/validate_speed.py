"""Print the error of estimated tokens/s on published runs that their fit never saw: ``make validate``.

First by groups (near-duplicates stay together), then with whole sources left out.

    python -m tests.bench.validate_speed [--every 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.bench.fit_speed import Fit, spread_of
from tests.bench.published_runs import RUNS, Run, read_runs

FOLDS = 10
_REACH = 1.2816  # standard deviations on each side that hold 80 %


def interval_widths(errors: NDArray[np.float64], kinds: Sequence[str], folds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return half the width of each 80 % interval as a share of the estimate; it comes from the other folds alone."""
    kind, widths = np.array(kinds), np.zeros(len(errors))
    for f in range(int(folds.max()) + 1):
        for k in set(kinds):
            widths[(folds == f) & (kind == k)] = _REACH * spread_of(errors[(folds != f) & (kind == k)])
    return widths


def covered(errors: NDArray[np.float64], kinds: Sequence[str], folds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each published speed is inside the 80 % interval of its estimate."""
    # The speed is the median estimate times 1 +- width: published = estimate / exp(error).
    inside: NDArray[np.bool_] = np.abs(np.expm1(-errors)) <= interval_widths(errors, kinds, folds)
    return inside


def summary(name: str, errors: NDArray[np.float64], inside: NDArray[np.bool_]) -> str:
    """Return a line with median and 90th percentile of the error and the coverage of the interval."""
    off = np.abs(np.expm1(errors))
    share = f"{inside.mean():.0%}"
    return f"{name:<30} {len(off):>4} {np.median(off):>7.3f} {np.quantile(off, 0.9):>7.3f} {share:>6}"


def report(runs: Sequence[Run], errors: NDArray[np.float64], folds: NDArray[np.int64]) -> list[str]:
    """Return the lines of one report: all, dense and experts, then by source and by accelerator."""
    kinds = ["experts" if r.experts else "dense" for r in runs]
    inside = covered(errors, kinds, folds)
    lines = [f"{'':<30} rows  median     p90 in 80%"]
    lists = {"all": ["all"] * len(runs), "kind": kinds, "source": [r.source for r in runs]}
    lists["accelerator"] = [r.rates.accelerator for r in runs]
    for names in lists.values():
        for name in sorted(set(names)):
            here = np.array(names) == name
            lines.append(summary(name, errors[here], inside[here]))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the error of estimated tokens/s on unseen published runs.")
    parser.add_argument("--every", type=int, default=1, help="use every Nth run alone")
    chosen = parser.parse_args()
    if not RUNS.is_file():
        print(f"skipped: {RUNS.name} is not beside the repository")
        return
    runs = read_runs()[:: chosen.every]
    fit = Fit(runs)
    groups = [r.group for r in runs]
    print(f"{len(runs)} published runs; near-duplicates never split, {FOLDS} folds")
    errors, folds = fit.cross_validate(groups, FOLDS)
    print("\n".join(report(runs, errors, folds)))
    sources = [r.source for r in runs]
    print("\nwhole sources left out")
    errors, folds = fit.cross_validate(sources, len(set(sources)))
    print("\n".join(report(runs, errors, folds)))


if __name__ == "__main__":
    main()
