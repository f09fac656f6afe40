"""Command ``stepfare stock``: ask the clouds where a gang is likely to be available."""

from __future__ import annotations

from typing import Annotated

import typer

from pricing.places import Market
from providers.errors import ProviderError
from providers.protocol import GangQuery, StockHint
from router.cli import console
from router.cli.console import ExitCode
from router.cli.offer_options import CloudsFileOption
from router.cli.options import parse_duration_option, parse_now
from router.cli.output_options import TableOutput
from router.render.record_table import RecordTable, TableColumn, field_columns
from router.render.tables import wrap_text


def stock(
    machine: Annotated[str, typer.Argument(metavar="MACHINE", help="Machine type, such as p5.48xlarge.")],
    machines: Annotated[int, typer.Option("--machines", "-n", min=1, help="Machines wanted at the same time.")] = 1,
    market: Annotated[Market, typer.Option(help="Market to ask for.")] = Market.SPOT,
    region: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this region; repeatable.")] = None,
    clouds: CloudsFileOption = None,
    time_limit: Annotated[str, typer.Option(metavar="DURATION", help="Time limit.")] = "1m",
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Date of the hints (ISO, with zone).")] = None,
    output: TableOutput = "table",
) -> ExitCode:
    """Ask the clouds where a gang is likely to be available.

    Sources are the placement scores of AWS, the Spot advice of Google, and the counts of the static pool and the
    sandbox. Azure and the neoclouds give no hints. The hints are stored in the price history; counts of machines limit
    `plan --quotas latest` for six hours. AWS limits the number of different requests per account and day.

    \b
    stepfare stock p5.48xlarge --machines 4
    stepfare stock a3-highgpu-8g -n 2 --region us-central1 -o json
    """
    from router.cli.cloud_options import select_clouds
    from router.prices import history
    from router.prices.allowance_store import AllowanceStore
    from router.prices.bookstore import BookStore
    from router.prices.cloud_queries import build_stock_points, find_sellers, query_stock, sort_stock_hints
    from router.prices.data_folders import allowances_folder, books_folder, history_folder
    from router.prices.refresh import load_all_tables

    moment = parse_now(now).replace(microsecond=0)
    limit = parse_duration_option("--time-limit", time_limit)
    assert limit is not None
    loaded, _ = select_clouds([], clouds)
    words = load_all_tables(BookStore(books_folder()))
    asked = find_sellers(words, machine)
    wanted = GangQuery(machine, machines, market, tuple(region or ()))
    with console.progress(f"asking {', '.join(asked)}"):
        answers = query_stock(asked, loaded, words, moment, limit.total_seconds(), wanted)
    hints = sort_stock_hints(
        (c, hint) for c, some in answers.items() if not isinstance(some, ProviderError) for hint in some
    )
    errors = [one for one in answers.values() if isinstance(one, ProviderError)]
    history.append(history_folder(), build_stock_points(hints, wanted, moment))
    AllowanceStore(allowances_folder()).add(moment, {}, hints)
    console.out(_json(hints) if output == "json" else _text(hints, wanted))
    for error in errors:
        console.note(wrap_text(f"{error.cloud}: {error}"), "warning")
    return ExitCode.PARTIAL if errors else ExitCode.OK


_HINTS: RecordTable[tuple[str, StockHint]] = RecordTable(
    (
        TableColumn("cloud", lambda row: row[0]),
        TableColumn("", lambda row: f"{row[0]}/{row[1].zone or row[1].region}", "PLACE", width=36),
        TableColumn("", lambda row: row[1].score, "SCORE", "{:.2f}".format, right=True),
        TableColumn("", lambda row: row[1].machines, "MACHINES", right=True),
        TableColumn("", lambda row: row[1].source, "SOURCE"),
        *field_columns(StockHint, lambda row: row[1]),
    )
)


def _text(hints: tuple[tuple[str, StockHint], ...], query: GangQuery) -> str:
    gang = f"{query.machines} x {query.instance_type}, {query.market}"
    if not hints:
        return f"no cloud says anything of its stock of {gang}\n"
    note = f"{gang}; SCORE from 0 to 1 is the cloud's own judgement and compares places of one cloud only"
    return f"{_HINTS.text(hints, console.screen())}\n\n{wrap_text(note)}\n"


def _json(hints: tuple[tuple[str, StockHint], ...]) -> str:
    return console.as_document({"hints": _HINTS.records(hints)})
