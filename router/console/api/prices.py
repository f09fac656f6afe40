"""The API of prices: stored books and clouds, offers of a book, history; documents as the command line writes them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from pricing.places import Market
from pricing.problems import InvalidInputError
from router.app.queries.prices import (
    LONGEST_HISTORY,
    HistoryRequest,
    find_book,
    find_offers,
    history_books,
    list_books,
    list_clouds,
    list_offers,
    read_history,
    report_pool_risks,
    sources_of,
)
from router.console.answers import CSV, JSON, CachedAnswer
from router.console.api.description import JSON_OR_CSV, Form
from router.console.site import ConsoleSite
from router.jobs.quantities import parse_duration
from router.prices.history import Selection
from router.render import history_text, offers_text, pool_risk_text, prices_view
from router.render.offers_text import OfferFilters, OfferSortKey

T = TypeVar("T")
LONGEST_TEXT = 100
MOST_OFFERS, MOST_SERIES = 5000, 1000
Name = Annotated[str, Query(max_length=LONGEST_TEXT)]
Names = Annotated[list[Annotated[str, Query(max_length=LONGEST_TEXT)]], Query(max_length=50, description="Repeatable.")]
Book = Annotated[str, Query(max_length=LONGEST_TEXT, description="latest, sandbox, embedded, or a digest.")]


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes below ``/api/v1/prices``, and ``/api/v1/offers``."""
    router = APIRouter()
    router.include_router(_make_prices(site))
    router.include_router(_make_offers(site))
    return router


def _make_prices(site: ConsoleSite) -> APIRouter:
    router = APIRouter(prefix="/api/v1/prices", tags=["prices"])

    @router.get(
        "/books",
        summary="List stored price books, the book in use, and the health of each cloud",
        responses=JSON_OR_CSV,
    )
    def books(request: Request, book: Book = "latest", format: Form = "json") -> Response:  # noqa: A002
        sources = sources_of(site.asked_by(request))
        rows = list_books(sources)
        if format == "csv":
            return Response(prices_view.books_as_csv(rows), media_type=CSV)
        in_use = find_book(sources, book)
        return JSONResponse(prices_view.books_document(rows, in_use, list_clouds(sources, book)))

    @router.get(
        "/latest", summary="List offers of a price book, the cheapest accelerator-hour first", responses=JSON_OR_CSV
    )
    async def latest(
        request: Request,
        accelerator: Annotated[str | None, Query(max_length=LONGEST_TEXT)] = None,
        market: Market | None = None,
        cloud: Annotated[str | None, Query(max_length=LONGEST_TEXT)] = None,
        region: Annotated[str | None, Query(max_length=LONGEST_TEXT)] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_OFFERS)] = 500,
        book: Book = "latest",
        format: Form = "json",  # noqa: A002
    ) -> Response:
        sources, now = sources_of(site.asked_by(request)), site.context.clock()
        filters = OfferFilters(
            clouds=_one(cloud), regions=_one(region), accelerators=_one(accelerator), markets=_one(market)
        )
        sources.require()

        def make() -> CachedAnswer:
            found = find_offers(sources, now, filters, limit, book)
            if format == "csv":
                return CachedAnswer.of(offers_text.as_csv(found.rows), CSV)
            return CachedAnswer.of(offers_text.as_json(found.rows, find_book(sources, book), now), JSON)

        return (await site.recent.get(("offers by API", id(site), filters, limit, book, format), make)).response(
            request
        )

    @router.get(
        "/risk",
        summary="Return how often spot pools are interrupted and what that rests on, the calmest first",
        responses=JSON_OR_CSV,
    )
    async def risk(
        request: Request,
        accelerator: Annotated[str | None, Query(max_length=LONGEST_TEXT)] = None,
        cloud: Annotated[str | None, Query(max_length=LONGEST_TEXT)] = None,
        region: Annotated[str | None, Query(max_length=LONGEST_TEXT)] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_OFFERS)] = 500,
        book: Book = "latest",
        format: Form = "json",  # noqa: A002
    ) -> Response:
        sources, now = sources_of(site.asked_by(request)), site.context.clock()
        filters = OfferFilters(clouds=_one(cloud), regions=_one(region), accelerators=_one(accelerator))
        sources.require()

        def make() -> CachedAnswer:
            found = report_pool_risks(sources, filters, now.date(), book)[:limit]
            if format == "csv":
                return CachedAnswer.of(pool_risk_text.as_csv(found), CSV)
            return CachedAnswer.of(pool_risk_text.as_json(found, find_book(sources, book), now), JSON)

        return (await site.recent.get(("risk by API", id(site), filters, limit, book, format), make)).response(request)

    @router.get(
        "/history",
        summary="Return the history of prices and stock, a row per series, the cheapest first",
        responses=JSON_OR_CSV,
    )
    def history(
        request: Request,
        accelerator: Name = "",
        region: Name = "",
        market: Name = "",
        since: Annotated[str, Query(max_length=20, description="Length up to now, such as 30d or 12h.")] = "30d",
        limit: Annotated[int, Query(ge=1, le=MOST_SERIES)] = MOST_SERIES,
        format: Form = "json",  # noqa: A002
    ) -> Response:
        sources = sources_of(site.asked_by(request))
        sources.require()
        wanted = history_request(accelerator, region, market, since, site.context.clock(), limit)
        view = read_history(sources, wanted, lambda: history_books(sources), "").view
        if format == "csv":
            return Response(history_text.as_csv(view), media_type=CSV)
        return Response(history_text.as_json(view), media_type=JSON)

    return router


