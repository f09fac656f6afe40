"""Declare the options by which commands choose among offers and machine types, each with one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from router.cli.completion import complete_accelerators

#: Rows that people see unless they ask for more; JSON and CSV have all.
DEFAULT_ROWS: Final = 30

CloudOption = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this cloud; repeatable.")]
CloudsFileOption = Annotated[Path | None, typer.Option(metavar="FILE", help="The clouds file.")]
RegionOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Only this region: us-east-1 or aws/us-east-1.")
]
AcceleratorOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", autocompletion=complete_accelerators, help="Only this accelerator, such as H100."),
]
MachineTypeOption = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this machine type.")]
LimitOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help=f"Rows to show; 0 is all. Default: {DEFAULT_ROWS}, all for json and csv."),
]


def count_rows(limit: int | None, *, machine_readable: bool) -> int:
    """Return how many rows to show; 0 is all. ``limit`` None is the default of the format."""
    if limit is not None:
        return limit
    return 0 if machine_readable else DEFAULT_ROWS
