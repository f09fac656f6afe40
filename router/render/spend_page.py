"""Draw the pages below a month's costs: a level of team, project and job, waste and savings, budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from markupsafe import Markup

from router.ledger.budget import Budget, BudgetStatus
from router.ledger.month import Month
from router.render.drawing import element
from router.render.pages import PageFrame, fill_template
from router.render.showback_page import SpendLinks, owner_link, waste_bar
from router.render.showback_view import month_page_of, owner_name
from router.showback.apportion import sum_known
from router.showback.facts import UNALLOCATED
from router.showback.labels import label_name
from router.showback.report.lines import LevelRow, SpendLevel
from router.showback.report.values import ShowbackReport, replace_unprintable

KIND_TITLES = {"team": "Team", "project": "Project", "job": "Job", "attempt": "Attempt", "what": "Item"}
_NO_NAMES = {"team": "nobody’s", "project": "no project", "job": "no job", "attempt": "no attempt"}
_MARKETS = {"spot": "Spot", "reserved": "Commitments and reservations", "on_demand": "On demand"}


@dataclass(frozen=True, slots=True)
class PageOfMonth:
    """The head that the pages of a month share: the month, when its figures were made, and on which cost."""

    month: Month
    made_at: datetime
    basis: str

    @property
    def is_over(self) -> bool:
        return self.made_at >= self.month.ends

    @property
    def has_begun(self) -> bool:
        """Return whether the month had begun when its figures were made."""
        return self.made_at >= self.month.begins


def word_name(kind: str, name: str) -> str:
    """Return a team, project, job, attempt or item as a page names it."""
    if name == UNALLOCATED:
        return "none" if label_name(kind) is not None else _NO_NAMES.get(kind, "unknown")
    return replace_unprintable(name)


def kind_title(kind: str) -> str:
    """Return a kind of word as a title names it; a label by its own name."""
    label = label_name(kind)
    return KIND_TITLES[kind] if label is None else replace_unprintable(f"Label {label}:")


def level_page(level: SpendLevel, of: PageOfMonth, links: SpendLinks, frame: PageFrame) -> str:
    """Return the page of a label's value, team, project or job of a month as HTML."""
    kind, name = level.path[-1]
    return fill_template(
        "spend_level.html",
        frame=frame,
        of=of,
        level=level,
        kind=kind,
        name=word_name(kind, name),
        crumbs=[
            (word_name(*step), links.level(**dict(level.path[: number + 1]))) for number, step in enumerate(level.path)
        ],
        above=word_name(*level.path[-2]) if len(level.path) > 1 else "the month",
        month_url=links.page(),
        links=links,
        title=kind_title,
        word=word_name,
        row_url=lambda row: _row_url(row, links),
    )


def _row_url(row: LevelRow, links: SpendLinks) -> str | None:
    if row.path is not None:
        return links.level(**dict(row.path))
    kind, name = row.words[-1]
    return f"/attempts/{links.segment(name)}" if kind == "attempt" and name != UNALLOCATED else None


def waste_page(report: ShowbackReport, links: SpendLinks, frame: PageFrame) -> str:
    """Return the page of what a month wasted, and what its ways of buying saved."""
    month = month_page_of(report)
    savings = [] if month is None else _savings(report, month.currency)
    return fill_template(
        "waste.html",
        frame=frame,
        page=month,
        of=page_of_month(report),
        savings=savings,
        sums={name: sum_known(row[name] for row in savings) for name in ("saved", "restart_on_demand", "saved_net")},
        notes=report.section("savings").notes[-1:] if savings else (),
        waste_bar=lambda part, whole: Markup(waste_bar(part, whole)),
        link=lambda team, job: owner_link(links, team, job),
        links=links,
    )


def page_of_month(report: ShowbackReport) -> PageOfMonth:
    """Return the head of the pages of a report's month."""
    return PageOfMonth(Month.parse(report.head["month"]), report.made_at, report.basis)


def _savings(report: ShowbackReport, currency: str) -> list[dict[str, Any]]:
    rows = report.section("savings").records(currency)
    return [{**row, "name": _MARKETS.get(str(row["market"]), "Way of buying unknown")} for row in rows]


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """A budget in the table: its use, whether who asks may change it, and where its costs are."""

    status: BudgetStatus
    may_set: bool
    url: str | None

    @property
    def name(self) -> str:
        return budget_owner(self.status.budget)

    @property
    def state(self) -> str:
        """Return what is to be said of its use, "" where it is fine."""
        if self.status.is_over:
            return "over"
        if self.status.will_be_over:
            return "will be over"
        return f"past {self.status.passed[-1]} %" if self.status.passed else ""


@dataclass(frozen=True, slots=True)
class BudgetForm:
    """The form that sets a budget: what was written in it, and what is wrong with that.

    ``scopes`` are what who asks may set a budget of; ``first_open`` is the month from which it would hold.
    """

    scopes: tuple[str, ...] = ()
    first_open: Month | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    status: int = 200


def budget_owner(budget: Budget) -> str:
    """Return whose a budget is, in words."""
    return "All" if budget.name == "" else f"{budget.scope.value.capitalize()} {replace_unprintable(budget.name)}"


def budgets_page(
    lines: Sequence[BudgetLine],
    removed: Sequence[tuple[Budget, Budget]],
    others: Mapping[str, Decimal],
    of: PageOfMonth,
    frame: PageFrame,
    form: BudgetForm,
) -> str:
    """Return the page of a month's budgets; ``removed`` are those that end with it, removal and budget."""
    return fill_template(
        "budgets.html",
        frame=frame,
        of=of,
        lines=lines,
        over=[owner_name(line.status.budget.name or "the month") for line in lines if line.status.is_over],
        soon=[owner_name(line.status.budget.name or "the month") for line in lines if line.status.will_be_over],
        others=sorted(others.items()),
        removed=removed,
        form=form,
        owner=budget_owner,
        titles={"scope": "Of", "name": "Name", "usd": "Dollars a month", "since": "From", "warn": "Warn at percents"},
        track=lambda line: Markup(_track(line.status)),
    )


def _track(status: BudgetStatus) -> str:
    """Return a track of the budget with what is spent, what runs, and a tick at the forecast."""
    budget = max(float(status.usd.nanos), 1.0)
    spent, used = status.spent.nanos / budget, status.used.nanos / budget
    forecast = used if status.forecast is None else status.forecast.nanos / budget
    scale = 0.99 / max(used, forecast, 1.0)

    def bar(begin: float, end: float, cls: str) -> str:
        width = max(end - begin, 0.0) * scale
        return element("rect", x=f"{max(begin, 0.0) * scale:.2%}", width=f"{width:.2%}", height=10, y=2, rx=2, cls=cls)

    parts = [bar(0, 1, "trk"), bar(0, spent, "full inv"), bar(spent, used, "full met")]
    at = f"{scale:.2%}"
    parts += [element("line", x1=at, x2=at, y1=-1, y2=15, cls=cls) for cls in ("hl", "mk")]
    if status.forecast is not None:
        at = f"{max(forecast, 0.0) * scale:.2%}"
        parts += [element("line", x1=at, x2=at, y1=-1, y2=15, cls=cls) for cls in ("hl", "dash tk")]
    return element("svg", "".join(parts), width="100%", height=14, aria_hidden="true")
