"""Define a charge and the columns of FOCUS Cost and Usage: what each holds, which words, since which version. Pure.

A charge is one row of FOCUS 1.4 Cost and Usage, with our own columns, as a value; the columns are read from its fields.
Source: the FOCUS 1.4 data model (https://focus.finops.org, ratified 2026-06-04) with the two columns that 1.4 removed.
A version older than a column does not have it; levels and nulls are those of 1.4. 1.3 named who sells and whose
hardware it is (ServiceProviderName, HostProviderName) where ProviderName and PublisherName had stood; 1.4 removed the
old names. Nothing else was renamed: going up adds empty columns, going down drops columns. Currencies are those
of ISO 4217 in use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cache, partial
from operator import attrgetter
from types import UnionType
from typing import Annotated, Final, get_args, get_type_hints

from router.ledger.entry import LedgerEntryKind, MachineUse
from router.showback.focus.texts import Json

CHARGE_CATEGORIES = frozenset({"Usage", "Purchase", "Tax", "Credit", "Adjustment"})
# The ChargeCategory of an entry of the ledger. A planned one is no charge.
CATEGORY_OF_ENTRY = {
    LedgerEntryKind.METERED: "Usage",
    LedgerEntryKind.FEE: "Purchase",
    LedgerEntryKind.CREDIT: "Credit",
    LedgerEntryKind.TAX: "Tax",
    LedgerEntryKind.ADJUSTMENT: "Adjustment",
}
CHARGE_CLASSES = frozenset({"Correction"})
CHARGE_FREQUENCIES = frozenset({"One-Time", "Recurring", "Usage-Based"})
PRICING_CATEGORIES = frozenset({"Standard", "Dynamic", "Committed", "Other"})
COMMITMENT_CATEGORIES = frozenset({"Spend", "Usage"})
STATUSES = frozenset({"Used", "Unused"})


class RecordState(StrEnum):
    """The finality of an amount (x_RecordState): metered by us, on a bill that may still be restated, invoiced."""

    ESTIMATED = "Estimated"
    PROVISIONAL = "Provisional"
    INVOICED = "Invoiced"


RECORD_STATES = frozenset(state.value for state in RecordState)
WASTE_KINDS = frozenset(use.value for use in MachineUse if use.is_waste)

# Each subcategory of a service belongs to one category.
_SUBCATEGORIES: dict[str, tuple[str, ...]] = {
    "AI and Machine Learning": (
        "AI Platforms", "Bots", "Generative AI", "Machine Learning", "Natural Language Processing",
        "Other (AI and Machine Learning)",
    ),
    "Analytics": (
        "Analytics Platforms", "Business Intelligence", "Data Processing", "Other (Analytics)", "Search",
        "Streaming Analytics",
    ),
    "Business Applications": ("Other (Business Applications)", "Productivity and Collaboration"),
    "Compute": (
        "Containers", "End User Computing", "Other (Compute)", "Quantum Compute", "Serverless Compute",
        "Virtual Machines",
    ),
    "Databases": (
        "Caching", "Data Warehouses", "Ledger Databases", "NoSQL Databases", "Other (Databases)",
        "Relational Databases", "Time Series Databases",
    ),
    "Developer Tools": (
        "Continuous Integration and Deployment", "Developer Platforms", "Development Environments",
        "Other (Developer Tools)", "Quality Assurance", "Source Code Management",
    ),
    "Multicloud": ("Multicloud Integration", "Other (Multicloud)"),
    "Identity": ("Identity and Access Management", "Other (Identity)"),
    "Integration": ("API Management", "Messaging", "Other (Integration)", "Workflow Orchestration"),
    "Internet of Things": ("IoT Analytics", "IoT Platforms", "Other (Internet of Things)"),
    "Management and Governance": (
        "Architecture", "Compliance", "Cost Management", "Data Governance", "Disaster Recovery",
        "Endpoint Management", "Observability", "Other (Management and Governance)", "Support",
    ),
    "Media": ("Content Creation", "Gaming", "Media Streaming", "Mixed Reality", "Other (Media)"),
    "Migration": ("Data Migration", "Other (Migration)", "Resource Migration"),
    "Mobile": ("Other (Mobile)",),
    "Networking": (
        "Application Networking", "Content Delivery", "Network Connectivity", "Network Infrastructure",
        "Network Routing", "Network Security", "Other (Networking)",
    ),
    "Security": (
        "Other (Security)", "Secret Management", "Security Posture Management", "Threat Detection and Response",
    ),
    "Storage": (
        "Backup Storage", "Block Storage", "File Storage", "Object Storage", "Other (Storage)", "Storage Platforms",
    ),
    "Web": ("Application Platforms", "Other (Web)"),
    "Other": ("Other (Other)",),
}  # fmt: skip

SERVICE_CATEGORIES = frozenset(_SUBCATEGORIES)
CATEGORY_OF: dict[str, str] = {name: category for category, names in _SUBCATEGORIES.items() for name in names}
SUBCATEGORIES = frozenset(CATEGORY_OF)

# Keys that SkuPriceDetails may have without x_ before the name.
SKU_DETAILS = frozenset(
    {
        "CoreCount",
        "DiskMaxIops",
        "DiskSpace",
        "DiskType",
        "GpuCount",
        "InstanceType",
        "InstanceSeries",
        "MemorySize",
        "NetworkMaxIops",
        "NetworkMaxThroughput",
        "OperatingSystem",
        "Redundancy",
        "StorageClass",
    }
)
ALLOCATION_DETAILS = frozenset({"AllocatedRatio", "UsageUnit", "UsageQuantity"})

_CURRENCIES = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD
    CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL
    GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD
    KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO
    NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD
    SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV
    WST XAF XAG XAU XBA XBB XBC XBD XCD XCG XDR XOF XPD XPF XPT XSU XTS XUA XXX YER ZAR ZMW ZWG
"""
CURRENCIES = frozenset(_CURRENCIES.split())


