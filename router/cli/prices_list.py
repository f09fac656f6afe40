"""``stepfare prices list`` and ``prices use``: the stored price books, and which of them is the latest."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from router.cli import console
from router.cli.text import columns
from router.prices.bookstore import BookStore
from router.prices.home import books_folder

SCHEMA_VERSION = 1


class ListFormat(StrEnum):
    """How the list is written."""

    TABLE = "table"
    JSON = "json"


def list_books(
    output: Annotated[ListFormat, typer.Option("--output", "-o", help="Format.")] = ListFormat.TABLE,
) -> None:
    """The stored price books, newest first; `*` is the one that commands use.

    \b
    stepfare prices list
    stepfare prices list -o json
    """
    store = BookStore(books_folder())
    stored, latest = store.all(), store.latest()
    if output is ListFormat.JSON:
        books = [{**asdict(book), "latest": book == latest} for book in stored]
        console.out(
            json.dumps({"schema_version": SCHEMA_VERSION, "folder": str(store.folder), "books": books}, indent=2)
        )
        return
    if not stored:
        console.note(
            "no price book is stored yet: `stepfare prices refresh` fetches one; commands use the embedded one"
        )
        return
    rows = [
        ("*" if book == latest else "", book.as_of.replace("+00:00", "Z"), book.digest[:12], str(book.offers))
        for book in stored
    ]
    console.out(columns(("", "AS OF", "DIGEST", "OFFERS"), rows, frozenset({"OFFERS"}), {}))
    console.note(f"in {store.folder}")


def use_book(
    digest: Annotated[str, typer.Argument(metavar="DIGEST", help="As `prices list` shows it; eight digits or more.")],
) -> None:
    """Make a stored price book the latest again: the way back after a refresh that you do not trust.

    \b
    stepfare prices list
    stepfare prices use 3f2a90c1d7e8
    """
    store = BookStore(books_folder())
    stored = store.find(digest, "DIGEST")
    store.load(stored)  # it must be whole
    with store.lock():
        store.point_to(stored)
    console.note(f"the latest price book is now {stored.digest[:12]} of {stored.as_of}, {stored.offers} offers")
