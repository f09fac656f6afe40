"""Check whether orders may still be applied: current prices, the plan's age, and money limits. Pure.

Current prices are compared with the plan's ceilings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pricing.book import PriceBook
from pricing.money import Usd, UsdPerHour
from pricing.offers import is_stale
from pricing.places import SIMULATED_CLOUDS
from router.controller.plans import Order
from router.jobs.limits import Limits
from router.planning.document.plan import Line, Plan
from router.planning.find.listings import OfferListing, listings_by_accelerator

_PLAN_AGAIN = "plan again"
_NAME_LIMITS = f"{_PLAN_AGAIN}, or name the plan's limits, which this state does not know, with --limits"


class RefusalReason(StrEnum):
    """Why an order is refused."""

    EXPIRED = "expired"
    PRICE = "price above ceiling"
    GONE = "no longer for sale"
    BOOK = "prices older than the plan's"
    COST = "over the cost allowed"
    APPROVAL = "needs approval"
    BUDGET = "over budget"
    POLICY = "another policy"
    PART = "part of a plan"


@dataclass(frozen=True, slots=True)
class CostLimits:
    """Money limits for one command; None is no limit. Above ``approve_above``, ``approved_by`` must name somebody."""

    max_cost: Usd | None = None
    approve_above: Usd | None = None
    approved_by: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why an order is refused; with ``job`` "" it concerns all orders together."""

    cause: RefusalReason
    job: str
    what: str
    remedy: str = ""

    @property
    def is_age(self) -> bool:
        return self.cause is RefusalReason.EXPIRED


@dataclass(frozen=True, slots=True)
class CurrentPrice:
    """The current price of a line, in dollars an hour for all its machines.

    It is None when the line is no longer sold. ``unsure`` says that the book could not be refreshed there.
    """

    line: Line
    usd_per_hour: UsdPerHour | None
    unsure: bool


def current_prices(orders: Iterable[Order], book: PriceBook, limits: Limits) -> tuple[CurrentPrice, ...]:
    """Return the current price of each line in ``book``, with the discounts and reservations of ``limits``.

    Where the line leaves the zone open, the cheapest zone counts. Raises InvalidInputError as a plan does.
    """
    by_place: dict[tuple[str, str, str, str], list[OfferListing]] = {}
    for listings in listings_by_accelerator(book, limits).values():
        for listing in listings:
            offer = listing.offer
            by_place.setdefault((offer.cloud, offer.region, offer.instance_type, offer.market.value), []).append(
                listing
            )
    return tuple(_price_now(line, by_place) for order in orders for line in order.lines)


def _price_now(line: Line, by_place: dict[tuple[str, str, str, str], list[OfferListing]]) -> CurrentPrice:
    place = (line.cloud, line.region, line.instance_type, line.market)
    fitting = [
        listing.offer
        for listing in by_place.get(place, ())
        if line.zone is None or listing.offer.zone in (None, line.zone)
    ]
    if not fitting:
        return CurrentPrice(line, None, unsure=False)
    cheapest = min(fitting, key=lambda offer: (offer.usd_per_hour, offer.key))
    return CurrentPrice(line, cheapest.usd_per_hour.times(line.machines), is_stale(cheapest))


def find_refusals(
    plan: Plan,
    prices: Sequence[CurrentPrice],
    guard: CostLimits,
    now: datetime,
    *,
    at_risk: Usd,
    book: PriceBook,
    knows_limits: bool = True,
) -> tuple[Refusal, ...]:
    """Return every reason against applying orders now that put ``at_risk`` at stake; empty when there is none.

    ``book`` is where ``prices`` are from. ``knows_limits`` False: they lack the discounts and reservations that the
    plan may have had, and the remedy says so.
    """
    return (
        *_plan_refusals(plan, book, now),
        *_price_refusals(prices, book, _PLAN_AGAIN if knows_limits else _NAME_LIMITS),
        *_cost_refusals(at_risk, guard),
    )


def _plan_refusals(plan: Plan, book: PriceBook, now: datetime) -> Iterator[Refusal]:
    if now > plan.expires_at:
        what = f"the plan was good until {plan.expires_at:%Y-%m-%d %H:%MZ}"
        yield Refusal(RefusalReason.EXPIRED, "", what, "plan again on today's prices")
    # Limits and approvals are of the whole plan, not of one without the jobs of other teams.
    if plan.restricted_to:
        what = f"it is the part of a plan that team {', '.join(plan.restricted_to)} may see"
        yield Refusal(RefusalReason.PART, "", what, "apply the whole plan")
    if book.as_of < plan.book_as_of:
        current, planned = (f"{moment:%Y-%m-%d %H:%MZ}" for moment in (book.as_of, plan.book_as_of))
        what = f"the price book is of {current}, the plan was made with one of {planned}"
        yield Refusal(RefusalReason.BOOK, "", what, "check with the book it was made with, or a newer one (--book)")


def _price_refusals(prices: Sequence[CurrentPrice], book: PriceBook, plan_again: str) -> Iterator[Refusal]:
    known = {region.id.cloud for region in book.regions}
    for price in prices:
        line = price.line
        place = "/".join(filter(None, (line.cloud, line.region, line.zone, line.instance_type, line.market)))
        if price.usd_per_hour is None:
            elsewhere = line.cloud in SIMULATED_CLOUDS - known
            remedy = f"prices of {line.cloud}, a made-up cloud, are in --book sandbox" if elsewhere else plan_again
            yield Refusal(RefusalReason.GONE, line.job, f"{place} is no longer in the price book", remedy)
        elif price.usd_per_hour > line.max_usd_per_hour:
            what = (
                f"{place} costs ${price.usd_per_hour} an hour now, above the plan's ceiling of ${line.max_usd_per_hour}"
            )
            yield Refusal(RefusalReason.PRICE, line.job, what, plan_again)


def _cost_refusals(at_risk: Usd, guard: CostLimits) -> Iterator[Refusal]:
    if guard.max_cost is not None and at_risk > guard.max_cost:
        yield Refusal(
            RefusalReason.COST,
            "",
            f"up to {cents_text(at_risk)} is at risk, {cents_text(guard.max_cost)} is allowed",
            "raise --max-cost",
        )
    if guard.approve_above is not None and at_risk > guard.approve_above and not guard.approved_by:
        what = (
            f"up to {cents_text(at_risk)} is at risk, and above {cents_text(guard.approve_above)} somebody must approve"
        )
        yield Refusal(RefusalReason.APPROVAL, "", what, "name them with --approved-by")


def cents_text(amount: Usd) -> str:
    """Return an amount of money for a person, rounded to cents."""
    return f"${amount.dollars():,.2f}"