class FocusColumnKind(StrEnum):
    TEXT = "text"
    WORD = "word"  # one of ``words``
    UNIT = "unit"
    CURRENCY = "currency"  # ISO 4217
    DECIMAL = "decimal"
    MOMENT = "moment"  # UTC, to the second or finer
    JSON = "json"  # one object


class ColumnRequirement(StrEnum):
    """The requirement of a column in a file; CONDITIONAL: when the provider has what it is about."""

    MANDATORY = "mandatory"
    CONDITIONAL = "conditional"
    RECOMMENDED = "recommended"
    OWN = "own"  # ours, not the specification's; its name begins with x_


@dataclass(frozen=True, slots=True)
class FocusColumn:
    """One column.

    ``since`` and ``removed`` are versions, ``words`` the allowed words; a price is not negative. ``field`` is its name
    in :class:`Charge`: ``BilledCost`` is ``billed_cost``.
    """

    level: ColumnRequirement
    since: str = "1.0"
    kind: FocusColumnKind = FocusColumnKind.TEXT
    words: frozenset[str] = frozenset()
    negative: bool = True
    nullable: bool = True
    removed: str | None = None
    field: str = ""
    name: str = dataclass_field(init=False)

    def __post_init__(self) -> None:
        # Computed once, for it is read with every cell that is written.
        prefix = "x_" if self.field.startswith("x_") else ""
        name = "".join(part.capitalize() for part in self.field.removeprefix("x_").split("_"))
        object.__setattr__(self, "name", f"{prefix}{name}")


