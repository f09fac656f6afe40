"""Read the peak rates, memory and links of accelerators from ``tables/peak_rates.csv``.

The table holds what a speed estimate needs, whether or not a price book sells the accelerator. A blank is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pricing.table_rows import parse_rows, read_table

PRECISIONS = ("fp32", "tf32", "bf16", "fp8", "fp4")
# Precisions that a family has no hardware for: their blanks are no holes in the table.
_NO_HARDWARE = {
    "volta": {"tf32", "fp8", "fp4"},
    "ampere": {"fp8", "fp4"},
    "hopper": {"fp4"},
    "tpu": {"fp32", "tf32", "fp8", "fp4"},
    "card": {"tf32", "fp8", "fp4"},
    "cdna": {"tf32", "fp4"},
    "other": {"fp8", "fp4"},
}


@dataclass(frozen=True, slots=True)
class PeakRates:
    """The dense TFLOP/s of one accelerator by precision, its memory and its links within a machine.

    ``link_gb_per_s`` is one way; ``link_domain`` is how many accelerators such links join.
    """

    accelerator: str
    family: str
    memory_gib: float
    memory_bandwidth_gb_per_s: float
    tflops: tuple[tuple[str, float | None], ...]
    link_gb_per_s: float
    link_domain: int
    source: str
    checked: bool
    as_of: str

    def peak(self, precision: str) -> float | None:
        """Return the dense TFLOP/s at a precision; fp16 is bf16's. None is unknown, or without hardware."""
        return dict(self.tflops)["bf16" if precision == "fp16" else precision]

    @property
    def unknown_precisions(self) -> tuple[str, ...]:
        """Return the precisions without a figure that the hardware of this family may have."""
        none = _NO_HARDWARE.get(self.family, set())
        return tuple(p for p, rate in self.tflops if rate is None and p not in none)


@cache
def read_peak_rates() -> dict[str, PeakRates]:
    """Return the rows of the table by the name of the accelerator."""
    return {rates.accelerator: rates for rates in parse_rows(PeakRates, read_table("peak_rates"), tflops=_tflops)}


def _tflops(row: Mapping[str, str]) -> tuple[tuple[str, float | None], ...]:
    cells = {precision: row[f"{precision}_tflops"] for precision in PRECISIONS}
    return tuple((precision, float(cell) if cell else None) for precision, cell in cells.items())
