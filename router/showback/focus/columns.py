"""Define the columns of FOCUS Cost and Usage: what each holds, since which version, and whether it may be null.

Source: the FOCUS 1.4 data model (https://focus.finops.org, ratified 2026-06-04) with the two columns that 1.4 removed.
A version older than a column does not have it; levels and nulls are those of 1.4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import StrEnum

from router.showback.focus import words


class Kind(StrEnum):
    """The kind of value that a column holds."""

    TEXT = "text"
    WORD = "word"  # one of ``words``
    UNIT = "unit"
    CURRENCY = "currency"  # ISO 4217
    DECIMAL = "decimal"
    MOMENT = "moment"  # UTC, to the second or finer
    JSON = "json"  # one object


class Level(StrEnum):
    """The requirement of a column in a file; CONDITIONAL: when the provider has what it is about."""

    MANDATORY = "mandatory"
    CONDITIONAL = "conditional"
    RECOMMENDED = "recommended"
    OWN = "own"  # ours, not the specification's; its name begins with x_


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    ``since`` and ``removed`` are versions, ``words`` the allowed words; a price is not negative. ``field`` is its name
    in :class:`~router.showback.focus.charge.Charge`: ``BilledCost`` is ``billed_cost``.
    """

    name: str
    kind: Kind
    level: Level
    since: str
    nullable: bool = True
    negative: bool = True
    words: frozenset[str] = frozenset()
    removed: str | None = None
    field: str = dataclass_field(init=False, repr=False)

    def __post_init__(self) -> None:
        is_own, name = self.name.startswith("x_"), self.name.removeprefix("x_")
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        # Computed once, for it is read with every cell that is written.
        object.__setattr__(self, "field", f"x_{snake}" if is_own else snake)


