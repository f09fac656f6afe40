"""How quickly prices are read: `stepfare offers` on a large book, and what a refresh parses, beside other readers.

    python -m tests.bench.prices [--rows 150000] [--history-rows 50000]

Ratios are between figures of one run. Payloads are made up in the real forms (see the modules that make them).
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pricing.book_file import embedded_book
from router.prices.bookstore import BookStore

ROWS = 150_000
HISTORY_ROWS = 50_000
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
STEPFARE = str(Path(sys.executable).with_name("stepfare"))


def main(arguments: Sequence[str] = ()) -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="How quickly prices are read.")
    parser.add_argument("--rows", type=int, default=ROWS, help="offers of the stored book")
    parser.add_argument("--history-rows", type=int, default=HISTORY_ROWS, help="of the spot price history")
    asked = parser.parse_args(arguments)
    for line in (*offers_figures(asked.rows), *catalogue_figures(), *spot_history_figures(asked.history_rows)):
        print(line, flush=True)


def offers_figures(rows: int) -> Iterator[str]:
    """The whole command on a stored book of so many offers, after one run that warms the file cache."""
    with tempfile.TemporaryDirectory(prefix="stepfare-bench-") as home:
        _store_large_book(Path(home), rows)
        environment = {**os.environ, "STEPFARE_HOME": home}
        yield f"\nOFFERS ON {rows:,} ROWS (whole command, warm file cache, median of 5, slowest)"
        for name, more in (
            ("stepfare offers", ()),
            ("  --accelerator H100", ("--accelerator", "H100")),
            ("  -o csv, every row", ("-o", "csv")),
        ):
            command = [STEPFARE, "offers", "--now", NOW.isoformat(), *more]
            took = [_seconds(command, environment) for _ in range(6)][1:]
            yield f"  {name:22}{statistics.median(took):8.2f} s {max(took):10.2f} s"


def _store_large_book(home: Path, rows: int) -> None:
    """The embedded offers over and over, in made-up zones."""
    book = embedded_book()
    copies = -(-rows // len(book.offers))
    offers = [replace(offer, zone=f"{offer.region}-z{n}") for n in range(copies) for offer in book.offers][:rows]
    store = BookStore(home / "books")
    with store.lock():
        store.commit(book.with_offers(offers))


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - begin


def catalogue_figures() -> Iterator[str]:
    """One catalogue CSV, read by gpuhunt's loader and by ours: to its rows, and on to judged offers."""
    from gpuhunt._internal import storage

    from pricing.places import Market
    from providers.neoclouds.parse.catalogue import NamingRule, read_catalogue
    from providers.neoclouds.parse.fetch_result import CatalogueTerms, build_fetch_result
    from tests.support.neocloud_rows import catalogue_items
    from tests.support.neocloud_service import csv_of

    text = csv_of(list(catalogue_items("nebius", 40, 1500)))
    rows = text.count("\n") - 1
    day = NOW.date()
    terms = CatalogueTerms("nebius", "gpuhunt catalogue", day, day, markets=frozenset(Market))

    def ours() -> object:
        return read_catalogue(io.StringIO(text, newline=""), lambda _: NamingRule())[""]

    theirs = _rate(rows, lambda: list(storage.load(io.StringIO(text), provider="nebius")))
    to_rows = _rate(rows, ours)
    to_offers = _rate(
        rows,
        lambda: build_fetch_result(
            read_catalogue(io.StringIO(text, newline=""), lambda _: NamingRule())[""], embedded_book(), terms
        ),
    )
    yield f"\nCATALOGUE OF {rows:,} ROWS (gpuhunt's CSV, rows a second, best of 3)"
    yield f"  gpuhunt's loader      {theirs:10,.0f}"
    yield f"  ours, to its rows     {to_rows:10,.0f}   {to_rows / theirs:5.2f} times gpuhunt"
    yield f"  ours, to offers       {to_offers:10,.0f}   {to_offers / theirs:5.2f} times gpuhunt"


def spot_history_figures(rows: int) -> Iterator[str]:
    """EC2's spot price history: pages of 1,000 rows as XML, by botocore's own parser and by the adapter's."""
    import botocore.session

    from providers.aws.client import _read_price_page
    from providers.aws.parse.spot import read_history
    from tests.support.aws_service_pages import price_page
    from tests.support.aws_service_world import World, first_regions

    world = World(first_regions(1), (), NOW, rows, 30.0)
    region = world.regions[0]
    history = world.history(region)
    pages = [price_page(history, start, 1000) for start in range(0, len(history), 1000)]
    session = botocore.session.Session()
    factory = session.get_component("response_parser_factory")
    shape = session.get_service_model("ec2").operation_model("DescribeSpotPriceHistory").output_shape
    plain = factory.create_parser("ec2")
    factory.set_parser_defaults(timestamp_parser=str)
    quick = factory.create_parser("ec2")
    kinds = frozenset(row[1] for row in history)

    def by_botocore() -> None:
        for body in pages:
            plain.parse({"status_code": 200, "headers": {}, "body": body}, shape)

    def by_ours() -> None:
        gathered: list[Any] = []
        for body in pages:
            response, more = {"status_code": 200, "headers": {}, "body": body}, dict[str, object]()
            _read_price_page(response_dict=response, customized_response_dict=more)
            gathered += {**quick.parse(response, shape), **more}["SpotPriceHistory"]
        read_history("aws", region, gathered, world.zones(region), kinds, NOW)

    theirs, ours = _rate(len(history), by_botocore), _rate(len(history), by_ours)
    yield f"\nSPOT PRICE HISTORY OF {len(history):,} ROWS (EC2's XML, rows a second, best of 3)"
    yield f"  botocore, to its rows {theirs:10,.0f}"
    yield f"  ours, to price points {ours:10,.0f}   {ours / theirs:5.2f} times botocore"


def _rate(rows: int, work: Callable[[], object]) -> float:
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return rows / min(took)


if __name__ == "__main__":
    main(sys.argv[1:])
