"""Command ``stepfare quotes fit``: fit availability drift and the ranges of quotes to the price history."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.options import parse_now


class FitFormat(StrEnum):
    """Output format of the fit."""

    TEXT = "text"
    JSON = "json"


def fit(
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Fit as of this moment.")] = None,
    output: Annotated[FitFormat, typer.Option("--output", "-o", help="Format.")] = FitFormat.TEXT,
) -> int:
    """Fit the ranges of quotes to your price history.

    \b
    stepfare quotes fit
    stepfare quotes fit -o json

    The fit uses the last 92 days of `stepfare prices refresh`. It learns how far spot availability drifts from the
    past, and how often quotes would have held on later availability. At least one spot pool must have been observed
    for 14 days, for 80 % of the time (observations at most 30 minutes apart). The fit takes about a minute, and quotes
    use it for 31 days. Exit codes: 0; 1 too few observations (quotes keep their assumptions); 2 invalid input.
    """
    from router.app.fit_availability import ENOUGH, ENOUGH_WATCHED, fit_recorded_pools, recorded_pools
    from router.cli.output_files import write_output_file
    from router.prices.data_folders import hazard_fit_file, history_folder
    from router.spot.availability.fit import FRESH_FOR, fit_to_json

    moment = parse_now(now)
    data = recorded_pools(history_folder(), moment)
    if data.ground is None:
        console.note(
            f"nothing to learn from: {data.seen} spot pools were observed, for {data.most_days:.1f} days at most; "
            f"one has to be observed for {ENOUGH.days} days, {ENOUGH_WATCHED:.0%} of the time: run "
            "`stepfare prices refresh` every 30 minutes or more often"
        )
        return ExitCode.FAILURE
    choices = len(data.ground.parts)
    console.note(f"{data.pools} pools since {data.since:%Y-%m-%d %H:%MZ}; quoting on {choices} choices of them ...")
    model = fit_recorded_pools(data)
    text = fit_to_json(model)
    file = hazard_fit_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_output_file(file, text.encode())
    if output is FitFormat.JSON:
        console.out(text)
        return ExitCode.OK
    sizes = json.loads(text)["likely"]
    back_drift, loss_drift = (_size(shares) for shares in sizes)
    console.out(
        f"learned from {model.pools} pools, {(model.until - model.since).days} days, "
        f"{model.watched:.0%} of them observed\n"
        f"drift: hazards of losing spot move by a factor of {loss_drift:.2f}, "
        f"those of its return by {back_drift:.2f}\n"
        f"of {model.outcomes:,} outcomes that quotes had not seen, their 90 % figures of the cost held"
        f" {_held(model.cost.held):.0%}, of the finish {_held(model.finish.held):.0%}\n"
        f"stored in {file}; quotes use it until {model.until + FRESH_FOR:%Y-%m-%d}"
    )
    return ExitCode.OK


def _size(shares: list[float]) -> float:
    from math import exp

    from router.spot.availability.drift import GRID

    return exp(sum(p * s.size for p, s in zip(shares, GRID, strict=True)))


def _held(held: tuple[float, ...]) -> float:
    from router.spot.availability.recalibration import KNOTS

    return held[KNOTS.index(0.9)]
