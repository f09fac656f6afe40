"""Checks of the content of a price book, each yielding the problems it finds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise

from pricing.book import PriceBook
from pricing.egress import Tariff
from pricing.hazard import HazardShape
from pricing.machines import Accelerator, Machine
from pricing.offers import Offer, OfferKey, find_listed
from pricing.places import Market
from pricing.problems import InvalidInputError, Problem
from pricing.risk import BANDS, RiskPrior, RiskSignal


def did_you_mean(name: str, valid_names: Iterable[str]) -> str:
    """Return ``did you mean X?`` for the nearest known name; "" when none is near."""
    near = get_close_matches(name, sorted(valid_names), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def check_book(book: PriceBook, places: Mapping[OfferKey, str] | None = None) -> None:
    """Raise InvalidInputError with everything that is wrong with the content, in a fixed order.

    ``places`` says where each offer was read (``file:line``).
    """
    places = places or {}
    problems = (
        *_check_keys(book, places),
        *_check_offers(book.offers, places),
        *_check_references(book, places),
        *_check_spot_below_on_demand(book.offers, places),
        *_check_machines(book.machines, book.accelerators),
        *_check_tiers(book.tariffs),
        *_check_priors(book.priors),
        *_check_signals(book.signals),
    )
    if problems:
        raise InvalidInputError(problems)


def _label(offer: Offer) -> str:
    return f"{offer.place} {offer.instance_type} {offer.market.value}"


def _price_column(offer: Offer) -> str:
    return "spot_usd_per_hour" if offer.market is Market.SPOT else "on_demand_usd_per_hour"


def _check_keys(book: PriceBook, places: Mapping[OfferKey, str]) -> Iterator[Problem]:
    for before, offer in pairwise(book.offers):
        if before.key == offer.key:  # Offers of a book are sorted by key, so equal keys are neighbours.
            yield Problem(places.get(offer.key, ""), "offers", f"{_label(offer)} is there twice")
    names: dict[str, list[str]] = {
        "machines": [f"{m.cloud} {m.instance_type}" for m in book.machines],
        "accelerators": [a.name for a in book.accelerators],
        "regions": [str(r.id) for r in book.regions],
        "tariffs": [t.meter for t in book.tariffs],
        "priors": [_prior_label(p) for p in book.priors],
    }
    for table, keys in names.items():
        for key, count in Counter(keys).items():
            if count > 1:
                yield Problem("", table, f"{key} is there {count} times")


def _check_offers(offers: Sequence[Offer], places: Mapping[OfferKey, str]) -> Iterator[Problem]:
    for offer in offers:
        where = places.get(offer.key, "")
        if offer.usd_per_hour.nanos <= 0:
            what = f"{_label(offer)}: the price {offer.usd_per_hour} is not above 0"
            yield Problem(where, _price_column(offer), what, "leave out what is not sold")
        if not offer.source:
            yield Problem(where, "source", f"{_label(offer)}: a price without a source does not enter a book")
        if offer.machines_cap is not None and offer.machines_cap < 0:
            yield Problem(where, "machines_cap", f"{_label(offer)}: {offer.machines_cap} is negative")
        rate = offer.interruptions_per_hour
        if rate is not None and not (math.isfinite(rate) and rate >= 0):
            yield Problem(where, "interruptions_per_hour", f"{_label(offer)}: {rate} is no rate per hour")
        share = offer.preempted_share
        if share is not None and not 0 <= share <= 1:
            yield Problem(where, "preempted_share", f"{_label(offer)}: {share} is no share between 0 and 1")
        if offer.interruption_band and offer.interruption_band not in BANDS:
            known = ", ".join(BANDS)
            what = f"{_label(offer)}: {offer.interruption_band!r} is not one of {known}"
            yield Problem(where, "interruption_band", what)


def _check_references(book: PriceBook, places: Mapping[OfferKey, str]) -> Iterator[Problem]:
    region_names = {(r.id.cloud, r.id.region) for r in book.regions}
    machine_names = {(m.cloud, m.instance_type) for m in book.machines}
    clouds = {cloud for cloud, _ in region_names}
    for offer in book.offers:
        where = places.get(offer.key, "")
        if offer.cloud not in clouds:
            what = f"unknown cloud {offer.cloud!r}"
            yield Problem(where, "cloud", what, did_you_mean(offer.cloud, clouds))
        elif (offer.cloud, offer.region) not in region_names:
            near = did_you_mean(offer.region, (name for cloud, name in region_names if cloud == offer.cloud))
            yield Problem(where, "region", f"unknown region {offer.region_id}", near)
        if (offer.cloud, offer.instance_type) not in machine_names:
            near = did_you_mean(offer.instance_type, (name for cloud, name in machine_names if cloud == offer.cloud))
            what = f"unknown machine {offer.cloud} {offer.instance_type}"
            yield Problem(where, "instance_type", what, near)


def _check_spot_below_on_demand(offers: Sequence[Offer], places: Mapping[OfferKey, str]) -> Iterator[Problem]:
    on_demand = {offer.key: offer.usd_per_hour for offer in offers if offer.market is Market.ON_DEMAND}
    for offer in offers:
        key = find_listed(offer.key, on_demand) if offer.market is Market.SPOT else None
        if key is not None and offer.usd_per_hour > on_demand[key]:
            what = f"{_label(offer)}: {offer.usd_per_hour} is above the on-demand price {on_demand[key]}"
            yield Problem(places.get(offer.key, ""), "spot_usd_per_hour", what)


def _check_machines(machines: Sequence[Machine], accelerators: Sequence[Accelerator]) -> Iterator[Problem]:
    names = {a.name for a in accelerators}
    for machine in machines:
        label = f"{machine.cloud} {machine.instance_type}"
        if machine.accelerator not in names:
            what = f"{label}: unknown accelerator {machine.accelerator!r}"
            yield Problem("", "accelerator", what, did_you_mean(machine.accelerator, names))
        if machine.accelerator_count < 1:
            yield Problem("", "accelerator_count", f"{label}: {machine.accelerator_count} is not above 0")


def _check_tiers(tariffs: Sequence[Tariff]) -> Iterator[Problem]:
    for tariff in tariffs:
        if not tariff.tiers:
            yield Problem("", "tariffs", f"{tariff.meter}: no tiers")
            continue
        edges = [0, *(tier.to_bytes for tier in tariff.tiers)]
        starts = [tier.from_bytes for tier in tariff.tiers]
        if starts != edges[:-1] or edges[-1] is not None or starts != sorted(set(starts)):
            yield Problem("", "tariffs", f"{tariff.meter}: tiers are not contiguous from 0 without end")
        if any(tier.price.nanos < 0 for tier in tariff.tiers):
            yield Problem("", "tariffs", f"{tariff.meter}: a negative price")


def _prior_label(prior: RiskPrior) -> str:
    return f"{prior.cloud} {prior.accelerator} {prior.market}"


def _check_levels(rows: Sequence[RiskPrior | RiskSignal], table: str) -> Iterator[Problem]:
    for row in rows:
        label = _prior_label(row) if isinstance(row, RiskPrior) else f"{row.cloud} {row.band}"
        if row.shape not in set(HazardShape):
            yield Problem("", table, f"{label}: {row.shape!r} is not one of {', '.join(HazardShape)}")
        if isinstance(row, RiskPrior) and row.market != Market.SPOT.value and row.level == 0:
            continue
        if not (math.isfinite(row.high) and 0 < row.low < row.level < row.high):
            what = (
                f"{label}: the level {row.level} is not between {row.low} and {row.high}, above 0; never zero on spot"
            )
            yield Problem("", table, what)


def _check_priors(priors: Sequence[RiskPrior]) -> Iterator[Problem]:
    yield from _check_levels(priors, "priors")
    for prior in priors:
        label = _prior_label(prior)
        if not 0 <= prior.refusal_probability < 1:
            yield Problem("", "priors", f"{label}: a probability of refusal lies between 0 and 1")
        if not math.isfinite(prior.recovery_hours) or prior.recovery_hours < 0:
            yield Problem("", "priors", f"{label}: {prior.recovery_hours} is no recovery time")


def _check_signals(signals: Sequence[RiskSignal]) -> Iterator[Problem]:
    yield from _check_levels(signals, "signals")
    for signal in signals:
        if not signal.memory_months > 0:
            yield Problem("", "signals", f"{signal.cloud} {signal.band}: a memory is above 0 months")
