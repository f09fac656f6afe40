"""Command ``stepfare prices refresh``: fetch current offers of the clouds into a dated price book."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from providers.collector import FetchProgress
from router.cli import console
from router.cli.cloud_options import select_clouds
from router.cli.console import ExitCode
from router.cli.options import parse_duration_option, parse_now
from router.cli.output_options import TableFormat
from router.prices.bookstore import BookStore
from router.prices.data_folders import books_folder, history_folder
from router.prices.quality_gates import GateLimits
from router.prices.report import RefreshReport


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
    from router.prices.refresh import RefreshOptions
    from router.prices.refresh import refresh as run
    from router.render import refresh_text

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
