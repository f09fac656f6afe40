"""Command ``stepfare prices accelerators``: the rates that speed estimates rest on, and which are missing."""

from __future__ import annotations

from typing import Annotated

import typer

from pricing.book_file import embedded_book
from pricing.peak_rates import PRECISIONS, PeakRates, read_peak_rates
from router.cli import console
from router.cli.output_options import TableOutput
from router.render.record_table import RecordTable, TableColumn, field_columns


def list_accelerators(
    missing: Annotated[bool, typer.Option("--missing", help="Only those of which something is not known.")] = False,
    output: TableOutput = "table",
) -> None:
    """List peak rates, memory and links of accelerators, and what is missing.

    Rates are dense TFLOP/s; `-` is unknown, or a precision without hardware. `weak` marks figures that no second
    source confirmed.

    \b
    stepfare prices accelerators
    stepfare prices accelerators --missing
    stepfare prices accelerators -o json
    """
    rates = read_peak_rates()
    sold = {model.name for model in embedded_book().accelerators}
    rows = [row for row in rates.values() if not missing or row.unknown_precisions]
    absent = sorted(sold - set(rates))
    console.print_table(output, "accelerators", _RATES, rows, _RATES.text(()), absent=absent)
    if absent and output == "table":
        console.note(f"sold, but without a row: {', '.join(absent)}")


def _rate(precision: str) -> TableColumn[PeakRates]:
    return TableColumn("", lambda row: row.peak(precision), precision.upper(), "{:g}".format, right=True, unknown="-")


def _lacks(row: PeakRates) -> str:
    return ", ".join((*row.unknown_precisions, *(() if row.checked else ("weak",))))


_FIELDS: tuple[TableColumn[PeakRates], ...] = field_columns(
    PeakRates, lambda row: row, tflops=lambda row: dict(row.tflops)
)
_RATES: RecordTable[PeakRates] = RecordTable(
    (
        TableColumn("", lambda row: row.accelerator, "ACCELERATOR"),
        *map(_rate, PRECISIONS),
        TableColumn("", lambda row: row.memory_gib, "GIB", "{:g}".format, right=True),
        TableColumn("", lambda row: row.memory_bandwidth_gb_per_s, "GB/S", "{:g}".format, right=True),
        TableColumn("", lambda row: row.link_gb_per_s, "LINK", "{:g}".format, right=True),
        TableColumn("", lambda row: row.link_domain, "OF", "{:g}".format, right=True),
        TableColumn("", _lacks, "MISSING"),
        *_FIELDS,
        TableColumn("missing", lambda row: row.unknown_precisions),
    )
)
