"""Diagnostics: errors and warnings as Terraform reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error or warning of Terraform.

    ``severity`` is error or warning, ``summary`` one line, ``detail`` more about it, ``address`` the resource ("" for
    none).
    """

    severity: str
    summary: str
    detail: str = ""
    address: str = ""

    @property
    def is_error(self) -> bool:
        """Return whether the diagnostic is an error, not a warning."""
        return self.severity == "error"

    def __str__(self) -> str:
        where = f"{self.address}: " if self.address else ""
        more = f": {' '.join(self.detail.split())}" if self.detail else ""
        return f"{where}{self.summary}{more}"
