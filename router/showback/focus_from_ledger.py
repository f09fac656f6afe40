"""Convert ledger entries into FOCUS charges. Pure.

Metered entries are usage, what people added are purchases, credits, taxes and adjustments; planned entries are no
charges. BilledCost and EffectiveCost are the ledger's money to the nano-dollar. ListCost and ContractedCost are a unit
price x PricingQuantity, exactly, as FOCUS has it: a third of an hour has no last digit, so that they may differ from
the money by less than two nano-dollars. docs/design/showback.md says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from functools import cache, lru_cache

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.ledger.entry import CURRENCY, STEPS, CostItem, LedgerEntry, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from router.showback.accounts import UNKNOWN, Account, Showback
from router.showback.focus.columns import CATEGORY_OF_ENTRY, Charge, RecordState
from router.showback.focus.texts import Json
from router.showback.labels import NO_JOBS, NO_LABELS, Labels

# A price of nine decimals times a quantity of fifteen has the 24 that a cost may have, and the other way round.
_QUANTITY_PLACES, _DERIVED_PLACES, _GIVEN_PLACES = 15, 15, 9
_NANO_PLACES = 9
_TICK = timedelta(microseconds=1)
_EXACT = Context(prec=400, traps=[Inexact])

_PRICED = frozenset({"Usage", "Purchase"})
_PRICING = {Market.SPOT: "Dynamic", Market.ON_DEMAND: "Standard", Market.RESERVED: "Other"}
# By what was paid for: FOCUS's category and subcategory, the kind of resource, and what is counted.
SERVICES = {
    CostItem.MACHINE: ("Compute", "Virtual Machines", "Instance", "Instance hours"),
    CostItem.DISK: ("Storage", "Block Storage", "Disk", "Disk size"),
    CostItem.EGRESS: ("Networking", "Network Connectivity", "Object store", "Data transferred"),
    CostItem.STORAGE: ("Storage", "Object Storage", "Object store", "Stored size"),
    CostItem.OTHER: ("Other", "Other (Other)", "Service", "Service"),
}


@dataclass(frozen=True, slots=True)
class ClosedBooks:
    """The closed month and corrected entries, which decide whether an entry is a correction.

    ``closed`` is the month up to which books are closed (None: no month is). ``months`` has the month of each entry
    that others correct, by key.
    """

    closed: Month | None = None
    months: Mapping[str, Month] = field(default_factory=dict)

    def corrected(self, entry: LedgerEntry) -> bool:
        """Return whether the entry changes what a closed month says.

        An entry in the same month as what it corrects does not.
        """
        if not entry.corrects or self.closed is None:
            return False
        month = self.months.get(entry.corrects) or _parse_month(entry.corrects) or Month.of(entry.start)
        return month < entry.period and month <= self.closed


@dataclass(frozen=True, slots=True)
class EntryPart:
    """A part of an entry by time, with the money and the saved steps that are its share."""

    start: datetime
    end: datetime
    billed: Decimal
    effective: Decimal
    useful: Decimal | None = None


@dataclass(slots=True)
class UnpricedEntries:
    """Entries left out because their price is unknown: how many and how much, by what they are and their unit."""

    entries: dict[tuple[CostItem, str], int] = field(default_factory=dict)
    quantities: dict[tuple[CostItem, str], Fraction] = field(default_factory=dict)

    def add(self, entry: LedgerEntry) -> None:
        key = (entry.what, entry.unit)
        self.entries[key] = self.entries.get(key, 0) + 1
        self.quantities[key] = self.quantities.get(key, Fraction(0)) + entry.quantity


def charges_of_entries(
    entries: Iterable[LedgerEntry],
    accounts: Showback,
    books: ClosedBooks = ClosedBooks(),
    unpriced: UnpricedEntries | None = None,
    labels: Mapping[str, Labels] = NO_JOBS,
    parts: Mapping[str, Sequence[EntryPart]] | None = None,
) -> Iterator[Charge]:
    """Yield a charge for each metered or added entry, in their order.

    An entry without a price has no charge, for a cost of 0 would be a wrong sum; ``unpriced`` counts those.
    ``accounts`` names who bills whom. ``labels`` are those of jobs by digest. ``parts`` are the parts of entries, by
    key, that no bill has: an entry without one has no charge; None: no bill has any.
    """
    account = cache(accounts.account)
    for entry in entries:
        if entry.kind is LedgerEntryKind.PLANNED or (parts is not None and entry.key not in parts):
            continue
        if entry.unpriced:
            if unpriced is not None:
                unpriced.add(entry)
            continue
        own, corrects = labels.get(entry.job_digest, NO_LABELS), books.corrected(entry)
        unbilled = () if parts is None else parts[entry.key]
        if parts is None or [(part.start, part.end) for part in unbilled] == [(entry.start, entry.end)]:
            yield _charge_of_entry(entry, account(entry.cloud), own, corrects=corrects)
        else:
            yield from (_charge_of_part(entry, account(entry.cloud), part, own, corrects=corrects) for part in unbilled)


def _charge_of_part(entry: LedgerEntry, account: Account, part: EntryPart, labels: Labels, *, corrects: bool) -> Charge:
    share = Fraction((part.end - part.start) // _TICK, (entry.end - entry.start) // _TICK)
    usd = Usd(round(Fraction(part.billed) * 10**_NANO_PLACES))
    partial = replace(entry, start=part.start, end=part.end, quantity=entry.quantity * share, usd=usd)
    charge = _charge_of_entry(partial, account, labels, corrects=corrects)
    return replace(
        charge,
        billed_cost=part.billed,
        effective_cost=part.effective,
        pricing_currency_effective_cost=part.effective,
        x_useful_units=part.useful,
        x_useful_unit=STEPS if part.useful is not None else None,
    )


def _charge_of_entry(entry: LedgerEntry, account: Account, labels: Labels, *, corrects: bool) -> Charge:
    category = CATEGORY_OF_ENTRY[entry.kind]
    usd = decimal_of_usd(entry.usd)
    price = _price_of(entry, usd) if category in _PRICED else _ChargePrice(list_cost=usd, contracted_cost=usd)
    service_category, service_subcategory, resource_type, _ = SERVICES[entry.what]
    region = entry.region or None
    owners = {"team": entry.team, "project": entry.project, "cost_center": entry.cost_center, "job": entry.job}
    # 0 where nobody knows.
    has_steps = bool(entry.steps) and entry.kind is LedgerEntryKind.METERED
    return Charge(
        billing_account_id=account.billing_account_id,
        billing_account_name=account.billing_account_name,
        billing_account_type=account.billing_account_type,
        sub_account_id=account.sub_account_id,
        sub_account_name=account.sub_account_name,
        sub_account_type=account.sub_account_type,
        service_provider_name=account.provider or UNKNOWN,
        host_provider_name=account.host,
        invoice_issuer_name=account.issuer or UNKNOWN,
        billing_period_start=entry.period.begins,
        billing_period_end=entry.period.ends,
        charge_period_start=entry.start,
        charge_period_end=entry.end,
        charge_category=category,
        charge_class="Correction" if corrects else None,
        charge_description=_description(entry),
        charge_frequency="Usage-Based" if category == "Usage" else "One-Time",
        billing_currency=CURRENCY,
        billed_cost=usd,
        effective_cost=usd,
        list_cost=price.list_cost,
        list_unit_price=price.list_unit_price,
        contracted_cost=price.contracted_cost,
        contracted_unit_price=price.contracted_unit_price,
        pricing_category=price.category,
        pricing_quantity=price.quantity,
        pricing_unit=price.unit,
        pricing_currency=CURRENCY,
        pricing_currency_contracted_unit_price=price.contracted_unit_price,
        pricing_currency_effective_cost=usd,
        pricing_currency_list_unit_price=price.list_unit_price,
        consumed_quantity=price.quantity if price.is_consumed else None,
        consumed_unit=price.unit if price.is_consumed else None,
        service_category=service_category,
        service_subcategory=service_subcategory,
        service_name=getattr(account.services, entry.what.value),
        sku_id=price.sku_id,
        sku_meter=price.sku_meter,
        sku_price_id=price.sku_price_id,
        sku_price_details=price.sku_price_details,
        resource_id=entry.resource or None,
        resource_name=_resource_name(entry),
        resource_type=resource_type if entry.resource else None,
        region_id=region,
        region_name=account.regions.get(region, region) if region else None,
        availability_zone=entry.zone or None,
        tags={**labels, **{name: value for name, value in owners.items() if value}} or None,
        x_plan_id=entry.plan or None,
        x_job_id=entry.job or None,
        x_attempt=entry.attempt or None,
        # As in reports: what people added with a document's name is on an invoice.
        x_record_state=(
            RecordState.INVOICED if entry.kind.is_added and entry.reference else RecordState.ESTIMATED
        ).value,
        x_price_observed_at=_parse_day(entry.price_as_of),
        x_price_source=entry.price_source or None,
        x_on_demand_equivalent_cost=price.on_demand_cost,
        x_waste_kind=entry.use.value if entry.use is not None and entry.use is not MachineUse.WORK else None,
        x_gpu_hours=price.gpu_hours,
        x_gpu_model=price.gpu_model,
        x_useful_units=Decimal(entry.steps) if has_steps else None,
        x_useful_unit=STEPS if has_steps else None,
    )


def decimal_of_usd(amount: Usd | UsdPerHour) -> Decimal:
    """Return the amount as a decimal, exactly."""
    return Decimal(amount.nanos).scaleb(-_NANO_PLACES, _EXACT)


def _resource_name(entry: LedgerEntry) -> str | None:
    if not entry.resource:
        return None
    is_machine = entry.what is CostItem.MACHINE and entry.attempt and entry.rank is not None
    return f"{entry.attempt}-{entry.rank}" if is_machine else entry.resource


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChargePrice:
    """Quantity, unit prices and their products; charges that are neither usage nor purchase have costs alone.

    ``is_consumed``: the quantity was used, not only bought.
    """

    list_cost: Decimal
    contracted_cost: Decimal
    list_unit_price: Decimal | None = None
    contracted_unit_price: Decimal | None = None
    category: str | None = None
    quantity: Decimal | None = None
    unit: str | None = None
    is_consumed: bool = False
    sku_id: str | None = None
    sku_meter: str | None = None
    sku_price_id: str | None = None
    sku_price_details: Json | None = None
    on_demand_cost: Decimal | None = None
    gpu_hours: Decimal | None = None
    gpu_model: str | None = None


def _price_of(entry: LedgerEntry, usd: Decimal) -> _ChargePrice:
    if entry.what is CostItem.MACHINE and entry.usd_per_hour is not None and entry.machines:
        return _machine_price(entry, entry.usd_per_hour)
    quantity, unit = _rounded(entry.quantity, _GIVEN_PLACES), entry.unit.strip()
    metered = entry.kind is LedgerEntryKind.METERED
    known = quantity > 0 and any(map(str.isalpha, unit))
    # A price of this very charge, for tiers and contracts have no one price.
    price = _rounded(abs(Fraction(usd)) / Fraction(quantity), _DERIVED_PLACES) if known else usd
    if not known or (not metered and _EXACT.multiply(price, quantity) != _EXACT.abs(usd)):
        quantity, unit, price = Decimal(1), "Units", _EXACT.abs(usd)
    quantity = quantity.copy_sign(usd)
    cost = _EXACT.multiply(price, quantity)
    return _ChargePrice(
        list_cost=cost,
        contracted_cost=cost,
        list_unit_price=price,
        contracted_unit_price=price,
        category="Standard",
        quantity=quantity,
        unit=unit,
        is_consumed=metered,
        sku_id=entry.what.value,
        sku_meter=SERVICES[entry.what][-1],
        sku_price_id=f"{entry.region}/{entry.what.value}" if metered else entry.key,
    )


def _machine_price(entry: LedgerEntry, rate: UsdPerHour) -> _ChargePrice:
    hours = _rounded(entry.quantity, _QUANTITY_PLACES)
    price = decimal_of_usd(rate)
    on_demand = None if entry.on_demand_usd_per_hour is None else decimal_of_usd(entry.on_demand_usd_per_hour)
    machines, gpus = Decimal(entry.machines), Decimal(entry.accelerators)
    # The price on the list: spot's list price is its own.
    listed = price if entry.market is Market.SPOT or on_demand is None else on_demand
    market = (entry.market or Market.ON_DEMAND).value
    details = {"InstanceType": entry.instance_type, "GpuCount": entry.accelerators, "x_GpuModel": entry.accelerator}
    return _ChargePrice(
        list_cost=_EXACT.multiply(listed, hours),
        contracted_cost=_EXACT.multiply(price, hours),
        list_unit_price=listed,
        contracted_unit_price=price,
        category=_PRICING[entry.market or Market.ON_DEMAND],
        quantity=hours,
        unit=entry.unit,
        is_consumed=True,
        sku_id=entry.instance_type or "machine",
        sku_meter=SERVICES[CostItem.MACHINE][-1],
        sku_price_id=f"{entry.region}/{entry.instance_type}/{market}",
        sku_price_details={name: value for name, value in details.items() if value},
        on_demand_cost=None if on_demand is None else _EXACT.multiply(_EXACT.multiply(on_demand, hours), machines),
        gpu_hours=_EXACT.multiply(_EXACT.multiply(hours, gpus), machines) if gpus else None,
        gpu_model=entry.accelerator or None,
    )


def _description(entry: LedgerEntry) -> str:
    if entry.kind.is_added:
        return entry.reason
    if entry.what is CostItem.EGRESS:
        return f"copied {entry.reference}".strip()
    market = (entry.market.value if entry.market else "").replace("_", " ")
    words = [entry.instance_type, market] if entry.what is CostItem.MACHINE else [entry.what.value]
    use = entry.use.value.replace("_", " ") if entry.use else ""
    return ": ".join(part for part in (" ".join(filter(None, words)), use) if part) or entry.what.value


def _rounded(value: Fraction, places: int) -> Decimal:
    """Round half to even."""
    return Decimal(round(value * 10**places)).scaleb(-places, _EXACT).normalize(_EXACT)


@lru_cache(maxsize=1024)
def _parse_day(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _parse_month(text: str) -> Month | None:
    try:
        return Month.parse(text)
    except ValueError:
        return None
