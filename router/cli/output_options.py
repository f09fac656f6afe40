"""Declare the output formats that commands share, and the option that chooses one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

OUTPUT: Final = typer.Option("--output", "-o", help="Format.")


TableFormat = Literal["table", "json"]


TextFormat = Literal["text", "json"]


ListFormat = Literal["table", "json", "csv"]


WideListFormat = Literal["table", "wide", "json", "csv"]


OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to this file.")]
OutInsteadOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write to this file instead of standard output.")
]
NewFileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="New file to write, compressed.")]
TableOutput = Annotated[TableFormat, OUTPUT]
TextOutput = Annotated[TextFormat, OUTPUT]
ListOutput = Annotated[ListFormat, OUTPUT]
WideListOutput = Annotated[WideListFormat, OUTPUT]
