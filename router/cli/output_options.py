"""Declare the output formats that commands share, and the option that chooses one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

OUTPUT: Final = typer.Option("--output", "-o", help="Format.")


class TableFormat(StrEnum):
    """A table for people, or JSON."""

    TABLE = "table"
    JSON = "json"


class TextFormat(StrEnum):
    """Text for people, or JSON."""

    TEXT = "text"
    JSON = "json"


class ListFormat(StrEnum):
    """A table for people, JSON, or CSV."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class WideListFormat(StrEnum):
    """A table for people, narrow or with all columns, JSON, or CSV."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    CSV = "csv"


OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to this file.")]
OutInsteadOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write to this file instead of standard output.")
]
NewFileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="New file to write, compressed.")]
TableOutput = Annotated[TableFormat, OUTPUT]
TextOutput = Annotated[TextFormat, OUTPUT]
ListOutput = Annotated[ListFormat, OUTPUT]
WideListOutput = Annotated[WideListFormat, OUTPUT]
