"""Declare the options that commands with prices, limits and earlier runs share, each with one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli.completion import complete_books

BookOption = Annotated[
    str,
    typer.Option(
        metavar="BOOK", autocompletion=complete_books, help="latest, sandbox, embedded, or a .parquet or .csv file."
    ),
]
LimitsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Quotas, stock, reservations, discounts, budgets.")
]
QuotasOption = Annotated[
    str | None, typer.Option(metavar="latest|FILE|none", help="Quotas and stock as `quotas` and `stock` read them.")
]
LearnedOption = Annotated[
    str | None,
    typer.Option(
        metavar="latest|FILE|none", help="Speeds and interruptions of earlier runs. Default: latest, without --now."
    ),
]
AdvisoryOption = Annotated[bool, typer.Option("--advisory", help="Include clouds that cannot be ordered from here.")]
MaxAgeOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Leave out prices older than this, and undated ones.")
]
