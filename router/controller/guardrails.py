"""May these orders still be carried out? Prices of now against the plan's ceilings, its age, and money limits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pricing.book import PriceBook
from pricing.money import Usd, UsdPerHour
from pricing.offers import is_stale
from pricing.places import MADE_UP_CLOUDS
from router.controller.orders import Order
from router.jobs.limits import Limits
from router.planning.listings import Listing, listings_by_accelerator
from router.planning.plan import Line, Plan


class Cause(StrEnum):
    """Why an order is refused."""

    EXPIRED = "expired"
    PRICE = "price above ceiling"
    GONE = "no longer for sale"
    BOOK = "prices older than the plan's"
    COST = "over the cost allowed"
    APPROVAL = "needs approval"
    BUDGET = "over budget"
    POLICY = "another policy"


@dataclass(frozen=True, slots=True)
class Guard:
    """Money limits for one command; None is no limit. Over ``approve_above`` somebody has to stand in
    ``approved_by``."""

    max_cost: Usd | None = None
    approve_above: Usd | None = None
    approved_by: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason; ``job`` "" is about all orders together."""

    cause: Cause
    job: str
    what: str
    remedy: str = ""

    @property
    def is_age(self) -> bool:
        """Whether it is about the plan's age alone."""
        return self.cause is Cause.EXPIRED


@dataclass(frozen=True, slots=True)
class PriceNow:
    """A line's price today, dollars an hour of all its machines; None when it is not sold any more. ``unsure`` says
    that the book could not be refreshed there."""

    line: Line
    usd_per_hour: UsdPerHour | None
    unsure: bool


def prices_now(orders: Iterable[Order], book: PriceBook, limits: Limits) -> tuple[PriceNow, ...]:
    """What each line costs in ``book`` with the discounts and reservations of ``limits``: the cheapest zone where the
    line leaves the zone open. InvalidInputError as for a plan."""
    listed: dict[tuple[str, str, str, str], list[Listing]] = {}
    for listings in listings_by_accelerator(book, limits).values():
        for listing in listings:
            offer = listing.offer
            listed.setdefault((offer.cloud, offer.region, offer.instance_type, offer.market.value), []).append(listing)
    return tuple(_price_now(line, listed) for order in orders for line in order.lines)


def _price_now(line: Line, listed: dict[tuple[str, str, str, str], list[Listing]]) -> PriceNow:
    place = (line.cloud, line.region, line.instance_type, line.market)
    fitting = [
        listing.offer
        for listing in listed.get(place, ())
        if line.zone is None or listing.offer.zone in (None, line.zone)
    ]
    if not fitting:
        return PriceNow(line, None, unsure=False)
    cheapest = min(fitting, key=lambda offer: (offer.usd_per_hour, offer.key))
    return PriceNow(line, cheapest.usd_per_hour.times(line.machines), is_stale(cheapest))


def refusals(
    plan: Plan, prices: Sequence[PriceNow], guard: Guard, now: datetime, *, at_risk: Usd, book: PriceBook
) -> tuple[Refusal, ...]:
    """Everything that speaks against carrying orders out now that put ``at_risk`` at stake; empty when nothing does.
    ``book`` is where ``prices`` are from."""
    return (*_age(plan, now), *_older(plan, book), *_prices(prices, book), *_money(at_risk, guard))


def _age(plan: Plan, now: datetime) -> Iterator[Refusal]:
    if now > plan.expires_at:
        what = f"the plan was good until {plan.expires_at:%Y-%m-%d %H:%MZ}"
        yield Refusal(Cause.EXPIRED, "", what, "plan again on today's prices")


def _older(plan: Plan, book: PriceBook) -> Iterator[Refusal]:
    if book.as_of < plan.book_as_of:
        here, planned = (f"{moment:%Y-%m-%d %H:%MZ}" for moment in (book.as_of, plan.book_as_of))
        what = f"the price book is of {here}, the plan was made with one of {planned}"
        yield Refusal(Cause.BOOK, "", what, "check with the book it was made with, or a newer one (--book)")


def _prices(prices: Sequence[PriceNow], book: PriceBook) -> Iterator[Refusal]:
    known = {region.id.cloud for region in book.regions}
    for price in prices:
        line = price.line
        place = "/".join(filter(None, (line.cloud, line.region, line.zone, line.instance_type, line.market)))
        if price.usd_per_hour is None:
            elsewhere = line.cloud in MADE_UP_CLOUDS - known
            remedy = f"prices of {line.cloud}, a made-up cloud, are in --book sandbox" if elsewhere else "plan again"
            yield Refusal(Cause.GONE, line.job, f"{place} is no longer in the price book", remedy)
        elif price.usd_per_hour > line.max_usd_per_hour:
            what = (
                f"{place} costs ${price.usd_per_hour} an hour now, above the plan's ceiling of ${line.max_usd_per_hour}"
            )
            yield Refusal(Cause.PRICE, line.job, what, "plan again")


def _money(at_risk: Usd, guard: Guard) -> Iterator[Refusal]:
    if guard.max_cost is not None and at_risk > guard.max_cost:
        yield Refusal(
            Cause.COST,
            "",
            f"up to {_cents(at_risk)} is at risk, {_cents(guard.max_cost)} is allowed",
            "raise --max-cost",
        )
    if guard.approve_above is not None and at_risk > guard.approve_above and not guard.approved_by:
        what = f"up to {_cents(at_risk)} is at risk, and above {_cents(guard.approve_above)} somebody must approve"
        yield Refusal(Cause.APPROVAL, "", what, "name them with --approved-by")


def _cents(amount: Usd) -> str:
    return f"${amount.dollars():,.2f}"
