"""The pages of a month's costs: the report, the levels below it, waste and savings; and their files."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from router.app.queries.spend import SpendQuestion
from router.console.answers import CSV, HTML, JSON, CachedAnswer
from router.console.error_answers import answer_error
from router.console.site import ConsoleSite
from router.console.spend_questions import (
    BASES,
    FILES,
    METHODS,
    SpendView,
    answer_file,
    kept_month,
    known_months,
    read_month,
    read_question,
)
from router.files.csv_text import records_csv
from router.render.showback_page import (
    KINDS,
    MonthChoices,
    level_page,
    name_of_segment,
    page,
    page_of_month,
    waste_page,
)
from router.showback.labels import label_name, label_word
from router.showback.report.lines import LevelPath, SpendLevel, find_level, label_names
from router.showback.report.query import GROUPS
from router.showback.report.values import ShowbackReport, exact_text

# Groupings that people ask for, before each word by itself.
_TOGETHER = ("team,project", "team,project,job", "team,cloud", "cloud,region")
_LEVEL_WORDS = ("team", "project", "job", "attempt", "what")
_WASTE_SECTIONS = ("head", "waste", "savings")


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the pages."""
    router = APIRouter(include_in_schema=False)

    @router.get("/spend")
    async def newest(
        request: Request, month: str = "", by: str = "", basis: str = "", share_idle: str = ""
    ) -> Response:
        return await _month(site, request, month, SpendView(by, basis, share_idle))

    @router.get("/spend/{month}")
    async def of_month(request: Request, month: str, by: str = "", basis: str = "", share_idle: str = "") -> Response:
        view, (name, dot, ending) = SpendView(by, basis, share_idle), month.partition(".")
        if not dot:
            return await _month(site, request, name, view)
        if ending not in FILES:
            return answer_error(request, 404, "no such file", f"there are {', '.join(FILES)}")
        question = await read_question(site, request, str(read_month(name)), view)
        return await answer_file(site, request, question, ending)

    @router.get("/spend/{month}/{path:path}")
    async def level(
        request: Request, month: str, path: str, basis: str = "", ending: Annotated[str, Query(alias="format")] = ""
    ) -> Response:
        view = SpendView(basis=basis)
        question = await read_question(site, request, str(read_month(month)), view)
        return await _level(site, request, question, path, view, ending)

    @router.get("/waste")
    async def waste(request: Request, month: str = "", basis: str = "") -> Response:
        return await _waste(site, request, month, SpendView(basis=basis))

    @router.get("/waste.{ending}")
    async def waste_file(request: Request, ending: str, month: str = "", basis: str = "") -> Response:
        if ending not in FILES:
            return answer_error(request, 404, "no such file", f"there are {', '.join(FILES)}")
        question = await read_question(site, request, month, SpendView(basis=basis))
        return await answer_file(site, request, question, ending, "waste", _only_waste)

    return router


async def _month(site: ConsoleSite, request: Request, month: str, view: SpendView) -> Response:
    question = await read_question(site, request, month, view)
    kept, months = await kept_month(site, question), await known_months(site, question.teams)
    links = view.links(question.month)
    choices = _choices(question, tuple(map(str, months)), label_names(kept.value.lines))
    frame = site.frame(
        request,
        "/spend",
        data_links=tuple((ending.upper(), links.file(ending)) for ending in ("csv", "json", "xlsx")),
    )

    key = ("spend", question, kept.version, frame, choices)
    return await site.answers.respond(request, key, lambda: page(kept.value.report, frame, links, choices))


def _choices(question: SpendQuestion, months: tuple[str, ...], labels: tuple[str, ...]) -> MonthChoices:
    month, by = str(question.month), ",".join(question.by)
    groups = [*_TOGETHER, *GROUPS, *map(label_word, labels)]
    return MonthChoices(
        months=months if month in months else (month, *months),
        month=month,
        by=by,
        basis=question.basis.value,
        share_idle=question.share.value,
        groups=tuple(groups if by in groups else [by, *groups]),
        bases=BASES,
        methods=METHODS,
    )


async def _level(
    site: ConsoleSite, request: Request, question: SpendQuestion, path: str, view: SpendView, ending: str
) -> Response:
    steps, kept = _read_path(path), await kept_month(site, question)
    links = view.links(question.month)
    if steps is None or ending not in ("", "csv", "json"):
        remedy = "write /spend/2026-11/team/NAME/project/NAME/job/NAME, or some of these; label:NAME/VALUE before them"
        return answer_error(request, 404, "no such page of costs", remedy)

    def make() -> CachedAnswer:
        try:
            found = find_level(kept.value.lines, steps)
        except ValueError:
            found = None
        if found is None:
            return CachedAnswer.of("", HTML, 404)
        if ending:
            return CachedAnswer.of(*((_level_csv(found), CSV) if ending == "csv" else (_level_json(found), JSON)))
        return CachedAnswer.of(level_page(found, page_of_month(kept.value.report), links, frame), HTML)

    url = links.level(**dict(steps))
    join = "&" if "?" in url else "?"
    frame = site.frame(
        request, "/spend", data_links=(("CSV", f"{url}{join}format=csv"), ("JSON", f"{url}{join}format=json"))
    )
    answer = await site.answers.get(("level", question, kept.version, steps, ending, frame), make)
    if answer.status == 404:
        return answer_error(request, 404, f"nothing of it has costs in {question.month}", "see /spend")
    return answer.response(request)


def _read_path(path: str) -> LevelPath | None:
    words = path.split("/")
    if len(words) % 2 or len(words) > 2 * (len(KINDS) + 1):
        return None
    names = [name_of_segment(word) for word in words]
    return tuple(zip(names[::2], names[1::2], strict=True))


def _level_records(level: SpendLevel) -> list[dict[str, str]]:
    return [
        {
            **{kind: name for kind, name in level.path if label_name(kind) is not None},
            **{kind: dict((*level.path, *row.words)).get(kind, "") for kind in _LEVEL_WORDS},
            "currency": table.currency,
            **{name: exact_text(amount) for name, amount in asdict(row.sums).items()},
            "share": exact_text(row.share),
            "first_start": exact_text(row.first),
        }
        for table in level.parts
        for row in table.rows
    ]


def _level_csv(level: SpendLevel) -> str:
    records = _level_records(level)
    return records_csv(list(records[0]), records)


def _level_json(level: SpendLevel) -> str:
    content = {
        "schema_version": 1,
        "path": dict(level.path),
        "totals": {currency: None if amount is None else exact_text(amount) for currency, amount in level.totals},
        "rows": [{name: value or None for name, value in row.items()} for row in _level_records(level)],
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


async def _waste(site: ConsoleSite, request: Request, month: str, view: SpendView) -> Response:
    question = await read_question(site, request, month, view)
    kept, links = await kept_month(site, question), view.links(question.month)
    asked = f"month={question.month}" + (f"&basis={view.basis}" if view.basis else "")
    frame = site.frame(
        request,
        "/waste",
        data_links=tuple((ending.upper(), f"/waste.{ending}?{asked}") for ending in ("csv", "json", "xlsx")),
    )

    key = ("waste", question, kept.version, frame)
    return await site.answers.respond(request, key, lambda: waste_page(kept.value.report, links, frame))


def _only_waste(report: ShowbackReport) -> ShowbackReport:
    return ShowbackReport(report.title, tuple(report.section(name) for name in _WASTE_SECTIONS))
