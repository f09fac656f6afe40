"""Declare the output formats that commands share, and the option that chooses one."""

from __future__ import annotations

from enum import StrEnum
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


TableOutput = Annotated[TableFormat, OUTPUT]
TextOutput = Annotated[TextFormat, OUTPUT]
ListOutput = Annotated[ListFormat, OUTPUT]
WideListOutput = Annotated[WideListFormat, OUTPUT]
