"""Command ``stepfare offers``: list offers with place, price, age and source."""

from __future__ import annotations

from typing import Annotated

import typer

from pricing.places import Market
from pricing.units import format_count
from router.app.queries.offers import list_offers
from router.cli import console
from router.cli.offer_options import (
    AcceleratorOption,
    CloudOption,
    LimitOption,
    MachineTypeOption,
    RegionOption,
    count_rows,
)
from router.cli.options import parse_duration_option, parse_now
from router.cli.output_options import OutInsteadOption, WideListOutput
from router.cli.planning_options import BookOption
from router.planning.document.plan_terms import BOOK
from router.prices.books import load_book
from router.render import offers_text
from router.render.offers_text import OfferFilters, OfferSortKey


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
