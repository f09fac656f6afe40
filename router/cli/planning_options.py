"""Declare the options of plans and quotes, each once, and read what they name and what the state adds to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.completion import complete_books
from router.cli.options import parse_duration_option, parse_length_option
from router.cli.site_options import (
    fill_recent_use,
    load_shortages_and_budgets,
    report_budget_sources,
    report_experience,
    report_read_quotas,
    run_reader,
)
from router.planning.document.plan_terms import BOOK, GAP, HORIZON, MAX_GAP, MAX_HORIZON, SLOT, SOLVER, TIME_LIMIT

if TYPE_CHECKING:
    from router.app.budgets import BudgetConstraints
    from router.app.learned import RunReader
    from router.app.plan import PlanOptions, PreparedPlan
    from router.jobs.limits import Limits
    from router.state.records import Shortage

BookOption = Annotated[
    str,
    typer.Option(
        metavar="BOOK", autocompletion=complete_books, help="latest, sandbox, embedded, or a .parquet or .csv file."
    ),
]
LimitsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Quotas, stock, reservations, discounts, budgets.")
]
QuotasOption = Annotated[
    str | None, typer.Option(metavar="latest|FILE|none", help="Quotas and stock as `quotas` and `stock` read them.")
]
LearnedOption = Annotated[
    str | None,
    typer.Option(
        metavar="latest|FILE|none", help="Speeds and interruptions of earlier runs. Default: latest, without --now."
    ),
]
AdvisoryOption = Annotated[bool, typer.Option("--advisory", help="Include clouds that cannot be ordered from here.")]
MaxAgeOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Leave out prices older than this, and undated ones.")
]
PlanFileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A plan (JSON).")]


@dataclass(frozen=True, slots=True)
class InputOptions:
    """Options of what a plan or a quote is made of: prices, limits, earlier runs, and the moment."""

    book: BookOption = BOOK
    limits: LimitsOption = None
    quotas: QuotasOption = None
    learned: LearnedOption = None
    advisory: AdvisoryOption = False
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Plan from this moment (ISO, with zone).")] = None

    @property
    def is_present(self) -> bool:
        """Return whether the moment is the present: what the state says of now applies to no other."""
        return self.now is None

    def runs(self, moment: datetime) -> RunReader:
        """Return how to read the earlier runs to learn from."""
        return run_reader(self.learned, moment, present=self.is_present)


@dataclass(frozen=True, slots=True)
class PlanningOptions(InputOptions):
    """Options of what a plan is made of, and of how it is made."""

    horizon: Annotated[str, typer.Option(metavar="DURATION", help="Length of the orders; an outlook beyond.")] = (
        HORIZON.text
    )
    slot: Annotated[str, typer.Option(metavar="DURATION", help="Interval between possible starts of gangs.")] = (
        SLOT.text
    )
    gap: Annotated[
        float,
        typer.Option(metavar="SHARE", min=0, max=MAX_GAP, help="Stop when the plan is this near to the bound."),
    ] = GAP
    time_limit: Annotated[str, typer.Option(metavar="DURATION", help="Time limit of planning.")] = TIME_LIMIT.text
    max_age: MaxAgeOption = None
    solver: Annotated[str, typer.Option(metavar="NAME", help="Any installed PuLP solver.")] = SOLVER

    def read(self, moment: datetime) -> PlanOptions:
        """Return the options as values. Raises InvalidInputError for what is no duration or out of bounds."""
        from router.app.plan import PlanOptions

        options = PlanOptions(
            horizon=parse_length_option("--horizon", self.horizon, HORIZON.least),
            slot=parse_slot(self.slot),
            gap=self.gap,
            time_limit=parse_time_limit(self.time_limit),
            solver=self.solver,
            advisory=self.advisory,
            max_age=parse_duration_option("--max-age", self.max_age),
            quotas=self.quotas,
            runs=self.runs(moment),
        )
        if options.slot > options.horizon or options.horizon > MAX_HORIZON:
            raise InvalidInputError.single("is from one slot up to 14 days", field="--horizon")
        return options


def parse_slot(text: str) -> timedelta:
    """Return ``--slot`` as a value."""
    return parse_length_option("--slot", text, SLOT.least)


def parse_time_limit(text: str) -> timedelta:
    """Return ``--time-limit`` of a plan as a value."""
    return parse_length_option("--time-limit", text, TIME_LIMIT.least)


@dataclass(frozen=True, slots=True)
class PresentState:
    """The shortages and budgets that the state knows now; none for a plan of another moment."""

    moment: datetime
    is_present: bool
    shortages: tuple[Shortage, ...]
    budgets: BudgetConstraints

    def add_to(self, limits: Limits) -> Limits:
        """Return the limits with budgets, spending and recent use; those of now do not apply to another moment."""
        known = self.budgets.limits(limits)
        return fill_recent_use(known, self.moment) if self.is_present else known


def load_present_state(moment: datetime, *, is_present: bool) -> PresentState:
    """Return what the state adds to the limits of a plan of this moment."""
    from router.app.budgets import BudgetConstraints

    shortages, budgets = load_shortages_and_budgets(moment) if is_present else ((), BudgetConstraints())
    return PresentState(moment, is_present, shortages, budgets)


def report_plan_inputs(prepared: PreparedPlan, state: PresentState) -> None:
    """Print where budgets, readings and earlier runs of a plan are from, and which budgets are of no job."""
    report_budget_sources(prepared.budgets if state.is_present else (), state.moment)
    report_read_quotas(prepared.request.limit_sources, prepared.doubts, state.moment)
    report_experience(prepared.request.experience)
    for each in prepared.idle:
        console.warn(each)
