"""Command ``stepfare stock``: ask the clouds where a gang is likely to be available."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pricing.places import Market
from providers.errors import ProviderError
from providers.protocol import StockHint, Wanted
from router.cli import console
from router.cli.console import ExitCode
from router.cli.options import length_of_time, moment_of_planning
from router.render.tables import columns, wrapped

SCHEMA_VERSION = 1


class StockFormat(StrEnum):
    """Output format of the hints."""

    TABLE = "table"
    JSON = "json"


def stock(
    machine: Annotated[str, typer.Argument(metavar="MACHINE", help="Machine type, such as p5.48xlarge.")],
    machines: Annotated[int, typer.Option("--machines", "-n", min=1, help="Machines wanted at the same time.")] = 1,
    market: Annotated[Market, typer.Option(help="Market to ask for.")] = Market.SPOT,
    region: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this region; repeatable.")] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help="The clouds file.")] = None,
    time_limit: Annotated[str, typer.Option(metavar="TIME", help="Time limit.")] = "1m",
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Date of the hints (ISO, with zone).")] = None,
    output: Annotated[StockFormat, typer.Option("--output", "-o", help="Format.")] = StockFormat.TABLE,
) -> ExitCode:
    """Ask the clouds where a gang is likely to be available.

    Sources are the placement scores of AWS, the Spot advice of Google, and the counts of the static pool and the
    sandbox. Azure and the neoclouds give no hints. The hints are stored in the price history. AWS limits the number of
    different requests per account and day.

    \b
    stepfare stock p5.48xlarge --machines 4
    stepfare stock a3-highgpu-8g -n 2 --region us-central1 -o json
    """
    from router.cli.cloud_options import chosen_clouds
    from router.prices import history
    from router.prices.bookstore import BookStore
    from router.prices.cloud_queries import stock_hints
    from router.prices.home import books_folder, history_folder
    from router.prices.refresh import all_words
    from router.prices.stock import best_first, clouds_that_sell, points_of

    moment = moment_of_planning(now).replace(microsecond=0)
    limit = length_of_time("--time-limit", time_limit)
    assert limit is not None
    loaded, _ = chosen_clouds([], clouds)
    words = all_words(BookStore(books_folder()))
    asked = clouds_that_sell(words, machine)
    wanted = Wanted(machine, machines, market, tuple(region or ()))
    with console.progress(f"asking {', '.join(asked)}"):
        answers = stock_hints(asked, loaded, words, moment, limit.total_seconds(), wanted)
    hints = best_first((c, hint) for c, some in answers.items() if not isinstance(some, ProviderError) for hint in some)
    errors = [one for one in answers.values() if isinstance(one, ProviderError)]
    history.append(history_folder(), points_of(hints, wanted, moment))
    console.out(_json(hints) if output is StockFormat.JSON else _text(hints, wanted))
    for error in errors:
        console.note(wrapped(f"{error.cloud}: {error}"), "warning")
    return ExitCode.PARTIAL if errors else ExitCode.OK


def _text(hints: tuple[tuple[str, StockHint], ...], wanted: Wanted) -> str:
    gang = f"{wanted.machines} x {wanted.instance_type}, {wanted.market}"
    if not hints:
        return f"no cloud says anything of its stock of {gang}\n"
    rows = [
        (
            f"{cloud}/{hint.zone or hint.region}",
            "" if hint.score is None else f"{hint.score:.2f}",
            "" if hint.machines is None else str(hint.machines),
            hint.source,
        )
        for cloud, hint in hints
    ]
    table = columns(("PLACE", "SCORE", "MACHINES", "SOURCE"), rows, frozenset({"SCORE", "MACHINES"}), {"PLACE": 36})
    note = f"{gang}; SCORE from 0 to 1 is the cloud's own judgement and compares places of one cloud only"
    return f"{table}\n\n{wrapped(note)}\n"


def _json(hints: tuple[tuple[str, StockHint], ...]) -> str:
    rows = [{"cloud": cloud, **asdict(hint)} for cloud, hint in hints]
    return json.dumps({"schema_version": SCHEMA_VERSION, "hints": rows}, indent=2) + "\n"
