"""Rows of bills as charges of our own files: as the bill has them, with whose they are and what their time went into.

A row whose metered time is of several owners, or went into several uses, becomes a charge for each, one after the other
in time, and the charges add up to it. Where uses went on at once (a row about a whole gang), none is named. What a
bill leaves empty that FOCUS demands is ``__unknown__``, and a cost that is not known the one that is. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from pricing.money import divide_half_even
from router.config.showback_file import Account
from router.ledger.entry import Use, What
from router.ledger.month import Month
from router.showback.apportion import exact_sum
from router.showback.facts_from_focus import NO_CURRENCY, owner_key
from router.showback.focus.charge import Charge
from router.showback.focus.columns import BY_NAME, Kind
from router.showback.focus.texts import Json, read_json
from router.showback.focus_from_ledger import SERVICES, of_account

UNKNOWN: Final = "__unknown__"
_PLACES: Final = 24
_QUANTITY_PLACES: Final = 18
_EXACT: Final = Context(prec=400)
# Of facts: whose a charge is, as it stands in tags, by the names that a reader takes for it.
_OWNERS: Final = {
    "team": ("team",),
    "project": ("project",),
    "cost_center": ("costcenter", "costcentre"),
    "job": ("job",),
}
_TEXTS: Final = (
    "billing_account_id",
    "billing_account_type",
    "service_provider_name",
    "invoice_issuer_name",
    "service_name",
)
_COSTS: Final = ("billed_cost", "effective_cost", "list_cost", "contracted_cost")
_SCALED: Final = ("pricing_quantity", "consumed_quantity", "commitment_discount_quantity")
_WHOSE: Final = ("team", "project", "cost_center", "job", "plan", "attempt", "state")
_ALIKE: Final = ("accelerator", "useful_unit")
_AMOUNTS: Final = ("billed", "effective", "list", "on_demand", "quantity", "gpu_hours", "useful")
Fact = Mapping[str, Any]


def charges_of_row(row: Mapping[str, Any], alone: Fact, pieces: Sequence[Fact]) -> Iterator[Charge]:
    """Charges of the ``pieces`` that a row of a bill counts as (:mod:`router.showback.reconcile.actual`).
    ``row`` has the columns of FOCUS 1.4 and ours by name, ``alone`` is the row as a fact. One whose cost nobody knows
    has no charge."""
    said = _said(row)
    merged = _by_words(pieces)
    for piece in merged:
        costs = _costs(said, alone, piece, whole=len(merged) == 1)
        if costs is not None:
            yield Charge(**{**said, **costs, **_words(said, alone, piece)})


def charge_of_correction(fact: Fact, account: Account) -> Charge:
    """The charge of a fact that corrects closed months (:mod:`router.showback.corrections`): it stands in the books of
    an open month, and its time is that of the month that it corrects."""
    billed, effective = fact["billed"], fact["effective"]
    billed, effective = (effective if billed is None else billed), (billed if effective is None else effective)
    period, what = Month.parse(fact["month"]), What(fact["what"])
    category, subcategory, _, _ = SERVICES[what]
    said = {**of_account(account)}
    if fact["account"]:
        said |= {"sub_account_id": fact["account"], "sub_account_name": None}
        said["sub_account_type"] = account.sub_account_type or UNKNOWN
    return Charge(
        **said,
        billing_period_start=period.begins,
        billing_period_end=period.ends,
        charge_period_start=fact["start"],
        charge_period_end=fact["end"],
        charge_category=fact["category"],
        charge_class="Correction",
        charge_description=fact["reason"],
        charge_frequency="Usage-Based" if fact["category"] == "Usage" else "One-Time",
        billing_currency=fact["currency"],
        pricing_currency=fact["currency"],
        billed_cost=billed,
        effective_cost=effective,
        pricing_currency_effective_cost=effective,
        list_cost=billed if fact["list"] is None else fact["list"],
        contracted_cost=billed,
        service_category=category,
        service_subcategory=subcategory,
        service_name=getattr(account.services, what.value),
        region_id=fact["region"],
        region_name=fact["region"],
        tags={name: fact[name] for name in _OWNERS if fact[name]} or None,
        x_plan_id=fact["plan"],
        x_job_id=fact["job"],
        x_attempt=fact["attempt"],
        x_record_state=fact["state"],
        x_waste_kind=fact["use"] if fact["use"] != Use.WORK else None,
        x_gpu_model=fact["accelerator"],
    )


def _by_words(pieces: Sequence[Fact]) -> list[Fact]:
    """The pieces that say the same together, in the order of time; by use only where uses follow each other."""
    if len(pieces) == 1:
        return list(pieces)
    found = _together(pieces, (*_WHOSE, "use"))
    if any(one["end"] > other["start"] for one, other in pairwise(found)):
        return _together([{**piece, "use": None} for piece in pieces], _WHOSE)
    return found


def _together(pieces: Sequence[Fact], words: Sequence[str]) -> list[Fact]:
    groups: dict[tuple[Any, ...], list[Fact]] = {}
    for piece in pieces:
        groups.setdefault(tuple(piece[name] for name in words), []).append(piece)
    made = [
        {
            **some[0],
            **{name: _sum([piece[name] for piece in some]) for name in _AMOUNTS},
            **{name: some[0][name] if len({piece[name] for piece in some}) == 1 else None for name in _ALIKE},
            "start": min(piece["start"] for piece in some),
            "end": max(piece["end"] for piece in some),
        }
        for some in groups.values()
    ]
    return sorted(made, key=lambda piece: (piece["start"], piece["end"]))


def _sum(amounts: Sequence[Decimal | None]) -> Decimal | None:
    known = [amount for amount in amounts if amount is not None]
    return exact_sum(known) if known else None


def _said(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row's cells by field of a charge, with what must stand there and does not."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        column = BY_NAME[name]
        if value is not None:
            found[column.field] = read_json(value) if column.kind is Kind.JSON else value
    start = found.get("charge_period_start") or found["billing_period_start"]
    end = found.get("charge_period_end") or found["billing_period_end"]
    currency = found.get("billing_currency", NO_CURRENCY)
    usual = {
        **dict.fromkeys(_TEXTS, UNKNOWN),
        "billing_period_start": start, "billing_period_end": end, "charge_period_start": start,
        "charge_period_end": end, "charge_category": "Usage", "charge_frequency": "Usage-Based",
        "billing_currency": currency, "pricing_currency": currency, "service_category": "Other",
        "service_subcategory": "Other (Other)",
    }  # fmt: skip
    if "region_id" in found:
        usual["region_name"] = found["region_id"]
    if "resource_id" in found:
        usual["resource_type"] = UNKNOWN
    return {**usual, **found}


def _costs(said: Mapping[str, Any], alone: Fact, piece: Fact, *, whole: bool) -> dict[str, Any] | None:
    billed, effective = piece["billed"], piece["effective"]
    if billed is None and effective is None:
        return None
    billed, effective = (effective if billed is None else billed), (billed if effective is None else effective)
    given = {"billed_cost": billed, "effective_cost": effective}
    if whole:
        kept = {name: said.get(name, billed) for name in ("list_cost", "contracted_cost")}
        return {**given, **kept, "pricing_currency_effective_cost": said.get(_PRICED_IN, effective)}
    share = _share(alone, piece)
    scaled = {name: _scaled(said[name], share, _QUANTITY_PLACES) for name in _SCALED if name in said}
    quantity = scaled.get("pricing_quantity")
    for cost in ("list", "contracted"):
        price = said.get(f"{cost}_unit_price")
        if price is not None and quantity is not None:
            given[f"{cost}_cost"] = _rounded(Fraction(price) * Fraction(quantity), _PLACES)
        else:
            known = said.get(f"{cost}_cost")
            given[f"{cost}_cost"] = billed if known is None else _scaled(known, share, _PLACES)
    in_pricing = said.get(_PRICED_IN)
    if in_pricing is None or in_pricing == said.get("effective_cost"):
        priced = effective
    else:
        priced = _scaled(in_pricing, share, _PLACES)
    return {
        **given,
        **scaled,
        _PRICED_IN: priced,
        "charge_period_start": piece["start"],
        "charge_period_end": piece["end"],
    }


_PRICED_IN: Final = "pricing_currency_effective_cost"


def _share(alone: Fact, piece: Fact) -> Fraction:
    """Which part of the row the piece is: of its quantity, else of its money, else of its time."""
    for name in ("quantity", "effective", "billed"):
        if alone[name] and piece[name] is not None:
            return Fraction(piece[name]) / Fraction(alone[name])
    whole = alone["end"] - alone["start"]
    return Fraction((piece["end"] - piece["start"]) / whole) if whole else Fraction(1)


def _words(said: Mapping[str, Any], alone: Fact, piece: Fact) -> dict[str, Any]:
    wasted = piece["use"] if piece["use"] != Use.WORK else None
    return {
        "x_plan_id": piece["plan"], "x_job_id": piece["job"], "x_attempt": piece["attempt"],
        "x_record_state": piece["state"], "x_waste_kind": wasted, "x_gpu_hours": piece["gpu_hours"],
        "x_gpu_model": piece["accelerator"], "x_useful_units": piece["useful"],
        "x_useful_unit": piece["useful_unit"] if piece["useful"] is not None else None,
        "x_on_demand_equivalent_cost": piece["on_demand"],
        "tags": _tagged(said.get("tags"), alone, piece),
        "allocated_tags": _tagged(said["allocated_tags"], alone, piece) if said.get("allocated_tags") else None,
    }  # fmt: skip


def _tagged(tags: Json | None, alone: Fact, piece: Fact) -> Json | None:
    """The bill's tags, and in them whose the charge is where metering knows better."""
    found = dict(tags or {})
    for name, keys in _OWNERS.items():
        if piece[name] != alone[name]:
            found = {key: value for key, value in found.items() if owner_key(key) not in keys}
            if piece[name] is not None:
                found[name] = piece[name]
    return found or None


def _scaled(value: Decimal, share: Fraction, places: int) -> Decimal:
    return _rounded(Fraction(value) * share, places)


def _rounded(value: Fraction, places: int) -> Decimal:
    return Decimal(divide_half_even(value.numerator * 10**places, value.denominator)).scaleb(-places, _EXACT)
