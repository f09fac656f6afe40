"""Command ``stepfare prices history``: show and plot the history of prices and stock, series by series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.book_check import did_you_mean
from pricing.places import Market
from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.completion import complete_books
from router.cli.offer_options import AcceleratorOption, LimitOption, RegionOption, count_rows
from router.cli.options import parse_duration_option, parse_now
from router.cli.output_options import OutInsteadOption, WideListOutput
from router.cli.site_options import acting_user
from router.prices import history as store
from router.render import history_text
from router.render.tables import format_timestamp

if TYPE_CHECKING:
    from pricing.book import PriceBook
    from router.app.queries.prices import PriceSources


def history(
    instance_type: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this machine type; repeatable.")
    ] = None,
    accelerator: AcceleratorOption = None,
    cloud: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this cloud.")] = None,
    region: RegionOption = None,
    zone: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this zone.")] = None,
    market: Annotated[
        list[Market] | None, typer.Option(metavar="on_demand|spot|reserved", help="Only this market.")
    ] = None,
    since: Annotated[str, typer.Option(metavar="DURATION", help="Length of the history, up to now.")] = "30d",
    limit: LimitOption = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also plot the first series into this .svg or .html file.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir", "--history", metavar="FOLDER", help="Folder of the history. Default: that of `prices refresh`."
        ),
    ] = None,
    book: Annotated[
        str,
        typer.Option(
            metavar="BOOK", autocompletion=complete_books, help="Book that tells which machines have an --accelerator."
        ),
    ] = "latest",
    now: Annotated[str | None, typer.Option(metavar="TIME", help="End of the history (ISO, with zone).")] = None,
    output: WideListOutput = "table",
    out: OutInsteadOption = None,
) -> None:
    """Show the history of prices and stock, one row per place and machine, cheapest now first.

    \b
    stepfare prices history --accelerator H100 --market spot
    stepfare prices history --region aws/us-east-1 --since 90d -o wide
    stepfare prices history --instance-type p5.48xlarge --plot p5.html
    """
    from router.app.queries.prices import HistoryRequest, local_sources, read_history

    until = parse_now(now)
    begin = until - _length(since)
    draw = None if plot is None else _drawing(plot)
    machine_readable = output in {"json", "csv"}
    blocks = history_text.WIDE_BUCKETS if output == "wide" else history_text.NARROW_BUCKETS
    selection = store.Selection(
        clouds=tuple(cloud or ()),
        regions=tuple(region or ()),
        zones=tuple(zone or ()),
        instance_types=tuple(instance_type or ()),
        markets=tuple(market or ()),
    )
    request = HistoryRequest(
        begin,
        until,
        selection,
        tuple(accelerator or ()),
        limit=count_rows(limit, machine_readable=machine_readable),
        buckets=0 if machine_readable else blocks,
    )
    sources = local_sources(acting_user(), folder)
    history_dir = sources.history
    with console.progress("reading the price history"):
        answer = read_history(sources, request, lambda: _books(sources, book))
    view, series = answer.view, answer.view.series
    if not series:
        _explain_empty_result(
            history_dir, replace(answer.which, instance_types=tuple(instance_type or ())), begin, until
        )
    if len(series) < answer.series_count:
        console.note(f"{len(series)} of {answer.series_count} series; --limit 0 shows all")
    if series or machine_readable:
        writers = {
            "table": lambda: history_text.table(view, console.screen(file=out)),
            "wide": lambda: history_text.wide(view, console.screen(file=out)),
            "json": lambda: history_text.as_json(view),
            "csv": lambda: history_text.as_csv(view),
        }
        console.write(writers[output](), out)
    if draw is not None and series:
        draw(history_dir, view)


def _books(sources: PriceSources, name: str) -> tuple[PriceBook, ...]:
    """Return the book of that name; beside the latest, that of the sandbox."""
    from router.app.queries.prices import history_books
    from router.prices.books import LATEST, load_book

    return history_books(sources) if name == LATEST else (load_book(name),)


def _length(since: str) -> timedelta:
    length = parse_duration_option("--since", since)
    if not length:
        raise InvalidInputError.single("is no stretch of time", field="--since", remedy="write 30d or 12h")
    return length


def _drawing(file: Path) -> Callable[[Path, history_text.HistoryView], None]:
    """Return a function that plots into the file. Raises an error before anything is read if that is impossible."""
    from router.cli.console import write_output_file
    from router.render import history_plot

    history_plot.check(file)

    def draw(folder: Path, shown: history_text.HistoryView) -> None:
        content, note = history_plot.draw(file, folder, shown)
        if note:
            console.note(note)
        if content is not None:
            write_output_file(file, content)

    return draw


def _explain_empty_result(folder: Path, selection: store.Selection, since: datetime, until: datetime) -> None:
    summary = store.summarize(folder)
    if summary.first is None or summary.last is None:
        console.note(f"there is no price history in {folder} yet: `stepfare prices refresh` begins one")
        return
    console.note(f"no series passes the filters from {format_timestamp(since)} to {format_timestamp(until)}")
    console.note(
        f"the history has {summary.rows:,} points from {format_timestamp(summary.first)} "
        f"to {format_timestamp(summary.last)}"
    )
    for option, value, remedy in _unknown_names(folder, selection):
        console.note(f"it knows no {option} {value!r}{f': {remedy}' if remedy else ''}")


def _unknown_names(folder: Path, selection: store.Selection) -> list[tuple[str, str, str]]:
    """Return filter values that occur nowhere in the history, each with a suggestion."""
    known = store.list_names(folder)
    filters = {
        "cloud": (selection.clouds, known.clouds),
        "region": (selection.regions, known.regions),
        "zone": (selection.zones, known.zones),
        "machine type": (selection.instance_types, known.instance_types),
    }
    return [
        (option, value, did_you_mean(value, names))
        for option, (values, names) in filters.items()
        for value in values
        if value not in names
    ]
