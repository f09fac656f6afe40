"""The written record of a smoke run: each check, what was expected, what was seen, how long it took, what it cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

LONGEST_SEEN = 600


class Verdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    FAILED = "FAILED"
    NOT_PLAYED = "not played"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the record. ``command`` is what was run, ``usd`` the cost of the run when the check was over."""

    step: str
    expected: str
    verdict: Verdict
    seen: str
    seconds: float
    usd: Decimal
    command: str = ""


@dataclass
class Protocol:
    """The record of one run, written anew after each check, so that a run that is killed leaves one too."""

    folder: Path
    cloud: str
    is_dry: bool
    budget: Decimal
    began: datetime
    tell: Callable[[str], None] = print
    conceal: Callable[[str], str] = str
    usd: Decimal = Decimal(0)
    checks: list[Check] = field(default_factory=list)
    ended: str = ""

    @property
    def is_fine(self) -> bool:
        """Return whether no check failed."""
        return all(check.verdict is not Verdict.FAILED for check in self.checks)

    def add(
        self, step: str, expected: str, verdict: Verdict, seen: str, seconds: float = 0.0, command: str = ""
    ) -> None:
        words = self.conceal(" ".join(seen.split()))[:LONGEST_SEEN]
        check = Check(step, expected, verdict, words, round(seconds, 1), self.usd, self.conceal(command))
        self.checks.append(check)
        self.tell(_line(check))
        self.write()

    def end(self, text: str) -> None:
        self.ended = text
        self.tell(text)
        self.write()

    def write(self) -> None:
        (self.folder / "protocol.json").write_text(json.dumps(self._document(), indent=1) + "\n", encoding="utf-8")
        (self.folder / "protocol.md").write_text(self._page(), encoding="utf-8")

    def _document(self) -> dict[str, object]:
        checks = [{**asdict(check), "usd": str(check.usd)} for check in self.checks]
        return {
            "cloud": self.cloud,
            "dry": self.is_dry,
            "began": self.began.isoformat(),
            "budget_usd": str(self.budget),
            "spent_usd": str(self.usd),
            "fine": self.is_fine,
            "ended": self.ended,
            "checks": checks,
        }

    def _page(self) -> str:
        kind = (
            "a dry run: services and machines of this computer, nothing was paid" if self.is_dry else "a real account"
        )
        rows = [
            f"| {number} | {check.step} | {_cell(check.expected)} | **{check.verdict}** | {_cell(check.seen)} "
            f"| {check.seconds:.0f} | {check.usd:.4f} |"
            for number, check in enumerate(self.checks, 1)
        ]
        commands = [f"{number}. `{check.command}`" for number, check in enumerate(self.checks, 1) if check.command]
        head = (
            f"Began {self.began.astimezone(UTC):%Y-%m-%d %H:%M} UTC; budget ${self.budget}; metered so far "
            f"${self.usd:.4f} (machines; disks, addresses and traffic are not in it)."
        )
        table = [
            "| | step | expected | | seen | s | $ so far |",
            "| --- | --- | --- | --- | --- | ---: | ---: |",
            *rows,
        ]
        parts = ((f"# Smoke run on {self.cloud}: {kind}",), (head,), table, ("Commands:",), commands)
        return "\n".join(line for part in (*parts, (self.ended or "The run has not ended.",)) for line in (*part, ""))


def _line(check: Check) -> str:
    return f"{check.verdict:10}  {check.step:16}  {check.seconds:5.0f} s  ${check.usd:.4f}  {check.seen[:72]}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
