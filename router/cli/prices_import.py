"""Command ``stepfare prices import``: import offers from a catalogue file into the price book."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.options import parse_now
from router.prices.import_offers import OfferImport
from router.render.tables import format_count, format_table, wrap_text

_SHOWN = 5


def import_file(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV file of `offers -o csv`, SkyPilot (vms.csv) or gpuhunt.")
    ],
    cloud: Annotated[
        str | None, typer.Option(metavar="NAME", help="Cloud of the prices, if neither file nor folder names it.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(metavar="DAY", help="Day of the prices: 2026-11-20. Default: undated, hence weak.")
    ] = None,
    replacing: Annotated[
        bool, typer.Option("--replace", help="Remove other offers in the regions that the file covers.")
    ] = False,
    accept_jumps: Annotated[
        bool, typer.Option("--accept-jumps", help="Accept prices that differ much from recent ones.")
    ] = False,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Date of the new book (ISO, with zone).")] = None,
) -> None:
    """Import the offers of a file into the price book, which becomes `--book latest`; `prices use` reverts it.

    The format is recognised by its header: SkyPilot's catalogue (vms.csv), gpuhunt's, the output of `stepfare offers
    -o csv`, or your own table with the columns of docs/prices.md. A file with an error is rejected as a whole.

    \b
    stepfare prices import aws/vms.csv --as-of 2026-11-18
    stepfare prices import prices.csv --cloud lambda --replace
    """
    from router.config.catalogue_files import read_catalogue
    from router.prices.bookstore import BookStore
    from router.prices.data_folders import books_folder
    from router.prices.import_offers import import_book
    from router.prices.quality_gates import GateLimits
    from router.prices.refresh import load_all_tables

    moment = parse_now(now)
    store = BookStore(books_folder())
    found = read_catalogue(file, load_all_tables(store), moment.date(), cloud=cloud, as_of=_day(as_of))
    done = import_book(found, store, moment, GateLimits(accept=accept_jumps), replacing=replacing)
    console.out(as_text(done))


def _day(text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInputError.single(f"{text!r} is not a date", field="--as-of", remedy="write 2026-11-20") from None


def as_text(done: OfferImport) -> str:
    """Return a row per cloud, followed by the offers that were left out or held back."""
    rows = [
        (cloud, str(c.fresh), str(c.added), str(c.changed), str(c.removed))
        for cloud, c in sorted(done.counts.items())
        if c.fresh or c.removed
    ]
    header = ("CLOUD", "OFFERS", "NEW", "MOVED", "GONE")
    lines = [format_table(header, rows, frozenset(header) - {"CLOUD"}, {}, console.screen()), ""]
    lines += [wrap_text(f"left out: {d.count} x {d.why}, e.g. {d.example}") for d in done.dropped[:_SHOWN]]
    if len(done.dropped) > _SHOWN:
        lines.append(f"... and rows for {len(done.dropped) - _SHOWN} more reasons")
    lines += [wrap_text(f"held back: {held}") for held in done.held[:_SHOWN]]
    if len(done.held) > _SHOWN:
        lines.append(f"... and {len(done.held) - _SHOWN} more held back; --accept-jumps takes them")
    if done.passed_over:
        lines.append(f"passed over: {done.passed_over} that the book knows with a later date or from a better source")
    lines.append(f"stored {done.stored.digest[:12]}, {format_count(done.stored.offers, 'offer')}")
    return "\n".join(lines) + "\n"
