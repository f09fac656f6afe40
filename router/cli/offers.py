"""Commands ``stepfare offers``, ``prices risk`` and ``prices history``: offers, their interruptions and their past."""

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
from pricing.units import format_count
from router.app.queries.prices import (
    HistoryRequest,
    PriceSources,
    history_books,
    list_offers,
    local_sources,
    read_history,
)
from router.cli import console
from router.cli.completion import complete_accelerators, complete_books
from router.cli.console import write_output_file
from router.cli.options import (
    CloudOption,
    LimitOption,
    MachineTypeOption,
    OutInsteadOption,
    RegionOption,
    WideListOutput,
    count_rows,
    parse_duration_option,
    parse_now,
)
from router.cli.planning_options import BookOption, LearnedOption, run_reader
from router.cli.site_options import acting_user
from router.planning.document.plan_terms import BOOK
from router.prices import history as store
from router.prices.books import LATEST, load_book
from router.render import history_plot, history_text, offers_text, pool_risk_text
from router.render.offers_text import OfferFilters, OfferSortKey
from router.render.tables import format_timestamp

if TYPE_CHECKING:
    from pricing.book import PriceBook


AcceleratorOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", autocompletion=complete_accelerators, help="Only this accelerator, such as H100."),
]


def offers(
    cloud: CloudOption = None,
    region: RegionOption = None,
    accelerator: AcceleratorOption = None,
    market: Annotated[list[Market] | None, typer.Option(metavar="on_demand|spot", help="Only this market.")] = None,
    instance_type: MachineTypeOption = None,
    provisionable: Annotated[
        bool, typer.Option("--provisionable", help="Only offers that can be provisioned from here.")
    ] = False,
    max_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Leave out prices older than this (30d), and undated ones.")
    ] = None,
    sort: Annotated[
        OfferSortKey, typer.Option(help="Price to sort by, cheapest first.")
    ] = OfferSortKey.ACCELERATOR_HOUR,
    limit: LimitOption = None,
    book: BookOption = BOOK,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="Moment from which ages are counted (ISO, with zone).")
    ] = None,
    output: WideListOutput = "table",
    out: OutInsteadOption = None,
) -> None:
    """List offers, cheapest first, with the age and source of each price.

    \b
    stepfare offers --accelerator H100 --market spot
    stepfare offers --cloud aws --cloud gcp --max-age 365d --sort hour
    stepfare offers --region eu-west-1 -o csv --out offers.csv
    """
    moment = parse_now(now)
    filters = OfferFilters(
        clouds=tuple(cloud or ()),
        regions=tuple(region or ()),
        accelerators=tuple(accelerator or ()),
        markets=tuple(market or ()),
        instance_types=tuple(instance_type or ()),
        provisionable=provisionable,
        max_age=parse_duration_option("--max-age", max_age),
    )
    source = load_book(book)
    machine_readable = output in {"json", "csv"}
    rows = count_rows(limit, machine_readable=machine_readable)
    selected = list_offers(source, filters, sort, moment.date(), rows, prefix="--")
    shown = selected.rows
    if selected.too_old:
        console.note(f"left out: {format_count(selected.too_old, 'offer')} older than {max_age} or undated")
    if not selected.matching:
        console.note("no offer passes the filters")
    if len(shown) < selected.matching:
        console.note(f"{len(shown)} of {selected.matching} offers; --limit 0 shows all")
    if shown or machine_readable:
        writers = {
            "table": lambda: offers_text.table(shown, console.screen(file=out)),
            "wide": lambda: offers_text.wide(shown, console.screen(file=out)),
            "json": lambda: offers_text.as_json(shown, source, moment),
            "csv": lambda: offers_text.as_csv(shown),
        }
        console.write(writers[output](), out)


def risk(
    pool: Annotated[
        str | None,
        typer.Argument(metavar="POOL", help="One pool: aws/us-east-1/p5.48xlarge, or its zone in place of the region."),
    ] = None,
    cloud: CloudOption = None,
    region: RegionOption = None,
    accelerator: AcceleratorOption = None,
    instance_type: MachineTypeOption = None,
    learned: LearnedOption = None,
    limit: LimitOption = None,
    book: BookOption = BOOK,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Moment of the answer (ISO, with zone).")] = None,
    output: WideListOutput = "table",
    out: OutInsteadOption = None,
) -> None:
    """Show how often spot machines are interrupted and what that rests on, the calmest pools first.

    With POOL it shows all evidence about that pool, the rate by age, and what would change it. Figures are of one
    machine, since the whole of a gang is hit more often; docs/interruptions.md explains them.

    \b
    stepfare prices risk --accelerator H100
    stepfare prices risk aws/us-east-1/p5.48xlarge
    stepfare prices risk --cloud gcp -o csv --out risk.csv
    """
    from router.app.queries.prices import find_pool_risks, list_pool_risks
    from router.jobs.experience import count_losses, learn_pools

    moment = parse_now(now)
    source = load_book(book)
    runs = run_reader(learned, moment, present=now is None)(source)
    known = source.risk.with_records(learn_pools(runs.pools, moment))
    losses = count_losses(runs.pools, moment)
    filters = OfferFilters(
        clouds=tuple(cloud or ()),
        regions=tuple(region or ()),
        accelerators=tuple(accelerator or ()),
        instance_types=tuple(instance_type or ()),
    )
    if pool is None:
        found = list_pool_risks(source, known, filters, moment.date(), prefix="--", losses=losses)
    else:
        if filters != OfferFilters():
            console.note("POOL names one pool: the filters are not used", "warning")
        found = find_pool_risks(source, known, pool, losses)
    machine_readable = output in {"json", "csv"}
    rows = count_rows(limit, machine_readable=machine_readable)
    shown = found[:rows] if rows else found
    if not found:
        console.note("no spot offer passes the filters")
    if len(shown) < len(found):
        console.note(f"{len(shown)} of {len(found)} pools; --limit 0 shows all")
    if pool is not None and len(found) > 1:
        console.note(f"{len(found)} zones; `stepfare prices risk {found[0].pool}` shows all that is known of one")
    if shown or machine_readable:
        writers = {
            "table": lambda: (
                pool_risk_text.ledger(shown[0], console.screen(file=out))
                if pool is not None and len(found) == 1
                else pool_risk_text.table(shown, console.screen(file=out))
            ),
            "wide": lambda: pool_risk_text.wide(shown, console.screen(file=out)),
            "json": lambda: pool_risk_text.as_json(shown, source, moment),
            "csv": lambda: pool_risk_text.as_csv(shown),
        }
        console.write(writers[output](), out)


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
    return history_books(sources) if name == LATEST else (load_book(name),)


def _length(since: str) -> timedelta:
    length = parse_duration_option("--since", since)
    if not length:
        raise InvalidInputError.single("is no stretch of time", field="--since", remedy="write 30d or 12h")
    return length


def _drawing(file: Path) -> Callable[[Path, history_text.HistoryView], None]:
    """Return a function that plots into the file. Raises an error before anything is read if that is impossible."""
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
        "cloud": (selection.clouds, known["cloud"]),
        "region": (selection.regions, known["region"]),
        "zone": (selection.zones, known["zone"]),
        "machine type": (selection.instance_types, known["instance_type"]),
    }
    return [
        (option, value, did_you_mean(value, names))
        for option, (values, names) in filters.items()
        for value in values
        if value not in names
    ]
