"""Commands ``stepfare prices`` of price books (list, use, diff, import, refresh), and ``accelerators``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pricing.book_file import embedded_book
from pricing.offers import Offer
from pricing.peak_rates import PRECISIONS, PeakRates, read_peak_rates
from pricing.units import format_count
from providers.collector import FetchProgress
from router.app.queries.prices import list_books as list_stored
from router.app.queries.prices import local_sources
from router.cli import console
from router.cli.clouds import select_clouds
from router.cli.console import ExitCode
from router.cli.options import (
    CloudOption,
    OutOption,
    TableFormat,
    TableOutput,
    option_error,
    parse_duration_option,
    parse_now,
)
from router.cli.site_options import acting_user
from router.prices.books import SANDBOX, BookDiff, diff_books, load_book
from router.prices.bookstore import BookStore
from router.prices.data_folders import books_folder, check_home, history_folder
from router.prices.merge import GateLimits
from router.prices.refresh import OfferImport, RefreshOptions, import_book, load_all_tables
from router.prices.refresh import refresh as run
from router.prices.report import RefreshReport
from router.render import refresh_text
from router.render.offers_text import format_price
from router.render.record_table import RecordTable, TableColumn, attribute_columns, field_columns, json_document
from router.render.tables import MARKETS, PLAIN, Screen, format_table, format_timestamp, wrap_text

if TYPE_CHECKING:
    from router.render.prices_view import BookRow


def list_books(
    output: TableOutput = "table",
) -> None:
    """List the stored price books, newest first; `*` marks the one that commands use.

    Books of the sandbox, a simulated cloud, are used only as `--book sandbox`.

    \b
    stepfare prices list
    stepfare prices list -o json
    """
    from router.render.prices_view import book_record

    check_home()
    folder = books_folder()
    stored = list_stored(local_sources(acting_user()))
    if output == "json":
        books = [book_record(row) for row in stored]
        console.out(json_document({"folder": str(folder), "books": books}))
        return
    if not stored:
        console.note(
            "no price book is stored yet: `stepfare prices refresh` fetches one; commands use the embedded one"
        )
        return
    of_sandbox: TableColumn[BookRow] = TableColumn("", lambda row: row.name if row.name == SANDBOX else None, "OF")
    table: RecordTable[BookRow] = RecordTable(
        (
            TableColumn("", lambda row: "*" if row.latest else "", ""),
            *([of_sandbox] if any(row.name == SANDBOX for row in stored) else []),
            TableColumn("", lambda row: row.book.as_of.replace("+00:00", "Z"), "AS OF"),
            TableColumn("", lambda row: row.book.digest[:12], "DIGEST"),
            TableColumn("", lambda row: row.book.offers, "OFFERS", right=True),
        )
    )
    console.out(table.text(stored, console.screen()))
    console.note(f"in {folder}")


def use_book(
    digest: Annotated[
        str, typer.Argument(metavar="DIGEST", help="Digest as `prices list` shows it; eight digits or more.")
    ],
) -> None:
    """Make a stored price book the latest again, for example after a refresh that you do not trust.

    \b
    stepfare prices list
    stepfare prices use 3f2a90c1d7e8
    """
    store = BookStore(books_folder())
    sandbox_store = store.sandbox
    of_sandbox = any(one.digest.startswith(digest.lower()) for one in sandbox_store.all()) if digest else False
    chosen_store = sandbox_store if of_sandbox else store
    stored = chosen_store.find(digest, "DIGEST")
    chosen_store.load(stored)  # loading fails unless the book is complete
    with chosen_store.lock():
        chosen_store.point_to(stored)
    name = "price book of the sandbox" if of_sandbox else "latest price book"
    console.note(f"the {name} is now {stored.digest[:12]} of {stored.as_of}, {format_count(stored.offers, 'offer')}")


T = TypeVar("T")
DEFAULT_ROWS = 20


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="The older book.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The newer book.")] = "latest",
    cloud: CloudOption = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Rows to show of each kind; 0 is all.")] = DEFAULT_ROWS,
    output: TableOutput = "table",
    out: OutOption = None,
) -> None:
    """Compare two price books: the largest price changes first, then added and removed offers.

    A and B are latest, sandbox, embedded, a digest of `stepfare prices list`, or a .parquet or .csv file.

    \b
    stepfare prices diff embedded latest
    stepfare prices diff 3f2a90c1 latest --cloud aws -o json
    """
    found = diff_books(load_book(before), load_book(after), cloud or ())
    console.write(as_json(found) if output == "json" else diff_as_text(found, limit, console.screen(file=out)), out)


def diff_as_text(diff: BookDiff, limit: int, screen: Screen = PLAIN) -> str:
    """Return changed offers with both prices and the change in percent; ``+`` marks added, ``-`` removed offers."""
    rows: list[tuple[str, ...]] = []
    rows += [
        (
            "~",
            *_place(c.after),
            format_price(c.before.usd_per_hour),
            format_price(c.after.usd_per_hour),
            f"{(float(c.ratio) - 1) * 100:+.1f}%",
        )
        for c in _first(diff.changed, limit)
    ]
    rows += [("+", *_place(o), "", format_price(o.usd_per_hour), "") for o in _first(diff.added, limit)]
    rows += [("-", *_place(o), format_price(o.usd_per_hour), "", "") for o in _first(diff.removed, limit)]
    header = ("", "PLACE", "MACHINE", "MARKET", "BEFORE $/H", "AFTER $/H", "CHANGE")
    widths = {"PLACE": 24, "MACHINE": 18}
    table = format_table(header, rows, frozenset(header[4:]), widths, screen) + "\n\n" if rows else ""
    lists: tuple[tuple[object, ...], ...] = (diff.changed, diff.added, diff.removed)
    hidden = sum(len(rows) - limit for rows in lists if limit and len(rows) > limit)
    more = f"; {hidden} not shown, --limit 0 shows all" if hidden else ""
    return (
        f"{table}{len(diff.changed)} changed, {len(diff.added)} came, {len(diff.removed)} went, "
        f"{diff.same} as before{more}\n"
        f"from {diff.before.digest[:12]} of {format_timestamp(diff.before.as_of)} "
        f"to {diff.after.digest[:12]} of {format_timestamp(diff.after.as_of)}\n"
    )


def _first(rows: tuple[T, ...], limit: int) -> tuple[T, ...]:
    return rows[:limit] if limit else rows


def _place(offer: Offer) -> tuple[str, str, str]:
    return offer.place, offer.instance_type, MARKETS[offer.market.value]


def as_json(diff: BookDiff) -> str:
    """Return the whole diff as JSON, prices as exact decimal strings."""
    document = {
        **{
            name: {"digest": book.digest, "as_of": book.as_of.isoformat()}
            for name, book in (("before", diff.before), ("after", diff.after))
        },
        "changed": [
            {
                **_OFFER.record(c.after),
                "usd_per_hour_before": str(c.before.usd_per_hour),
                "ratio": round(float(c.ratio), 6),
            }
            for c in diff.changed
        ],
        "added": _OFFER.records(diff.added),
        "removed": _OFFER.records(diff.removed),
        "same": diff.same,
    }
    return json_document(document)


_OFFER: RecordTable[Offer] = RecordTable(
    attribute_columns("cloud", "region", "zone", "instance_type", "market", "usd_per_hour")
)
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

    moment = parse_now(now)
    store = BookStore(books_folder())
    found = read_catalogue(file, load_all_tables(store), moment.date(), cloud=cloud, as_of=_day(as_of))
    done = import_book(found, store, moment, GateLimits(accept=accept_jumps), replacing=replacing)
    console.out(_import_as_text(done))


def _day(text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise option_error("--as-of", f"{text!r} is not a date", "write 2026-11-20") from None


def _import_as_text(done: OfferImport) -> str:
    rows = [
        (cloud, str(c.fresh), str(c.added), str(c.changed), str(c.removed))
        for cloud, c in sorted(done.merged.counts.items())
        if c.fresh or c.removed
    ]
    header = ("CLOUD", "OFFERS", "NEW", "MOVED", "GONE")
    lines = [format_table(header, rows, frozenset(header) - {"CLOUD"}, {}, console.screen()), ""]
    lines += [wrap_text(f"left out: {d.count} x {d.why}, e.g. {d.example}") for d in done.dropped[:_SHOWN]]
    if len(done.dropped) > _SHOWN:
        lines.append(f"... and rows for {len(done.dropped) - _SHOWN} more reasons")
    lines += [wrap_text(f"held back: {held}") for held in done.merged.held[:_SHOWN]]
    if len(done.merged.held) > _SHOWN:
        lines.append(f"... and {len(done.merged.held) - _SHOWN} more held back; --accept-jumps takes them")
    if done.merged.passed_over:
        lines.append(
            f"passed over: {done.merged.passed_over} that the book knows with a later date or from a better source"
        )
    lines.append(f"stored {done.stored.digest[:12]}, {format_count(done.stored.offers, 'offer')}")
    return "\n".join(lines) + "\n"


def refresh(
    cloud: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this cloud, which must answer; repeatable.")
    ] = None,
    clouds: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The clouds file: accounts to query. See `schema clouds`.")
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Time limit, such as 2m; use what has arrived by then.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Store nothing unless all data arrived and nothing was held back.")
    ] = False,
    accept_jumps: Annotated[
        bool, typer.Option("--accept-jumps", help="Accept large price changes, and regions that vanished.")
    ] = False,
    history_days: Annotated[
        float, typer.Option(min=0, metavar="DAYS", help="Days of price history to fetch the first time; 0 stores none.")
    ] = 7.0,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Date of the data (ISO, with zone).")] = None,
    output: Annotated[TableFormat, typer.Option("--output", "-o", help="Format of the report.")] = "table",
) -> ExitCode:
    """Fetch prices and stock from the clouds into a dated price book, which becomes `--book latest`.

    The sandbox, a simulated cloud, has a book of its own: `--book sandbox`. Without an account the public sources are
    read. Clouds named here or in the clouds file must answer. If one does not, its older offers stay, marked as not
    refreshed, and the exit code is 5. Ctrl-C leaves the older book in use.

    \b
    stepfare prices refresh
    stepfare prices refresh --cloud aws --cloud gcp --time-limit 2m
    stepfare prices refresh --clouds clouds.yaml -o json
    """
    loaded, _ = select_clouds(cloud or [], clouds)
    settings = loaded.clouds.refresh
    limit = parse_duration_option("--time-limit", time_limit) or settings.time_limit
    options = RefreshOptions(
        clouds=tuple(dict.fromkeys(cloud or ())),
        time_limit_s=limit.total_seconds(),
        gates=GateLimits(jump=settings.price_jump, accept=accept_jumps),
        whole=whole,
        history_days=history_days,
    )
    store = BookStore(books_folder())
    with _show_progress() as show:
        report = run(options, loaded, store, history_folder(), parse_now(now), show)
    as_json = output == "json"
    console.out(refresh_text.as_json(report) if as_json else refresh_text.as_text(report, console.screen()))
    return exit_code(report)


def exit_code(report: RefreshReport) -> ExitCode:
    """Return 0 if all data arrived, 7 if only credentials were missing, 5 if other data is missing or held back."""
    if report.only_credentials:
        return ExitCode.CREDENTIALS
    if report.complete and all(book.stored is not None for book in report.books):
        return ExitCode.OK
    return ExitCode.PARTIAL


@contextmanager
def _show_progress() -> Iterator[Callable[[FetchProgress], None]]:
    """Show one progress bar per cloud on a terminal, elsewhere one line per finished cloud."""
    with console.bars() as bars:

        def show(progress: FetchProgress) -> None:
            failed = f", {progress.failed} failed" if progress.failed else ""
            bars.advance(progress.cloud, progress.done + progress.failed, progress.total, failed)

        yield show


def list_accelerators(
    missing: Annotated[bool, typer.Option("--missing", help="Only those of which something is not known.")] = False,
    output: TableOutput = "table",
) -> None:
    """List peak rates, memory and links of accelerators, and what is missing.

    Rates are dense TFLOP/s; `-` is unknown, or a precision without hardware. `weak` marks figures that no second
    source confirmed.

    \b
    stepfare prices accelerators
    stepfare prices accelerators --missing
    stepfare prices accelerators -o json
    """
    rates = read_peak_rates()
    sold = {model.name for model in embedded_book().accelerators}
    rows = [row for row in rates.values() if not missing or row.unknown_precisions]
    absent = sorted(sold - set(rates))
    console.print_table(output, "accelerators", _RATES, rows, _RATES.text(()), absent=absent)
    if absent and output == "table":
        console.note(f"sold, but without a row: {', '.join(absent)}")


def _rate(precision: str) -> TableColumn[PeakRates]:
    return TableColumn("", lambda row: row.peak(precision), precision.upper(), "{:g}".format, right=True, unknown="-")


_FIELDS: tuple[TableColumn[PeakRates], ...] = field_columns(
    PeakRates, lambda row: row, tflops=lambda row: dict(row.tflops)
)
_RATES: RecordTable[PeakRates] = RecordTable(
    (
        TableColumn("", lambda row: row.accelerator, "ACCELERATOR"),
        *map(_rate, PRECISIONS),
        TableColumn("", lambda row: row.memory_gib, "GIB", "{:g}".format, right=True),
        TableColumn("", lambda row: row.memory_bandwidth_gb_per_s, "GB/S", "{:g}".format, right=True),
        TableColumn("", lambda row: row.link_gb_per_s, "LINK", "{:g}".format, right=True),
        TableColumn("", lambda row: row.link_domain, "OF", "{:g}".format, right=True),
        TableColumn(
            "", lambda row: ", ".join((*row.unknown_precisions, *(() if row.checked else ("weak",)))), "MISSING"
        ),
        *_FIELDS,
        TableColumn("missing", lambda row: row.unknown_precisions),
    )
)
