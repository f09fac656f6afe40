"""Declare the options of plans and quotes, each once, and read what they name and what the state adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.completion import complete_books
from router.cli.options import option_error, parse_duration_option, parse_length_option
from router.cli.site_options import (
    ask_state,
    open_state_if_any,
    read_own_settings,
    translate_errors,
    warn_if_unreadable,
)
from router.planning.document.plan_terms import BOOK, GAP, HORIZON, MAX_GAP, MAX_HORIZON, SLOT, SOLVER, TIME_LIMIT
from router.prices.data_folders import bills_folder, extract_folder
from router.render.tables import format_usd

if TYPE_CHECKING:
    from pricing.book import PriceBook
    from router.app.learned import RunReader
    from router.app.plan import PlanOptions, PreparedPlan
    from router.controller.plans import BudgetConstraints
    from router.jobs.experience import Experience, RunRecords
    from router.jobs.limits import Limits
    from router.planning.document.inputs import LimitSource
    from router.state.data_copies import DataCopy
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


def run_reader(learned: str | None, moment: datetime, *, present: bool) -> RunReader:
    """Return how to read the earlier runs that ``--learned`` names: latest, none or a file.

    Without the option they are those of the state, but only for a plan of the ``present``: one for another moment is
    to be repeatable. If the state cannot be read, nothing is known; this is reported.
    """
    from router.app.learned import read_no_runs, runs_from_file

    if learned == "none" or (learned is None and not present):
        return read_no_runs
    if learned not in (None, "latest"):
        return lambda _: runs_from_file(Path(str(learned)).expanduser())

    def read(book: PriceBook) -> RunRecords:
        from router.controller.history.run_records import read_runs

        with warn_if_unreadable("what earlier runs measured is not known"):
            with translate_errors():
                has_state = read_own_settings().has_state
            if has_state:
                with open_state_if_any() as store:
                    return read_runs(store, book, moment)
        return read_no_runs(book)

    return read


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
            raise option_error("--horizon", f"is from one slot up to {MAX_HORIZON.days} days")
        return options


def parse_slot(text: str) -> timedelta:
    """Return ``--slot`` as a value."""
    return parse_length_option("--slot", text, SLOT.least)


def parse_time_limit(text: str) -> timedelta:
    """Return ``--time-limit`` of a plan as a value."""
    return parse_length_option("--time-limit", text, TIME_LIMIT.least)


@dataclass(frozen=True, slots=True)
class PresentState:
    """The shortages, budgets and copies of data that the state knows now; none for a plan of another moment."""

    moment: datetime
    is_present: bool
    shortages: tuple[Shortage, ...]
    budgets: BudgetConstraints
    copies: tuple[DataCopy, ...] = ()

    def add_to(self, limits: Limits) -> Limits:
        """Return the limits with budgets, spending and recent use; those of now do not apply to another moment."""
        budgeted = self.budgets.limits(limits)
        if not self.is_present or budgeted.fair_share is None:
            return budgeted
        from router.app.budgets import recent_use

        unknown = "what teams used lately is not known"
        return ask_state(lambda store: recent_use(store, budgeted, self.moment), budgeted, unknown)


def load_present_state(moment: datetime, *, is_present: bool) -> PresentState:
    """Return what the state adds to the limits of a plan of this moment.

    A missing state is not created. If the state cannot be read, nothing is known; this is reported.
    """
    from router.controller.plans import BudgetConstraints

    nothing = PresentState(moment, is_present, (), BudgetConstraints())
    if not is_present:
        return nothing
    # The books of a month take half a second to import.
    from router.app.budgets import BooksFolders, budget_constraints

    folders = BooksFolders(extract_folder(), bills_folder())
    return ask_state(
        lambda store: replace(
            nothing,
            shortages=store.shortages.of_places(moment),
            budgets=budget_constraints(store, moment, folders),
            copies=store.data_copies.usable(moment),
        ),
        nothing,
        "what ran short lately, what budgets are left, and where data were copied, is not known",
    )


def report_plan_inputs(prepared: PreparedPlan, state: PresentState) -> None:
    """Print where budgets, readings and earlier runs of a plan are from, and which budgets are of no job."""
    for each in prepared.budgets if state.is_present else ():
        whose = "hard budget (`stepfare budget`)" if each.hard else "budget (limits file)"
        spent = "by the ledger and bills" if each.counted else "by the limits file"
        team, of_it = each.team, f"{format_usd(each.team.spent)} of the {whose} of {format_usd(each.team.budget)}"
        console.note(f"team {team.team}: {of_it} for {state.moment:%Y-%m} is spent, {spent}")
    report_read_quotas(prepared.request.limit_sources, prepared.doubts, state.moment)
    report_experience(prepared.request.experience)
    for problem in prepared.idle:
        console.warn(problem)


def report_experience(experience: Experience | None) -> None:
    """Print what a plan or quote learned of earlier runs."""
    from router.app.learned import describe_experience

    for words in describe_experience(experience):
        console.note(words)


def report_read_quotas(sources: Sequence[LimitSource], doubts: Sequence[str], moment: datetime) -> None:
    """Print where limits were read, how old they are and what binds; then warnings about the readings."""
    from router.app.plan import describe_sources

    for words in describe_sources(sources, moment):
        console.note(words)
    for doubt in doubts:
        console.note(doubt, "warning")
