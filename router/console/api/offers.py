"""The API of offers, with the filters of ``stepfare offers`` and its documents."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from pricing.places import Market
from pricing.problems import InvalidInputError
from router.app.queries.prices import find_book, list_offers, sources_of
from router.console.answers import CSV, JSON
from router.console.api.description import JSON_OR_CSV
from router.console.site import ConsoleSite
from router.jobs.quantities import parse_duration
from router.render import offers_text
from router.render.offers_text import OfferFilters, OfferSortKey

MAX_ROWS = 5000
Name = Annotated[str, Query(max_length=100)]
Names = Annotated[list[Annotated[str, Query(max_length=100)]], Query(max_length=50, description="Repeatable.")]


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the route ``/api/v1/offers``."""
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
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 100,
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
