"""Commands ``stepfare prices list`` and ``prices use``: list the stored price books and choose the latest one."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from router.cli import console
from router.prices.books import LATEST, SANDBOX
from router.prices.bookstore import BookStore
from router.prices.data_folders import books_folder
from router.render.tables import format_count, format_table

SCHEMA_VERSION = 1


class BookListFormat(StrEnum):
    """Output format of the list of price books."""

    TABLE = "table"
    JSON = "json"


def list_books(
    output: Annotated[BookListFormat, typer.Option("--output", "-o", help="Format.")] = BookListFormat.TABLE,
) -> None:
    """List the stored price books, newest first; `*` marks the one that commands use.

    Books of the sandbox, a simulated cloud, are used only as `--book sandbox`.

    \b
    stepfare prices list
    stepfare prices list -o json
    """
    store = BookStore(books_folder())
    sandbox_store = store.sandbox
    latest = {LATEST: store.latest(), SANDBOX: sandbox_store.latest()}
    named_books = [(LATEST, book) for book in store.all()] + [(SANDBOX, book) for book in sandbox_store.all()]
    stored = sorted(named_books, key=lambda named: named[1].file, reverse=True)
    if output is BookListFormat.JSON:
        books = [{**asdict(book), "latest": book == latest[name], "name": name} for name, book in stored]
        console.out(
            json.dumps({"schema_version": SCHEMA_VERSION, "folder": str(store.folder), "books": books}, indent=2)
        )
        return
    if not stored:
        console.note(
            "no price book is stored yet: `stepfare prices refresh` fetches one; commands use the embedded one"
        )
        return
    rows: list[tuple[str, ...]] = [
        (
            "*" if book == latest[name] else "",
            name if name == SANDBOX else "",
            book.as_of.replace("+00:00", "Z"),
            book.digest[:12],
            str(book.offers),
        )
        for name, book in stored
    ]
    header: tuple[str, ...] = ("", "OF", "AS OF", "DIGEST", "OFFERS")
    if not any(name == SANDBOX for name, _ in stored):
        rows, header = [(row[0], *row[2:]) for row in rows], (header[0], *header[2:])
    console.out(format_table(header, rows, frozenset({"OFFERS"}), {}, console.screen()))
    console.note(f"in {store.folder}")


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
