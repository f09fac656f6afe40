"""``stepfare quotes fit``: how far weather drifts, and how well quotes would have held, from the price history."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.options import moment_of_planning


class FitFormat(StrEnum):
    """How it is written."""

    TEXT = "text"
    JSON = "json"


def fit(
    now: Annotated[str | None, typer.Option(metavar="MOMENT", help="Fit as if it were now.")] = None,
    output: Annotated[FitFormat, typer.Option("--output", "-o", help="Format.")] = FitFormat.TEXT,
) -> int:
    """Learn from your price history how wide the ranges of quotes have to be.

    \b
    stepfare quotes fit
    stepfare quotes fit -o json

    From the last 92 days of `stepfare prices refresh`: how far availability
    drifts from what its past says, and how often quotes would have held on
    weather that came after. At least one spot pool has to be watched for 14
    days, for 80 % of the time (looks at most 30 minutes apart). It takes about
    a minute; quotes go by it for 31 days. Exit codes: 0; 1 too little was
    recorded (quotes go on with what is assumed); 2 wrong input.
    """
    from router.app.fit_availability import ENOUGH, ENOUGH_WATCHED, fitted, recorded
    from router.prices.home import history_folder, weather_fit_file
    from router.render.web_page import put
    from router.spot.availability.fit import FRESH, fit_to_json

    moment = moment_of_planning(now)
    found = recorded(history_folder(), moment)
    if found.ground is None:
        console.note(
            f"nothing to learn from: {found.seen} spot pools were looked at, for {found.most_days:.1f} days at most; "
            f"one has to be watched for {ENOUGH.days} days, {ENOUGH_WATCHED:.0%} of the time: run "
            "`stepfare prices refresh` every 30 minutes or more often"
        )
        return ExitCode.FAILURE
    choices = len(found.ground.parts)
    console.note(f"{found.pools} pools since {found.since:%Y-%m-%d %H:%MZ}; quoting on {choices} choices of them ...")
    got = fitted(found)
    text = fit_to_json(got)
    file = weather_fit_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    put(file, text.encode())
    if output is FitFormat.JSON:
        console.out(text)
        return ExitCode.OK
    sizes = json.loads(text)["likely"]
    back, lost = (_size(shares) for shares in sizes)
    console.out(
        f"learned from {got.pools} pools, {(got.until - got.since).days} days, {got.watched:.0%} of them watched\n"
        f"drift: hazards of losing spot move by a factor of {lost:.2f}, those of its return by {back:.2f}\n"
        f"of {got.outcomes:,} outcomes that quotes had not seen, their 90 % figures of the cost held"
        f" {_held(got.cost.held):.0%}, of the finish {_held(got.finish.held):.0%}\n"
        f"kept in {file}; quotes go by it until {got.until + FRESH:%Y-%m-%d}"
    )
    return ExitCode.OK


def _size(shares: list[float]) -> float:
    from math import exp

    from router.spot.availability.drift import GRID

    return exp(sum(p * s.size for p, s in zip(shares, GRID, strict=True)))


def _held(held: tuple[float, ...]) -> float:
    from router.spot.availability.recalibration import KNOTS

    return held[KNOTS.index(0.9)]
