"""Command ``stepfare prices accelerators``: the rates that speed estimates rest on, and which are missing."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from pricing.book_file import embedded_book
from pricing.peak_rates import PRECISIONS, PeakRates, read_peak_rates
from router.cli import console
from router.render.tables import format_table

SCHEMA_VERSION = 1


class RatesFormat(StrEnum):
    """Output format of the list of rates."""

    TABLE = "table"
    JSON = "json"


def list_accelerators(
    missing: Annotated[bool, typer.Option("--missing", help="Only those of which something is not known.")] = False,
    output: Annotated[RatesFormat, typer.Option("--output", "-o", help="Format.")] = RatesFormat.TABLE,
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
    if output is RatesFormat.JSON:
        found = [{**asdict(r), "tflops": dict(r.tflops), "missing": list(r.unknown_precisions)} for r in rows]
        console.out(json.dumps({"schema_version": SCHEMA_VERSION, "accelerators": found, "absent": absent}, indent=2))
        return
    heads = ("ACCELERATOR", *(p.upper() for p in PRECISIONS), "GIB", "GB/S", "LINK", "OF", "MISSING")
    console.out(format_table(heads, [_cells(row) for row in rows], frozenset(heads[1:-1]), {}))
    if absent:
        console.note(f"sold, but without a row: {', '.join(absent)}")


def _cells(row: PeakRates) -> tuple[str, ...]:
    peaks = ("-" if peak is None else f"{peak:g}" for _, peak in row.tflops)
    weak = () if row.checked else ("weak",)
    lacks = ", ".join((*row.unknown_precisions, *weak))
    figures = (row.memory_gib, row.memory_bandwidth_gb_per_s, row.link_gb_per_s, row.link_domain)
    return (row.accelerator, *peaks, *(f"{figure:g}" for figure in figures), lacks)
