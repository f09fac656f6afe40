"""Convert rows of bills into charges of our own files, with their owners and what their time was used for.

A charge is as the bill has it. A row whose metered time has several owners, or went into several uses, becomes one
charge for each, one after the other in time, and the charges add up to the row. Where uses ran at once (a row about a
whole gang), none is named. A column that FOCUS demands and the bill leaves empty is ``__unknown__``, and an unknown
cost takes the value of the known one. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from router.ledger.entry import CostItem, MachineUse
from router.ledger.month import Month
from router.showback.accounts import UNKNOWN, Account
from router.showback.apportion import round_fraction, sum_known
from router.showback.facts_from_focus import NO_CURRENCY, owner_key
from router.showback.focus.columns import BY_NAME, Charge, FocusColumnKind
from router.showback.focus.texts import Json, read_json
from router.showback.focus_from_ledger import SERVICES
from router.showback.labels import NO_JOBS, NO_LABELS, Labels

_PLACES: Final = 24
_QUANTITY_PLACES: Final = 18
# Owner columns of facts, as they stand in tags, with the tag names that a reader takes for each.
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
_SCALED: Final = ("pricing_quantity", "consumed_quantity", "commitment_discount_quantity")
_OWNER_WORDS: Final = ("team", "project", "cost_center", "job", "plan", "attempt", "state")
_SHARED_WORDS: Final = ("accelerator", "useful_unit")
_AMOUNTS: Final = ("billed", "effective", "list", "on_demand", "quantity", "gpu_hours", "useful")
Fact = Mapping[str, Any]


def charges_of_row(
    row: Mapping[str, Any], row_fact: Fact, pieces: Sequence[Fact], labels: Mapping[str, Labels] = NO_JOBS
) -> Iterator[Charge]:
    """Yield a charge for each of the ``pieces`` that a row of a bill counts as.

    ``pieces`` are those of :mod:`router.showback.reconcile.matching`. ``row`` has the columns of FOCUS 1.4 and ours by
    name; ``row_fact`` is the row as a fact; ``labels`` are those of jobs by digest. A piece without a known cost has no
    charge.
    """
    fields = _row_fields(row)
    merged = _merge_by_words(pieces)
    for piece in merged:
        costs = _costs(fields, row_fact, piece, whole=len(merged) == 1)
        if costs is not None:
            own = labels.get(piece["job_digest"] or "", NO_LABELS)
            yield Charge(**{**fields, **costs, **_words(fields, row_fact, piece, own)})


def charge_of_correction(fact: Fact, account: Account, labels: Labels = NO_LABELS) -> Charge:
    """Return the charge of a fact that corrects closed months (:mod:`router.showback.bill_store`).

    The charge stands in the books of an open month, and its time is that of the month that it corrects. ``labels`` are
    its job's.
    """
    billed, effective = fact["billed"], fact["effective"]
    billed, effective = (effective if billed is None else billed), (billed if effective is None else effective)
    period, what = Month.parse(fact["month"]), CostItem(fact["what"])
    category, subcategory, _, _ = SERVICES[what]
    # A fact that names an account beats the one of the showback file.
    named: str | None = fact["account"] or None
    return Charge(
        billing_account_id=account.billing_account_id,
        billing_account_name=account.billing_account_name,
        billing_account_type=account.billing_account_type,
        sub_account_id=named or account.sub_account_id,
        sub_account_name=None if named else account.sub_account_name,
        sub_account_type=(account.sub_account_type or UNKNOWN) if named else account.sub_account_type,
        service_provider_name=account.provider or UNKNOWN,
        host_provider_name=account.host,
        invoice_issuer_name=account.issuer or UNKNOWN,
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
        tags={**labels, **{name: fact[name] for name in _OWNERS if fact[name]}} or None,
        x_plan_id=fact["plan"],
        x_job_id=fact["job"],
        x_attempt=fact["attempt"],
        x_record_state=fact["state"],
        x_waste_kind=fact["use"] if fact["use"] != MachineUse.WORK else None,
        x_gpu_model=fact["accelerator"],
    )


def _merge_by_words(pieces: Sequence[Fact]) -> list[Fact]:
    """Return the pieces merged by equal words, in the order of time; by use only where uses follow each other."""
    if len(pieces) == 1:
        return list(pieces)
    merged = _merge_pieces(pieces, (*_OWNER_WORDS, "use"))
    if any(one["end"] > other["start"] for one, other in pairwise(merged)):
        return _merge_pieces([{**piece, "use": None} for piece in pieces], _OWNER_WORDS)
    return merged


def _merge_pieces(pieces: Sequence[Fact], words: Sequence[str]) -> list[Fact]:
    groups: dict[tuple[Any, ...], list[Fact]] = {}
    for piece in pieces:
        groups.setdefault(tuple(piece[name] for name in words), []).append(piece)
    merged = [
        {
            **group[0],
            **{name: sum_known(piece[name] for piece in group) for name in _AMOUNTS},
            **{name: group[0][name] if len({piece[name] for piece in group}) == 1 else None for name in _SHARED_WORDS},
            "start": min(piece["start"] for piece in group),
            "end": max(piece["end"] for piece in group),
        }
        for group in groups.values()
    ]
    return sorted(merged, key=lambda piece: (piece["start"], piece["end"]))


def _row_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row's cells by field of a charge, and a default for each mandatory field that is empty."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        column = BY_NAME[name]
        if value is not None:
            cells[column.field] = read_json(value) if column.kind is FocusColumnKind.JSON else value
    start = cells.get("charge_period_start") or cells["billing_period_start"]
    end = cells.get("charge_period_end") or cells["billing_period_end"]
    currency = cells.get("billing_currency", NO_CURRENCY)
    defaults = {
        **dict.fromkeys(_TEXTS, UNKNOWN),
        "billing_period_start": start,
        "billing_period_end": end,
        "charge_period_start": start,
        "charge_period_end": end,
        "charge_category": "Usage",
        "charge_frequency": "Usage-Based",
        "billing_currency": currency,
        "pricing_currency": currency,
        "service_category": "Other",
        "service_subcategory": "Other (Other)",
    }
    if "region_id" in cells:
        defaults["region_name"] = cells["region_id"]
    if "resource_id" in cells:
        defaults["resource_type"] = UNKNOWN
    return {**defaults, **cells}


def _costs(fields: Mapping[str, Any], row_fact: Fact, piece: Fact, *, whole: bool) -> dict[str, Any] | None:
    billed, effective = piece["billed"], piece["effective"]
    if billed is None and effective is None:
        return None
    billed, effective = (effective if billed is None else billed), (billed if effective is None else effective)
    costs = {"billed_cost": billed, "effective_cost": effective}
    if whole:
        row_costs = {name: fields.get(name, billed) for name in ("list_cost", "contracted_cost")}
        return {**costs, **row_costs, "pricing_currency_effective_cost": fields.get(_PRICED_IN, effective)}
    share = _share(row_fact, piece)
    scaled = {name: _scaled(fields[name], share, _QUANTITY_PLACES) for name in _SCALED if name in fields}
    quantity = scaled.get("pricing_quantity")
    for cost in ("list", "contracted"):
        price = fields.get(f"{cost}_unit_price")
        if price is not None and quantity is not None:
            costs[f"{cost}_cost"] = round_fraction(Fraction(price) * Fraction(quantity), _PLACES)
        else:
            row_cost = fields.get(f"{cost}_cost")
            costs[f"{cost}_cost"] = billed if row_cost is None else _scaled(row_cost, share, _PLACES)
    row_effective = fields.get(_PRICED_IN)
    if row_effective is None or row_effective == fields.get("effective_cost"):
        pricing_effective = effective
    else:
        pricing_effective = _scaled(row_effective, share, _PLACES)
    return {
        **costs,
        **scaled,
        _PRICED_IN: pricing_effective,
        "charge_period_start": piece["start"],
        "charge_period_end": piece["end"],
    }


_PRICED_IN: Final = "pricing_currency_effective_cost"


def _share(row_fact: Fact, piece: Fact) -> Fraction:
    """Return which part of the row the piece is: of its quantity, else of its money, else of its time."""
    for name in ("quantity", "effective", "billed"):
        if row_fact[name] and piece[name] is not None:
            return Fraction(piece[name]) / Fraction(row_fact[name])
    whole = row_fact["end"] - row_fact["start"]
    return Fraction((piece["end"] - piece["start"]) / whole) if whole else Fraction(1)


def _words(fields: Mapping[str, Any], row_fact: Fact, piece: Fact, labels: Labels) -> dict[str, Any]:
    allocated = fields.get("allocated_tags")
    waste_kind = piece["use"] if piece["use"] != MachineUse.WORK else None
    return {
        "x_plan_id": piece["plan"],
        "x_job_id": piece["job"],
        "x_attempt": piece["attempt"],
        "x_record_state": piece["state"],
        "x_waste_kind": waste_kind,
        "x_gpu_hours": piece["gpu_hours"],
        "x_gpu_model": piece["accelerator"],
        "x_useful_units": piece["useful"],
        "x_useful_unit": piece["useful_unit"] if piece["useful"] is not None else None,
        "x_on_demand_equivalent_cost": piece["on_demand"],
        "tags": _tagged(fields.get("tags"), row_fact, piece, labels),
        "allocated_tags": _tagged(allocated, row_fact, piece, labels) if allocated else None,
    }


def _tagged(tags: Json | None, row_fact: Fact, piece: Fact, labels: Labels) -> Json | None:
    """Return the job's labels and the bill's tags, with the owner replaced where metering knows better."""
    merged = {**labels, **(tags or {})}
    for name, keys in _OWNERS.items():
        if piece[name] != row_fact[name]:
            merged = {key: value for key, value in merged.items() if owner_key(key) not in keys}
            if piece[name] is not None:
                merged[name] = piece[name]
    return merged or None


def _scaled(value: Decimal, share: Fraction, places: int) -> Decimal:
    return round_fraction(Fraction(value) * share, places)