# In the order in which they are written.
FOCUS_COLUMNS: tuple[Column, ...] = (
    Column("BillingAccountId", Kind.TEXT, Level.MANDATORY, "1.0", nullable=False),
    Column("BillingAccountName", Kind.TEXT, Level.MANDATORY, "1.0"),
    Column("BillingAccountType", Kind.TEXT, Level.CONDITIONAL, "1.2", nullable=False),
    Column("SubAccountId", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("SubAccountName", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("SubAccountType", Kind.TEXT, Level.CONDITIONAL, "1.2"),
    Column("ProviderName", Kind.TEXT, Level.MANDATORY, "1.0", nullable=False, removed="1.4"),
    Column("PublisherName", Kind.TEXT, Level.MANDATORY, "1.0", nullable=False, removed="1.4"),
    Column("ServiceProviderName", Kind.TEXT, Level.MANDATORY, "1.3", nullable=False),
    Column("HostProviderName", Kind.TEXT, Level.MANDATORY, "1.3"),
    Column("InvoiceIssuerName", Kind.TEXT, Level.MANDATORY, "1.0", nullable=False),
    Column("InvoiceId", Kind.TEXT, Level.CONDITIONAL, "1.2"),
    Column("InvoiceDetailId", Kind.TEXT, Level.CONDITIONAL, "1.4"),
    Column("BillingPeriodStart", Kind.MOMENT, Level.MANDATORY, "1.0", nullable=False),
    Column("BillingPeriodEnd", Kind.MOMENT, Level.MANDATORY, "1.0", nullable=False),
    Column("ChargePeriodStart", Kind.MOMENT, Level.MANDATORY, "1.0", nullable=False),
    Column("ChargePeriodEnd", Kind.MOMENT, Level.MANDATORY, "1.0", nullable=False),
    Column("ChargeCategory", Kind.WORD, Level.MANDATORY, "1.0", nullable=False, words=words.CHARGE_CATEGORIES),
    Column("ChargeClass", Kind.WORD, Level.MANDATORY, "1.0", words=words.CHARGE_CLASSES),
    Column("ChargeDescription", Kind.TEXT, Level.MANDATORY, "1.0"),
    Column("ChargeFrequency", Kind.WORD, Level.RECOMMENDED, "1.0", nullable=False, words=words.CHARGE_FREQUENCIES),
    Column("BillingCurrency", Kind.CURRENCY, Level.MANDATORY, "1.0", nullable=False),
    Column("BilledCost", Kind.DECIMAL, Level.MANDATORY, "1.0", nullable=False),
    Column("EffectiveCost", Kind.DECIMAL, Level.MANDATORY, "1.0", nullable=False),
    Column("ListCost", Kind.DECIMAL, Level.MANDATORY, "1.0", nullable=False),
    Column("ListUnitPrice", Kind.DECIMAL, Level.CONDITIONAL, "1.0", negative=False),
    Column("ContractedCost", Kind.DECIMAL, Level.MANDATORY, "1.0", nullable=False),
    Column("ContractedUnitPrice", Kind.DECIMAL, Level.CONDITIONAL, "1.0", negative=False),
    Column("PricingCategory", Kind.WORD, Level.CONDITIONAL, "1.0", words=words.PRICING_CATEGORIES),
    Column("PricingQuantity", Kind.DECIMAL, Level.MANDATORY, "1.0"),
    Column("PricingUnit", Kind.UNIT, Level.MANDATORY, "1.0"),
    Column("PricingCurrency", Kind.CURRENCY, Level.CONDITIONAL, "1.2", nullable=False),
    Column("PricingCurrencyContractedUnitPrice", Kind.DECIMAL, Level.CONDITIONAL, "1.2", negative=False),
    Column("PricingCurrencyEffectiveCost", Kind.DECIMAL, Level.CONDITIONAL, "1.2", nullable=False),
    Column("PricingCurrencyListUnitPrice", Kind.DECIMAL, Level.CONDITIONAL, "1.2", negative=False),
    Column("ConsumedQuantity", Kind.DECIMAL, Level.CONDITIONAL, "1.0"),
    Column("ConsumedUnit", Kind.UNIT, Level.CONDITIONAL, "1.0"),
    Column("ServiceCategory", Kind.WORD, Level.MANDATORY, "1.0", nullable=False, words=words.SERVICE_CATEGORIES),
    Column("ServiceSubcategory", Kind.WORD, Level.RECOMMENDED, "1.1", nullable=False, words=words.SUBCATEGORIES),
    Column("ServiceName", Kind.TEXT, Level.MANDATORY, "1.0", nullable=False),
    Column("SkuId", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("SkuMeter", Kind.TEXT, Level.CONDITIONAL, "1.1"),
    Column("SkuPriceId", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("SkuPriceDetails", Kind.JSON, Level.CONDITIONAL, "1.1"),
    Column("ResourceId", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("ResourceName", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("ResourceType", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("RegionId", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("RegionName", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("AvailabilityZone", Kind.TEXT, Level.RECOMMENDED, "1.0"),
    Column("CommitmentDiscountId", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("CommitmentDiscountName", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("CommitmentDiscountCategory", Kind.WORD, Level.CONDITIONAL, "1.0", words=words.COMMITMENT_CATEGORIES),
    Column("CommitmentDiscountType", Kind.TEXT, Level.CONDITIONAL, "1.0"),
    Column("CommitmentDiscountStatus", Kind.WORD, Level.CONDITIONAL, "1.0", words=words.STATUSES),
    Column("CommitmentDiscountQuantity", Kind.DECIMAL, Level.CONDITIONAL, "1.1"),
    Column("CommitmentDiscountUnit", Kind.UNIT, Level.CONDITIONAL, "1.1"),
    Column("CommitmentProgramEligibilityDetails", Kind.JSON, Level.CONDITIONAL, "1.4"),
    Column("ContractApplied", Kind.JSON, Level.CONDITIONAL, "1.3"),
    Column("CapacityReservationId", Kind.TEXT, Level.CONDITIONAL, "1.1"),
    Column("CapacityReservationStatus", Kind.WORD, Level.CONDITIONAL, "1.1", words=words.STATUSES),
    Column("AllocatedMethodId", Kind.TEXT, Level.CONDITIONAL, "1.3"),
    Column("AllocatedMethodDetails", Kind.JSON, Level.RECOMMENDED, "1.3"),
    Column("AllocatedResourceId", Kind.TEXT, Level.CONDITIONAL, "1.3"),
    Column("AllocatedResourceName", Kind.TEXT, Level.CONDITIONAL, "1.3"),
    Column("AllocatedTags", Kind.JSON, Level.CONDITIONAL, "1.3"),
    Column("Tags", Kind.JSON, Level.CONDITIONAL, "1.0"),
)

# docs/bills.md says what each of ours means.
OWN_COLUMNS: tuple[Column, ...] = (
    Column("x_PlanId", Kind.TEXT, Level.OWN, "1.0"),
    Column("x_JobId", Kind.TEXT, Level.OWN, "1.0"),
    Column("x_Attempt", Kind.TEXT, Level.OWN, "1.0"),
    Column("x_RecordState", Kind.WORD, Level.OWN, "1.0", words=words.RECORD_STATES),
    Column("x_PriceObservedAt", Kind.MOMENT, Level.OWN, "1.0"),
    Column("x_PriceSource", Kind.TEXT, Level.OWN, "1.0"),
    Column("x_OnDemandEquivalentCost", Kind.DECIMAL, Level.OWN, "1.0"),
    Column("x_WasteKind", Kind.WORD, Level.OWN, "1.0", words=words.WASTE_KINDS),
    Column("x_GpuHours", Kind.DECIMAL, Level.OWN, "1.0"),
    Column("x_GpuModel", Kind.TEXT, Level.OWN, "1.0"),
    Column("x_UsefulUnits", Kind.DECIMAL, Level.OWN, "1.0"),
    Column("x_UsefulUnit", Kind.UNIT, Level.OWN, "1.0"),
    Column("x_SplitOriginId", Kind.TEXT, Level.OWN, "1.0"),
    Column("x_SplitOriginCost", Kind.DECIMAL, Level.OWN, "1.0"),
)

BY_NAME: dict[str, Column] = {column.name: column for column in (*FOCUS_COLUMNS, *OWN_COLUMNS)}

# Costs add up; each quantity has the unit beside it.
COSTS = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
UNIT_OF = {
    "PricingQuantity": "PricingUnit",
    "ConsumedQuantity": "ConsumedUnit",
    "CommitmentDiscountQuantity": "CommitmentDiscountUnit",
    "x_UsefulUnits": "x_UsefulUnit",
}
