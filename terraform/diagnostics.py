"""What Terraform says is wrong, as it says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error or warning: ``severity`` (error, warning), what in a line, more about it, which resource ("" none)."""

    severity: str
    summary: str
    detail: str = ""
    address: str = ""

    @property
    def is_error(self) -> bool:
        return self.severity == "error"

    def __str__(self) -> str:
        where = f"{self.address}: " if self.address else ""
        more = f": {' '.join(self.detail.split())}" if self.detail else ""
        return f"{where}{self.summary}{more}"
