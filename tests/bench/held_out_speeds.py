"""Write published speeds beside estimates of fits that never saw them: ``python -m tests.bench.held_out_speeds``.

The table is a part of all published runs, for readers who do not have them: up to a dozen of each accelerator, evenly
over sources and speeds. The notebook on cost per step reads it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from tests.bench.fit_speed import FOLDS, Fit
from tests.bench.published_jobs import judge_runs
from tests.bench.published_runs import RUN_TABLES, Run, read_rows, read_runs
from tests.bench.validate_speed import correct_runs

TABLE = Path(__file__).resolve().parents[2] / "notebooks" / "published_speeds.csv"
AS_OF = "2026-12-01"  # the day on which the published table was made
_EACH = 12  # rows of an accelerator


@dataclass(frozen=True, slots=True)
class HeldOutSpeed:
    """A published speed and what a fit without it and its like estimates; ``half_width`` is that of the 80 % interval.

    The interval is of times: the estimated one times 1 - half_width to 1 + half_width.
    """

    source: str
    model: str
    accelerator: str
    accelerators: int
    precision: str
    kind: str
    published_tokens_per_s: float
    estimated_tokens_per_s: float
    half_width: float
    as_of: str
    source_url: str


def held_out_speeds() -> tuple[HeldOutSpeed, ...]:
    """Return every published run that has an estimate, its layout stated where the source does; takes two minutes."""
    runs = read_runs()
    fit = Fit(runs)
    thetas, folds = fit.cross_fits([r.group for r in runs], FOLDS)
    fits = [fit.as_coefficients(theta) for theta in thetas]
    stated = judge_runs(runs, fits, folds, "stated", software=True)
    chosen = judge_runs(runs, fits, folds, "auto", software=True)
    rows = {id(run): row for run, row in zip(runs, read_rows(), strict=True)}
    speeds = []
    for judged, known in ((stated, True), (chosen, False)):
        errors, widths = correct_runs(judged)
        for one, error, width in zip(judged, errors, widths, strict=True):
            if one.run.layout_known == known and not math.isnan(error):
                speeds.append(_as_speed(one.run, rows[id(one.run)], float(error), float(width)))
    return tuple(speeds)


def _as_speed(run: Run, row: dict[str, str], error: float, width: float) -> HeldOutSpeed:
    return HeldOutSpeed(
        source=run.source,
        model=row["model"],
        accelerator=run.rates.accelerator,
        accelerators=run.links.count,
        precision=run.precision,
        kind="experts" if run.experts else "dense",
        published_tokens_per_s=_digits(run.tokens_per_s),
        estimated_tokens_per_s=_digits(run.tokens_per_s * math.exp(error)),
        half_width=round(width, 4),
        as_of=AS_OF,
        source_url=row["source_url"],
    )


def choose_speeds(speeds: Sequence[HeldOutSpeed]) -> tuple[HeldOutSpeed, ...]:
    """Return up to a dozen of each accelerator, evenly over source and speed; never by how well they were estimated."""
    chosen: list[HeldOutSpeed] = []
    for name in sorted({s.accelerator for s in speeds}):
        own = sorted(
            (s for s in speeds if s.accelerator == name),
            key=lambda s: (s.source, s.published_tokens_per_s, s.model, s.precision),
        )
        step = max(1.0, len(own) / _EACH)
        chosen += [own[int(i * step)] for i in range(min(len(own), _EACH))]
    return tuple(chosen)


def write_table(speeds: Sequence[HeldOutSpeed], path: Path = TABLE) -> None:
    """Write the rows as CSV with a header."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([field.name for field in fields(HeldOutSpeed)])
        writer.writerows(astuple(speed) for speed in speeds)


def _digits(figure: float) -> float:
    return float(f"{figure:.5g}")


def main() -> None:
    if not all(path.is_file() for path in RUN_TABLES):
        print("skipped: the published runs are not beside the repository")
        return
    chosen = choose_speeds(held_out_speeds())
    write_table(chosen)
    print(f"{len(chosen)} rows in {TABLE.name}")


if __name__ == "__main__":
    main()
