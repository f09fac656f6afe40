"""Reports of a month as files, with the bytes that the command line writes."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request
from fastapi.responses import Response

from router.app.queries.spend import SpendQuestion
from router.console.answers import CSV, JSON, CachedAnswer
from router.console.site import ConsoleSite
from router.console.spend_questions import CostAnswer, kept_month
from router.showback.report.values import ShowbackReport

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def _csv(report: ShowbackReport, _: CostAnswer) -> str:
    from router.showback.report.export_tables import report_to_csv

    return report_to_csv(report)


def _json(report: ShowbackReport, _: CostAnswer) -> str:
    from router.showback.report.export_json import report_to_json

    return report_to_json(report)


def _xlsx(report: ShowbackReport, kept: CostAnswer) -> bytes:
    from router.render.spend_page import page_of_month
    from router.showback.report.export_tables import report_to_workbook

    return report_to_workbook(report, page_of_month(kept.value.report).made_at)


FILES: dict[str, tuple[str, Callable[[ShowbackReport, CostAnswer], str | bytes]]] = {
    "csv": (CSV, _csv),
    "json": (JSON, _json),
    "xlsx": (XLSX, _xlsx),
}


async def answer_file(
    site: ConsoleSite,
    request: Request,
    question: SpendQuestion,
    ending: str,
    choose: Callable[[ShowbackReport], ShowbackReport],
    name: str,
) -> Response:
    """Answer with a report as a file, with the bytes that the command writes for the same query."""
    kept = await kept_month(site, question)
    media_type, write = FILES[ending]
    answer = await site.answers.get(
        ("file", name, question, kept.version, ending),
        lambda: CachedAnswer.of(write(choose(kept.value.report), kept), media_type),
    )
    response = answer.response(request)
    if ending != "json":
        response.headers["Content-Disposition"] = f'attachment; filename="{name}-{question.month}.{ending}"'
    return response
