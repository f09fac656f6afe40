"""Print the error of estimated tokens/s on published runs that their fit never saw: ``make validate``.

Each run is written as a job file and read as a user reads it: with its layout stated, with ``layout: auto``, with
nothing about the layout. Near-duplicates are never split between fit and judgement. Then whole software families are
left out, beside a plain baseline, and whole trainings are compared.

    python -m tests.bench.validate_speed [--every 1]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from router.jobs.step_model import read_coefficients
from tests.bench.fit_speed import FOLDS, Fit, accuracy_of, like_errors
from tests.bench.plain_baseline import baseline_errors
from tests.bench.published_jobs import FORMS, JudgedRun, judge_runs
from tests.bench.published_runs import RUN_TABLES, Run, read_runs
from tests.bench.published_trainings import TRAININGS, training_lines

_REACH = 1.2816  # standard deviations on each side that hold 80 %
_NAMES: dict[str, Callable[[Run], str]] = {"source": lambda r: r.source, "accelerator": lambda r: r.rates.accelerator}
_HEAD = f"{'':<30} rows none  median     p90   bias in 80%"


def correct_runs(judged: Sequence[JudgedRun]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the errors of runs after the correction of their kind, and half the widths of their 80 % intervals.

    Both come from the other folds alone. A width is a share of the estimated time.
    """
    errors, widths = np.full(len(judged), math.nan), np.zeros(len(judged))
    for fold, kind in sorted({(j.fold, j.kind) for j in judged}):
        known = accuracy_of(like_errors([j for j in judged if j.fold != fold], kind))
        for i, one in enumerate(judged):
            if (one.fold, one.kind) == (fold, kind):
                errors[i], widths[i] = one.error - known.log_bias, _REACH * known.error
    return errors, widths


def summary(name: str, errors: NDArray[np.float64], inside: NDArray[np.bool_]) -> str:
    """Return a line: rows, those without an answer, median and 90th percentile of the error, bias, coverage."""
    known = errors[~np.isnan(errors)]
    if not known.size:
        return f"{name:<30} {len(errors):>4} {len(errors):>4}"
    off, share = np.abs(known), inside[~np.isnan(errors)].mean()
    figures = f"{np.median(off):>7.3f} {np.quantile(off, 0.9):>7.3f} {np.median(known):>+6.2f} {share:>6.0%}"
    return f"{name:<30} {len(errors):>4} {len(errors) - len(known):>4} {figures}"


def table(judged: Sequence[JudgedRun], names: dict[str, Callable[[Run], str]]) -> Iterator[str]:
    """Yield the lines of one table: all, dense and experts, then by each of the names."""
    errors, widths = correct_runs(judged)
    inside = np.abs(np.expm1(errors)) <= widths
    yield _HEAD
    lists = {"all": lambda _: "all", "kind": lambda run: "experts" if run.experts else "dense"} | names
    for name_of in lists.values():
        of_rows = np.array([name_of(j.run) for j in judged])
        for name in sorted(set(of_rows)):
            yield summary(name, errors[of_rows == name], inside[of_rows == name])


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the error of estimated tokens/s on unseen published runs.")
    parser.add_argument("--every", type=int, default=1, help="use every Nth run alone")
    chosen = parser.parse_args()
    if not all(path.is_file() for path in RUN_TABLES):
        print(f"skipped: {RUN_TABLES[0].name} is not beside the repository")
        return
    runs = read_runs()[:: chosen.every]
    fit = Fit(runs)
    thetas, folds = fit.cross_fits([r.group for r in runs], FOLDS)
    fits = [fit.as_coefficients(theta) for theta in thetas]
    print(f"{len(runs)} published runs; near-duplicates never split, {FOLDS} folds; errors are logarithms")
    for form, software in product(FORMS, (True, False)):
        judged = judge_runs(runs, fits, folds, form, software)
        names = _NAMES if form == "stated" and software else {}
        print(f"\nlayout {form}, software {'stated' if software else 'left out'}")
        print("\n".join(table(judged, names)))
    families = [r.family for r in runs]
    print("\nwhole software families left out, laid out as they ran; beside the plain baseline")
    thetas, folds = fit.cross_fits(families, len(set(families)))
    errors = fit.held_out_errors(thetas, folds)
    judged = [JudgedRun(r, float(e), "any:unknown", int(f)) for r, e, f in zip(runs, errors, folds, strict=True)]
    print("\n".join(table(judged, {"family": lambda r: r.family})))
    plain = baseline_errors(runs, folds)
    print(summary("plain baseline", plain, np.zeros(len(plain), dtype=np.bool_)))
    if TRAININGS.is_file():
        print("\nwhole trainings, time and money")
        print("\n".join(training_lines(read_coefficients())))


if __name__ == "__main__":
    main()
