"""Draw the page of a month for finance, and the pages below it: a level of team, project and job, waste, budgets.

The month's page has the answer, why, who, what was wasted, and all sections of the report below. It is one file that
opens offline and prints. ``<data value="...">`` around an amount has its cents, and in the raw fields all its digits.
The page's Content-Security-Policy allows nothing but its own style, by hash.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import quote, unquote, urlencode

from markupsafe import Markup

from router.ledger.budget import Budget, BudgetStatus
from router.ledger.month import Month
from router.render.drawing import element, in_widths
from router.render.month_answer import change_sentence, month_sentence, month_tiles, running_words
from router.render.month_charts_svg import BRIDGES, CHARTS, draw_days, draw_months, draw_waterfall
from router.render.pages import PageFrame, fill_template
from router.render.showback_text import select_columns, total_rows
from router.render.showback_view import MonthPage, Record, month_page_of, owner_name
from router.showback.apportion import sum_known
from router.showback.facts import UNALLOCATED
from router.showback.labels import label_name
from router.showback.report.lines import LevelRow, SpendLevel
from router.showback.report.values import (
    CellValue,
    ReportColumn,
    ReportSection,
    ShowbackReport,
    exact_text,
    replace_unprintable,
    short_text,
)

_LEAST_MONTHS = 3
# Columns of a table that fit a screen and a sheet; with more, each row is lines of labelled values.
_MOST_COLUMNS = 8
_OWN_GROUPING = "By team"
# What a row of a plan has in place of a job's name where it ordered several.
_SEVERAL_JOBS = re.compile(r"\d+ jobs")
# Rows of a table of raw fields that a page of the console shows.
_MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class RawCell:
    """A cell of a section as it stands in the report: short words, and for a number all digits."""

    label: str
    words: str
    exact: str | None
    right: bool
    url: str | None = None


@dataclass(frozen=True, slots=True)
class RawTable:
    """A section of the report with the columns, rows and sums of it that the page shows."""

    section: ReportSection
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[RawCell, ...], ...]
    sums: tuple[tuple[RawCell, ...], ...]

    @property
    def is_wide(self) -> bool:
        return len(self.columns) > _MOST_COLUMNS

    @property
    def more(self) -> int:
        return len(self.section.rows) - len(self.rows)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes below it; those of the head are warnings, which stand at the top of the page."""
        return () if self.section.name == "head" else self.section.notes


def page(
    report: ShowbackReport,
    frame: PageFrame | None = None,
    links: SpendLinks | None = None,
    choices: MonthChoices | None = None,
) -> str:
    """Return the page as HTML; the same report gives the same bytes.

    In the console ``links`` lead from names to their costs, ``choices`` are other months and views, and tables of raw
    fields stop at some rows: files have all of them.
    """
    month = month_page_of(report)
    shown = [section for section in report.sections if section.rows or section.notes]
    asked = report.section("groups")
    front = {"groups", "shared"} if asked.title != _OWN_GROUPING or report.section("shared").rows else set()
    if report.section("forecast").rows:
        front.add("forecast")
    tables = [_raw_table(section, links) for section in shown]
    text = fill_template(
        "month.html",
        frame=frame,
        title=report.title,
        page=month,
        sentence=() if month is None else month_sentence(month),
        change=() if month is None else change_sentence(month),
        tiles=() if month is None else month_tiles(month),
        running_words=running_words,
        head=report.head,
        made_at=report.made_at,
        warnings=report.section("head").notes,
        front=[table for table in tables if table.section.name in front],
        raw=[table for table in tables if table.section.name not in front],
        bridges={} if month is None else _bridges(month),
        charts={} if month is None else _charts(month),
        budget_track=lambda used: Markup(_budget_track(used)),
        team_bar=lambda row, scale: Markup(_team_bar(row, scale)),
        waste_bar=lambda part, whole: Markup(waste_bar(part, whole)),
        links=links,
        choices=choices,
        link=lambda team, job: owner_link(links, team, job),
    )
    return text if frame is not None else _add_content_policy(text)