# A column as its field says it, in which its name and what follows from its type are left out.
_MANDATORY = partial(FocusColumn, ColumnRequirement.MANDATORY)
_CONDITIONAL = partial(FocusColumn, ColumnRequirement.CONDITIONAL)
_RECOMMENDED = partial(FocusColumn, ColumnRequirement.RECOMMENDED)
_OWN = partial(FocusColumn, ColumnRequirement.OWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The cost of something in a period; ``billed_cost`` is the column ``BilledCost``, in the order of a file.

    Fields that must not be null in 1.4 must be given. Costs are in the billing currency, moments in UTC, periods
    without their end; JSON columns are mappings of JSON values with Decimal in the place of floats. None is null, and
    "" is refused, for a file cannot tell them apart. ValueError for a field that no file could hold; ``check`` tests
    whether the amounts agree.
    """

    billing_account_id: Annotated[str, _MANDATORY()]
    billing_account_name: Annotated[str | None, _MANDATORY()] = None
    billing_account_type: Annotated[str, _CONDITIONAL("1.2")]
    sub_account_id: Annotated[str | None, _CONDITIONAL()] = None
    sub_account_name: Annotated[str | None, _CONDITIONAL()] = None
    sub_account_type: Annotated[str | None, _CONDITIONAL("1.2")] = None
    service_provider_name: Annotated[str, _MANDATORY("1.3")]
    host_provider_name: Annotated[str | None, _MANDATORY("1.3")] = None
    invoice_issuer_name: Annotated[str, _MANDATORY()]
    invoice_id: Annotated[str | None, _CONDITIONAL("1.2")] = None
    invoice_detail_id: Annotated[str | None, _CONDITIONAL("1.4")] = None
    billing_period_start: Annotated[datetime, _MANDATORY()]
    billing_period_end: Annotated[datetime, _MANDATORY()]
    charge_period_start: Annotated[datetime, _MANDATORY()]
    charge_period_end: Annotated[datetime, _MANDATORY()]
    charge_category: Annotated[str, _MANDATORY(words=CHARGE_CATEGORIES)]
    charge_class: Annotated[str | None, _MANDATORY(words=CHARGE_CLASSES)] = None
    charge_description: Annotated[str | None, _MANDATORY()] = None
    charge_frequency: Annotated[str, _RECOMMENDED(words=CHARGE_FREQUENCIES)]
    billing_currency: Annotated[str, _MANDATORY(kind=FocusColumnKind.CURRENCY)]
    billed_cost: Annotated[Decimal, _MANDATORY()]
    effective_cost: Annotated[Decimal, _MANDATORY()]
    list_cost: Annotated[Decimal, _MANDATORY()]
    list_unit_price: Annotated[Decimal | None, _CONDITIONAL(negative=False)] = None
    contracted_cost: Annotated[Decimal, _MANDATORY()]
    contracted_unit_price: Annotated[Decimal | None, _CONDITIONAL(negative=False)] = None
    pricing_category: Annotated[str | None, _CONDITIONAL(words=PRICING_CATEGORIES)] = None
    pricing_quantity: Annotated[Decimal | None, _MANDATORY()] = None
    pricing_unit: Annotated[str | None, _MANDATORY(kind=FocusColumnKind.UNIT)] = None
    pricing_currency: Annotated[str, _CONDITIONAL("1.2", kind=FocusColumnKind.CURRENCY)]
    pricing_currency_contracted_unit_price: Annotated[Decimal | None, _CONDITIONAL("1.2", negative=False)] = None
    pricing_currency_effective_cost: Annotated[Decimal, _CONDITIONAL("1.2")]
    pricing_currency_list_unit_price: Annotated[Decimal | None, _CONDITIONAL("1.2", negative=False)] = None
    consumed_quantity: Annotated[Decimal | None, _CONDITIONAL()] = None
    consumed_unit: Annotated[str | None, _CONDITIONAL(kind=FocusColumnKind.UNIT)] = None
    service_category: Annotated[str, _MANDATORY(words=SERVICE_CATEGORIES)]
    service_subcategory: Annotated[str, _RECOMMENDED("1.1", words=SUBCATEGORIES)]
    service_name: Annotated[str, _MANDATORY()]
    sku_id: Annotated[str | None, _CONDITIONAL()] = None
    sku_meter: Annotated[str | None, _CONDITIONAL("1.1")] = None
    sku_price_id: Annotated[str | None, _CONDITIONAL()] = None
    sku_price_details: Annotated[Json | None, _CONDITIONAL("1.1")] = None
    resource_id: Annotated[str | None, _CONDITIONAL()] = None
    resource_name: Annotated[str | None, _CONDITIONAL()] = None
    resource_type: Annotated[str | None, _CONDITIONAL()] = None
    region_id: Annotated[str | None, _CONDITIONAL()] = None
    region_name: Annotated[str | None, _CONDITIONAL()] = None
    availability_zone: Annotated[str | None, _RECOMMENDED()] = None
    commitment_discount_id: Annotated[str | None, _CONDITIONAL()] = None
    commitment_discount_name: Annotated[str | None, _CONDITIONAL()] = None
    commitment_discount_category: Annotated[str | None, _CONDITIONAL(words=COMMITMENT_CATEGORIES)] = None
    commitment_discount_type: Annotated[str | None, _CONDITIONAL()] = None
    commitment_discount_status: Annotated[str | None, _CONDITIONAL(words=STATUSES)] = None
    commitment_discount_quantity: Annotated[Decimal | None, _CONDITIONAL("1.1")] = None
    commitment_discount_unit: Annotated[str | None, _CONDITIONAL("1.1", kind=FocusColumnKind.UNIT)] = None
    commitment_program_eligibility_details: Annotated[Json | None, _CONDITIONAL("1.4")] = None
    contract_applied: Annotated[Json | None, _CONDITIONAL("1.3")] = None
    capacity_reservation_id: Annotated[str | None, _CONDITIONAL("1.1")] = None
    capacity_reservation_status: Annotated[str | None, _CONDITIONAL("1.1", words=STATUSES)] = None
    allocated_method_id: Annotated[str | None, _CONDITIONAL("1.3")] = None
    allocated_method_details: Annotated[Json | None, _RECOMMENDED("1.3")] = None
    allocated_resource_id: Annotated[str | None, _CONDITIONAL("1.3")] = None
    allocated_resource_name: Annotated[str | None, _CONDITIONAL("1.3")] = None
    allocated_tags: Annotated[Json | None, _CONDITIONAL("1.3")] = None
    tags: Annotated[Json | None, _CONDITIONAL()] = None
    # docs/bills.md says what each of ours means.
    x_plan_id: Annotated[str | None, _OWN()] = None
    x_job_id: Annotated[str | None, _OWN()] = None
    x_attempt: Annotated[str | None, _OWN()] = None
    x_record_state: Annotated[str | None, _OWN(words=RECORD_STATES)] = None
    x_price_observed_at: Annotated[datetime | None, _OWN()] = None
    x_price_source: Annotated[str | None, _OWN()] = None
    x_on_demand_equivalent_cost: Annotated[Decimal | None, _OWN()] = None
    x_waste_kind: Annotated[str | None, _OWN(words=WASTE_KINDS)] = None
    x_gpu_hours: Annotated[Decimal | None, _OWN()] = None
    x_gpu_model: Annotated[str | None, _OWN()] = None
    x_useful_units: Annotated[Decimal | None, _OWN()] = None
    x_useful_unit: Annotated[str | None, _OWN(kind=FocusColumnKind.UNIT)] = None
    x_split_origin_id: Annotated[str | None, _OWN()] = None
    x_split_origin_cost: Annotated[Decimal | None, _OWN()] = None

    def __post_init__(self) -> None:
        # Most fields are null, and may be.
        for column, value in zip(_CHARGE_COLUMNS, _VALUES(self), strict=True):
            if (value is not None or not column.nullable) and (why := _fault(column, value)) is not None:
                raise ValueError(f"{column.name} {why}")


def _fault(column: FocusColumn, value: object) -> str | None:
    if column.kind is FocusColumnKind.DECIMAL:
        valid = isinstance(value, Decimal) and value.is_finite()
        return None if valid else f"is not a finite Decimal: {value!r}"
    if column.kind is FocusColumnKind.MOMENT:
        valid = isinstance(value, datetime) and value.utcoffset() == timedelta(0)
        return None if valid else f"is not a moment in UTC: {value!r}"
    if column.kind is FocusColumnKind.JSON:
        return None if isinstance(value, Mapping) else f"is not a mapping: {value!r}"
    if not isinstance(value, str):
        return f"is not text: {value!r}"
    return None if value and "\0" not in value else f"is empty or holds NUL: {value!r}"


_KINDS = {Decimal: FocusColumnKind.DECIMAL, datetime: FocusColumnKind.MOMENT, Json: FocusColumnKind.JSON}


def _read_columns() -> Iterator[FocusColumn]:
    for name, hint in get_type_hints(Charge, include_extras=True).items():
        type_, column = get_args(hint)
        nullable = isinstance(type_, UnionType)
        plain = FocusColumnKind.WORD if column.words else column.kind
        kind = _KINDS.get(get_args(type_)[0] if nullable else type_, plain)
        yield replace(column, field=name, kind=kind, nullable=nullable)


_CHARGE_COLUMNS = tuple(_read_columns())
_VALUES = attrgetter(*(column.field for column in _CHARGE_COLUMNS))
_REMOVED_COLUMNS = tuple(
    _MANDATORY(nullable=False, removed="1.4", field=name) for name in ("provider_name", "publisher_name")
)
_NEWEST_COLUMNS = tuple(column for column in _CHARGE_COLUMNS if column.level is not ColumnRequirement.OWN)
_PLACE = [column.field for column in _NEWEST_COLUMNS].index("service_provider_name")
# In the order in which they are written: the removed ones stand before those that took their places.
FOCUS_COLUMNS: tuple[FocusColumn, ...] = (
    *_NEWEST_COLUMNS[:_PLACE],
    *_REMOVED_COLUMNS,
    *_NEWEST_COLUMNS[_PLACE:],
)
OWN_COLUMNS: tuple[FocusColumn, ...] = tuple(
    column for column in _CHARGE_COLUMNS if column.level is ColumnRequirement.OWN
)

BY_NAME: dict[str, FocusColumn] = {column.name: column for column in (*FOCUS_COLUMNS, *OWN_COLUMNS)}

# Costs add up; each quantity has the unit beside it.
COSTS = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
PERIODS = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")
UNIT_OF = {
    "PricingQuantity": "PricingUnit",
    "ConsumedQuantity": "ConsumedUnit",
    "CommitmentDiscountQuantity": "CommitmentDiscountUnit",
    "x_UsefulUnits": "x_UsefulUnit",
}


VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
NEWEST = "1.4"
# What OCI writes: names of a preview of 1.0.
_PREVIEW_NAMES = {
    "Provider": "ProviderName",
    "Publisher": "PublisherName",
    "InvoiceIssuer": "InvoiceIssuerName",
    "Region": "RegionId",
    "UsageQuantity": "ConsumedQuantity",
    "UsageUnit": "ConsumedUnit",
}
_OCI = "oci_"
RENAMED_COLUMNS = {"ProviderName": "ServiceProviderName", "PublisherName": "HostProviderName"}

# Without these a file is not Cost and Usage; no other FOCUS data set has them.
_REQUIRED = frozenset({"BilledCost", "EffectiveCost", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory"})


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@cache
def columns_of(version: str) -> tuple[FocusColumn, ...]:
    """Return the columns of FOCUS ``version`` in their written order; KeyError for an unknown version."""
    if version not in VERSIONS:
        raise KeyError(version)
    at = _number(version)
    return tuple(
        column
        for column in FOCUS_COLUMNS
        if _number(column.since) <= at and (column.removed is None or at < _number(column.removed))
    )


@cache
def written_columns(version: str) -> tuple[FocusColumn, ...]:
    """Return the columns of a file of ours of that version: all columns of FOCUS, then ours."""
    return (*columns_of(version), *OWN_COLUMNS)


# The names of the columns of a stored bill that every bill has.
NEWEST_NAMES: Final = tuple(column.name for column in written_columns(NEWEST))


def bare_name(name: str) -> str:
    """Return the name of a column without capitals, blanks, dashes and underscores."""
    return name.casefold().translate(str.maketrans("", "", " -_"))


_BY_BARE_NAME = {bare_name(name): name for name in BY_NAME}


def find_column(name: str) -> str | None:
    """Return the column of FOCUS, or ours, that a name means, whatever its capitals and blanks; None for none."""
    return _BY_BARE_NAME.get(bare_name(name))


def match_names(header: Sequence[str]) -> dict[str, list[str]]:
    """Map each column that a header writes in another way than FOCUS does to the names that it has there."""
    of_oci = any(name.casefold().startswith(_OCI) for name in header)
    names_by_column: dict[str, list[str]] = {}
    for name in header:
        column = find_column(name) or (_PREVIEW_NAMES.get(name) if of_oci else None)
        if column is not None and column != name and column not in header:
            names_by_column.setdefault(column, []).append(name)
    return names_by_column


def detect_version(header: Collection[str]) -> str | None:
    """Return the oldest version that has the newest FOCUS column of a header; None for no Cost and Usage file.

    A header without ProviderName and PublisherName that has what replaced them is 1.4, even with no column that is new
    in 1.4: in 1.3 the old names were still mandatory.
    """
    names = frozenset(header)
    if _REQUIRED - names:
        return None
    known = [column for column in FOCUS_COLUMNS if column.name in names and column.removed is None]
    version = max((column.since for column in known), key=_number)
    return NEWEST if version == "1.3" and not names & RENAMED_COLUMNS.keys() else version


def match_columns(header: Collection[str]) -> dict[str, str]:
    """Map each column of the newest version, and ours, that a header can fill to the column of the header."""
    names = frozenset(header)
    filled = {column.name: column.name for column in written_columns(NEWEST) if column.name in names}
    for old, new in RENAMED_COLUMNS.items():
        if old in names:
            filled.setdefault(new, old)
    return filled
