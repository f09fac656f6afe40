"""Errors of making and releasing machines with Terraform.

After any of them the state is whole, unless ``StateLostError`` says otherwise at the next call. No message carries a
secret.
"""

from __future__ import annotations

from collections.abc import Sequence
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


_SHOWN = 3


class TerraformError(Exception):
    """Terraform could not do what was asked; ``remedy`` says what to do, "" if nothing is known."""

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class EngineMissingError(TerraformError):
    """No Terraform engine can be found, or the one found does not run."""


class EngineTooOldError(TerraformError):
    """The engine that was found is older than the oldest one that works."""


class RunDirectoryError(TerraformError):
    """The run directory cannot be made, read or written."""


class StateLostError(TerraformError):
    """The state file is empty or cut off, as a killed engine leaves it.

    Applying now would create everything again: what it listed must be found by tag (sweep).
    """


class OrphansLeftError(TerraformError):
    """Processes of this machine that a run directory knows of could not be ended."""


class RunError(TerraformError):
    """A command of the engine failed.

    ``diagnostics`` are those of Terraform, with secrets masked; they may be empty.
    """

    def __init__(self, what: str, diagnostics: Sequence[Diagnostic] = (), *, remedy: str = "") -> None:
        super().__init__(what, remedy=remedy)
        self.diagnostics = tuple(diagnostics)

    def __str__(self) -> str:
        errors = [str(diagnostic) for diagnostic in self.diagnostics if diagnostic.is_error]
        more = [f"and {len(errors) - _SHOWN} more"] if len(errors) > _SHOWN else []
        return "; ".join([self.what, *errors[:_SHOWN], *more])


class InitFailedError(RunError):
    """The directory could not be prepared: a provider could not be obtained, or a backend not reached."""


class PreviewFailedError(RunError):
    """The preview failed: nothing was changed, and what would be changed is not known either."""


class ApplyFailedError(RunError):
    """Apply failed: some resources may exist now, and the state knows them. Destroy, or apply again."""


class DestroyFailedError(RunError):
    """Destroy failed: some resources still exist, and the state knows them. Destroy again."""


class ReadFailedError(RunError):
    """The state or its outputs could not be read."""


class StateLockedError(RunError):
    """Another run holds the state; nothing was done.

    The diagnostics say who holds it and since when.
    """


class TimedOutError(RunError):
    """The time limit was reached and the engine stopped; ``killed`` when it did not stop by itself."""

    def __init__(
        self, what: str, diagnostics: Sequence[Diagnostic] = (), *, killed: bool = False, remedy: str = ""
    ) -> None:
        super().__init__(what, diagnostics, remedy=remedy)
        self.killed = killed


class StoppedError(RunError):
    """The engine was stopped by a signal, or because the caller asked for it."""