def owner_link(links: SpendLinks | None, team: str | None, job: str | None) -> str | None:
    """Return the URL of the costs of a team, or of a job in it; None where there is neither, or no console."""
    names = {kind: name for kind, name in (("team", team), ("job", job)) if name is not None}
    return links.level(**names) if links is not None and names else None


def _bridges(month: MonthPage) -> dict[str, Markup]:
    return {
        each.currency: in_widths(partial(draw_waterfall, each.steps, each.currency), BRIDGES)
        for each in month.figures
        if each.steps
    }


def _charts(month: MonthPage) -> dict[str, list[Markup]]:
    charts: dict[str, list[Markup]] = {}
    for each in month.figures:
        drawn = charts.setdefault(each.currency, [])
        if each.days or each.coming:
            draw = partial(draw_days, each.days, each.coming, month.month, each.budget, each.currency)
            drawn.append(in_widths(draw, CHARTS))
        if len(each.months) >= _LEAST_MONTHS:
            drawn.append(in_widths(partial(draw_months, each.months, each.currency), CHARTS))
    return charts


def _budget_track(used: Decimal) -> str:
    """Return a track of the whole budget with what is spent; beyond it the track ends and the bar goes on."""
    scale = 1 / max(float(used), 1.0)
    parts = [element("rect", width=f"{scale:.2%}", height=8, y=1, rx=2, cls="trk")]
    parts.append(element("rect", width=f"{max(float(used), 0.0) * scale:.2%}", height=8, y=1, rx=2, cls="full inv"))
    if used > 1:
        parts.append(element("line", x1=f"{scale:.2%}", x2=f"{scale:.2%}", y1=-1, y2=11, cls="hl"))
        parts.append(element("line", x1=f"{scale:.2%}", x2=f"{scale:.2%}", y1=-1, y2=11, cls="mk"))
    return element("svg", "".join(parts), width="100%", height=10, aria_hidden="true")


def _team_bar(row: Record, scale: Decimal) -> str:
    """Return what a team spent in ink with its waste hatched at the end, and ticks of last month and budget."""

    def at(amount: Decimal) -> float:
        return max(float(amount / scale), 0.0) * 0.98

    def tick(amount: Decimal, cls: str) -> str:
        return element("line", x1=f"{at(amount):.2%}", x2=f"{at(amount):.2%}", y1=-1, y2=17, cls=cls)

    spent = at(row["cost"] or Decimal(0))
    parts = [element("rect", y=2, height=12, width=f"{spent:.2%}", cls="full inv")]
    if row["waste"]:
        waste = min(at(row["waste"]), spent)
        place = {"x": f"{spent - waste:.2%}", "width": f"{waste:.2%}"}
        parts += [element("rect", y=2, height=12, cls=cls, **place) for cls in ("gap", "wh")]
    for amount, cls in ((row["last_month"], "mk tk"), (row["budget"], "dash tk")):
        if amount is not None:
            parts += [tick(amount, "hl"), tick(amount, cls)]
    return element("svg", "".join(parts), width="100%", height=16, aria_hidden="true")


def waste_bar(part: Decimal | None, whole: Decimal) -> str:
    """Return the bar of a waste, against the largest."""
    width = 0.0 if part is None or whole <= 0 else max(float(part / whole), 0.0) * 0.99
    bar = element("rect", y=1, height=12, width=f"{width:.2%}", cls="wh")
    return element("svg", bar, width="100%", height=14, aria_hidden="true")


