"""Declare the options of commands that apply a plan, or check whether it may be applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli.completion import complete_books
from router.cli.options import parse_usd_option

if TYPE_CHECKING:
    from router.controller.accept.guardrails import CostLimits

CurrentBookOption = Annotated[
    str,
    typer.Option(
        metavar="BOOK",
        autocompletion=complete_books,
        help="Current prices: latest, sandbox, embedded, a digest or a file.",
    ),
]


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """Options of how much money may be at risk, and above which amount somebody must approve."""

    max_cost: Annotated[str | None, typer.Option(metavar="USD", help="Refuse if more than this is at risk.")] = None
    approve_above: Annotated[str | None, typer.Option(metavar="USD", help="Require an approver above this amount.")] = (
        None
    )
    approved_by: Annotated[str, typer.Option(metavar="WHO", help="Name of the approver.")] = ""

    def read(self) -> CostLimits:
        """Return the limits as values. Raises InvalidInputError for what is no amount."""
        from router.controller.accept.guardrails import CostLimits

        return CostLimits(
            parse_usd_option("--max-cost", self.max_cost),
            parse_usd_option("--approve-above", self.approve_above),
            self.approved_by.strip(),
        )


DEFAULT_GUARD = GuardOptions()
