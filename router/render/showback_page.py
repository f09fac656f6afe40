"""Draw the page of a month for finance: the answer, why, who, what was wasted, and all sections of the report below.

It is one file that opens offline and prints. ``<data value="...">`` around an amount has its cents, and in the raw
fields all its digits. The page's Content-Security-Policy allows nothing but its own style, by hash.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from urllib.parse import quote, unquote, urlencode

from markupsafe import Markup

from router.render.drawing import element, in_widths
from router.render.month_answer import change_sentence, month_sentence, month_tiles, running_words
from router.render.month_charts_svg import BRIDGES, CHARTS, draw_days, draw_months, draw_waterfall
from router.render.pages import PageFrame, fill_template
from router.render.showback_text import select_columns, total_rows
from router.render.showback_view import MonthPage, Record, month_page_of
from router.showback.facts import UNALLOCATED
from router.showback.labels import label_name
from router.showback.report.values import (
    CellValue,
    ReportColumn,
    ReportSection,
    ShowbackReport,
    exact_text,
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
