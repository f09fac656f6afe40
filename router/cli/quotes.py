"""Commands ``stepfare quotes list`` and ``show``: the stored quotes."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from router.cli import console


class QuoteListFormat(StrEnum):
    """Output format of the list of quotes."""

    TABLE = "table"
    JSON = "json"


class StoredQuoteFormat(StrEnum):
    """Output format of one quote."""

    TEXT = "text"
    LINE = "line"
    JSON = "json"


def list_quotes(
    job: Annotated[str | None, typer.Option(metavar="NAME", help="Only quotes of this job.")] = None,
    output: Annotated[QuoteListFormat, typer.Option("--output", "-o", help="Format.")] = QuoteListFormat.TABLE,
) -> None:
    """List the stored quotes, the oldest first, and whether they were accepted.

    \b
    stepfare quotes list
    stepfare quotes list --job llama-7b -o json
    """
    from dataclasses import asdict

    from router.config.quote_files import stored_quotes
    from router.prices.data_folders import quotes_folder
    from router.quotes.quote_json import quote_content
    from router.render.quote_text import format_cost, format_on_time
    from router.render.tables import format_table

    quotes = [each for each in stored_quotes(quotes_folder()) if job is None or each[1].job == job]
    if output is QuoteListFormat.JSON:
        rows = [{**quote_content(q), "accepted": asdict(a) if a is not None else None} for _, q, a in quotes]
        console.out(json.dumps({"quotes": rows}, indent=2, sort_keys=True))
        return
    if not quotes:
        console.note("no quotes are stored" if job is None else f"no quote of {job} is stored")
        return
    header = ("QUOTE", "ASKED", "JOB", "BY", "EXPECTED", "ON TIME", "ACCEPTED")
    rows_ = [
        (
            name.removeprefix("quote-"),
            f"{q.asked_at:%m-%d %H:%M}",
            q.job,
            f"{q.deadline:%m-%d %H:%M}",
            format_cost(q.usd.mean),
            format_on_time(q),
            "" if a is None else f"${a.ceiling_usd}",
        )
        for name, q, a in quotes
    ]
    right = frozenset({"EXPECTED", "ON TIME", "ACCEPTED"})
    console.out(format_table(header, rows_, right, {"JOB": 18}, console.screen()))


def show(
    name: Annotated[str, typer.Argument(metavar="QUOTE", help="Id of the quote, or its first digits.")],
    output: Annotated[StoredQuoteFormat, typer.Option("--output", "-o", help="Format.")] = StoredQuoteFormat.TEXT,
) -> None:
    """Print a stored quote again.

    \b
    stepfare quotes show quote-1a2b3c4d5e6f
    stepfare quotes show 1a2b -o line
    """
    from router.config.quote_files import find_quote, read_acceptance
    from router.prices.data_folders import quotes_folder
    from router.quotes.quote_json import quote_to_json
    from router.render.quote_text import line, text

    folder = quotes_folder()
    identity, quote = find_quote(folder, name)
    if output is StoredQuoteFormat.JSON:
        console.out(quote_to_json(quote))
        return
    if output is StoredQuoteFormat.LINE:
        console.out(line(quote, identity))
        return
    console.out(text(quote, identity, console.screen()))
    accepted = read_acceptance(folder, identity)
    if accepted is not None:
        console.out(
            f"accepted {accepted.at} by {accepted.who}, ceiling ${accepted.ceiling_usd}, plan {accepted.plan[:12]}"
        )
