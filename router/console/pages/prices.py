"""The pages of prices: the book in use with clouds and regions, and the history of an accelerator."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from pricing.problems import InvalidInputError
from router.app.queries.prices import (
    book_version,
    history_books,
    list_regions,
    report_history,
    report_pool_risks,
    report_prices,
    sources_of,
)
from router.console.answers import HTML, CachedAnswer
from router.console.api.prices import LONGEST_TEXT, MOST_SERIES, history_request
from router.console.site import ConsoleSite
from router.render.offers_text import OfferFilters
from router.render.prices_page import USUAL_ACCELERATOR, HistoryFields, history_page, prices_page
from router.render.prices_view import HistoryReport

# A history is read again after this long even where nothing says that it changed.
HISTORY_SECONDS = 60
_USUAL_LENGTH = "30d"
Text = Annotated[str, Query(max_length=LONGEST_TEXT)]


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the pages."""
    router = APIRouter(include_in_schema=False)

    @router.get("/prices")
    async def prices(request: Request, accelerator: Text = USUAL_ACCELERATOR, book: Text = "latest") -> Response:
        sources, now = sources_of(site.asked_by(request)), site.context.clock()
        sources.require()
        version = await site.recent.get(("book", id(site), book), lambda: book_version(sources, book))
        asked = urlencode({"accelerator": accelerator, "book": book})
        links = (
            ("CSV of offers", f"/api/v1/prices/latest?{asked}&format=csv"),
            ("JSON of offers", f"/api/v1/prices/latest?{asked}"),
            ("CSV of interruptions", f"/api/v1/prices/risk?{asked}&format=csv"),
            ("JSON of interruptions", f"/api/v1/prices/risk?{asked}"),
            ("CSV of books", "/api/v1/prices/books?format=csv"),
            ("JSON of books and clouds", f"/api/v1/prices/books?{urlencode({'book': book})}"),
        )
        frame = site.frame(request, "/prices", data_links=links)

        def draw() -> str:
            report = report_prices(sources, now, book)
            regions = list_regions(sources, accelerator, now, book)
            risks = report_pool_risks(sources, OfferFilters(accelerators=(accelerator,)), now.date(), book)
            return prices_page(report, regions, risks, accelerator, frame)

        hour = int(now.timestamp()) // 3600
        key = ("prices", version, hour, accelerator, book, frame)
        return await site.answers.respond(request, key, draw)

    @router.get("/prices/history")
    async def history(
        request: Request,
        accelerator: Text = USUAL_ACCELERATOR,
        region: Text = "",
        market: Text = "",
        since: Text = _USUAL_LENGTH,
    ) -> Response:
        sources, now = sources_of(site.asked_by(request)), site.context.clock()
        sources.require()
        moment = int(now.timestamp()) // HISTORY_SECONDS
        until = now - timedelta(seconds=now.timestamp() % HISTORY_SECONDS)
        length, problems = since or _USUAL_LENGTH, dict[str, tuple[str, ...]]()
        try:
            wanted = history_request(accelerator, region, market, length, until, MOST_SERIES)
        except InvalidInputError as error:
            problems = _sentences_on("since", error)
            length = _USUAL_LENGTH
            wanted = history_request(accelerator, region, market, length, until, MOST_SERIES)
        written = since or length
        asked = {"accelerator": accelerator, "region": region, "market": market, "since": length}
        url = f"/api/v1/prices/history?{urlencode({name: value for name, value in asked.items() if value})}"
        frame = site.frame(request, "/prices", data_links=(("CSV", f"{url}&format=csv"), ("JSON", url)))

        def make() -> CachedAnswer:
            wrong = dict(problems)
            try:
                report = report_history(sources, wanted, lambda: history_books(sources))
            except InvalidInputError as error:
                wrong |= _sentences_on("accelerator", error)
                report = HistoryReport(wanted.since, wanted.until, (), 0, None, None, None)
            fields = HistoryFields(accelerator, region, market, length, written, wrong)
            return CachedAnswer.of(history_page(report, fields, frame), HTML, 400 if wrong else 200)

        return (await site.answers.get(("history", moment, tuple(asked.values()), written, frame), make)).response(
            request
        )

    return router


def _sentences_on(field: str, error: InvalidInputError) -> dict[str, tuple[str, ...]]:
    """Return what is wrong with a field of the form. Raises the error where it is about anything else."""
    if any(problem.field != field for problem in error.problems):
        raise error
    return {field: tuple(problem.sentence for problem in error.problems)}