def _raw_table(section: ReportSection, links: SpendLinks | None) -> RawTable:
    columns = select_columns(section) if section.rows else ()
    places = [section.columns.index(column) for column in columns]

    names = [column.name for column in section.columns]
    rows = section.rows if links is None else section.rows[:_MOST_ROWS]

    def cells(row: Sequence[CellValue], *, is_sum: bool) -> tuple[RawCell, ...]:
        picked = [row[place] for place in places]
        words = {} if is_sum else dict(zip(names, row, strict=True))
        if section.name == "jobs":  # A row has all of the job, whose team is not always that of all its rows.
            words.pop("team", None)
        elif section.name == "plans" and _SEVERAL_JOBS.fullmatch(str(words.get("job"))):
            words.pop("job")
        return tuple(
            _raw_cell(
                cell,
                column,
                is_sum=is_sum,
                url=None if links is None else links.of_row(words, column.name),
            )
            for cell, column in zip(picked, columns, strict=True)
        )

    return RawTable(
        section=section,
        columns=columns,
        rows=tuple(cells(row, is_sum=False) for row in rows),
        sums=tuple(cells(row, is_sum=True) for row in total_rows(section)),
    )


def _raw_cell(cell: CellValue, column: ReportColumn, *, is_sum: bool, url: str | None) -> RawCell:
    words = "" if is_sum and cell is None else short_text(cell, column.kind)
    exact = exact_text(cell) if column.is_number and cell is not None else None
    return RawCell(column.title or "value", words, exact, column.is_number, url)


def _add_content_policy(text: str) -> str:
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256((style[1] if style else "").encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    meta = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return text.replace('<meta charset="utf-8">', meta, 1)


KINDS = ("team", "project", "job")


def path_segment(name: str) -> str:
    """Return a name as one segment of a path.

    It is escaped twice, because servers undo one escape before they split the path: a slash in a name stays one, and
    "." and ".." are no directions.
    """
    once = name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")
    return quote(once, safe="")


def name_of_segment(segment: str) -> str:
    """Return the name of a segment whose first escape is undone: the inverse of :func:`path_segment`."""
    return unquote(segment)


@dataclass(frozen=True, slots=True)
class SpendLinks:
    """The URLs of a month's pages; ``view`` is what a reader chose that is not the default, such as the basis."""

    month: str
    view: tuple[tuple[str, str], ...] = ()

    def page(self, **changes: str) -> str:
        """Return the URL of the month's page, with other choices."""
        month = changes.pop("month", self.month)
        return f"/spend/{month}{self._query({**dict(self.view), **changes})}"

    def file(self, ending: str) -> str:
        """Return the URL of the report as a file with that ending."""
        return f"/spend/{self.month}.{ending}{self._query(dict(self.view))}"

    def level(self, **names: str | None) -> str:
        """Return the URL of the costs of a label, team, project or job; an empty name is what nobody is named for."""
        kinds = [*(kind for kind in names if label_name(kind) is not None), *(kind for kind in KINDS if kind in names)]
        path = "".join(f"/{path_segment(kind)}/{path_segment(names[kind] or UNALLOCATED)}" for kind in kinds)
        basis = {name: value for name, value in self.view if name == "basis"}
        return f"/spend/{self.month}{path}{self._query(basis)}"

    @staticmethod
    def segment(name: str) -> str:
        """Return a name as one segment of a path."""
        return path_segment(name)

    def of_row(self, row: Mapping[str, object], kind: str) -> str | None:
        """Return the URL of the label, team, project or job in a row of the report, as exact as the row says it."""
        if not isinstance(row.get(kind), str):
            return None
        if label_name(kind) is not None:
            return self.level(**{kind: str(row[kind])})
        if kind not in KINDS:
            return None
        names = {name: str(row[name]) for name in KINDS[: KINDS.index(kind) + 1] if isinstance(row.get(name), str)}
        return self.level(**names)

    @staticmethod
    def _query(values: Mapping[str, str]) -> str:
        given = {name: value for name, value in values.items() if value}
        return f"?{urlencode(given)}" if given else ""


@dataclass(frozen=True, slots=True)
class MonthChoices:
    """The choices on the page of a month: each a list of values, and the one that is shown."""

    months: tuple[str, ...]
    month: str
    by: str
    basis: str
    share_idle: str
    groups: tuple[str, ...]
    bases: tuple[str, ...]
    methods: tuple[str, ...]


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