def _make_offers(site: ConsoleSite) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["offers"])

    @router.get("/offers", summary="List offers, cheapest first, as `stepfare offers -o json`", responses=JSON_OR_CSV)
    def offers(
        request: Request,
        cloud: Names = [],  # noqa: B006  a parameter of the URL, never changed
        region: Names = [],  # noqa: B006
        accelerator: Names = [],  # noqa: B006
        market: Annotated[list[Market], Query(max_length=5)] = [],  # noqa: B006
        instance_type: Names = [],  # noqa: B006
        provisionable: bool = False,
        max_age: Annotated[str | None, Query(max_length=20, description="Leave out prices older than this.")] = None,
        sort: OfferSortKey = OfferSortKey.ACCELERATOR_HOUR,
        limit: Annotated[int, Query(ge=1, le=MOST_OFFERS)] = 100,
        book: Annotated[Name, Query(description="latest, sandbox, embedded, or a digest.")] = "latest",
        format: Literal["json", "csv"] = "json",  # noqa: A002  the name of the parameter in the URL
    ) -> Response:
        now = site.context.clock()
        found = find_book(sources_of(site.asked_by(request)), book)
        filters = OfferFilters(
            clouds=tuple(cloud),
            regions=tuple(region),
            accelerators=tuple(accelerator),
            markets=tuple(market),
            instance_types=tuple(instance_type),
            provisionable=provisionable,
            max_age=None if max_age is None else _age(max_age),
        )
        selected = list_offers(found, filters, sort, now.date(), limit)
        if format == "csv":
            return Response(offers_text.as_csv(selected.rows), media_type=CSV)
        return Response(offers_text.as_json(selected.rows, found, now), media_type=JSON)

    return router


def _age(text: str) -> timedelta:
    try:
        age = parse_duration(text)
        if age < timedelta(days=40_000):
            return age
    except (ValueError, OverflowError):
        pass
    raise InvalidInputError.single("is no length", field="max_age", remedy="write e.g. 30d")


def history_request(
    accelerator: str, region: str, market: str, since: str, until: datetime, limit: int
) -> HistoryRequest:
    """Return what is asked of the history. InvalidInputError for a market, a length or text that cannot be."""
    for field, text in (("accelerator", accelerator), ("region", region), ("market", market), ("since", since)):
        if not text.isprintable():
            raise InvalidInputError.single("has characters that no name has", field=field, remedy="leave them out")
    try:
        markets = (Market(market),) if market else ()
    except ValueError:
        what = f"{market!r} is none of {', '.join(Market)}"
        raise InvalidInputError.single(what, field="market", remedy="leave it out for all") from None
    try:
        length = parse_duration(since)
    except (ValueError, OverflowError):
        what = f"{since!r} is no length of time"
        raise InvalidInputError.single(what, field="since", remedy="write 30d or 12h") from None
    if not length or length > LONGEST_HISTORY:
        raise InvalidInputError.single("is no length of up to 366 days", field="since", remedy="write 30d or 12h")
    which = Selection(regions=_one(region), markets=markets)
    return HistoryRequest(until - length, until, which, _one(accelerator), limit)


def _one(value: T | None) -> tuple[T, ...]:
    return (value,) if value else ()
