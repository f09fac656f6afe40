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


class FocusColumnKind(StrEnum):
    """The kind of value that a column holds."""

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
    in :class:`~router.showback.focus.charge.Charge`: ``BilledCost`` is ``billed_cost``.
    """

    name: str
    kind: FocusColumnKind
    level: ColumnRequirement
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
FOCUS_COLUMNS: tuple[FocusColumn, ...] = (
    FocusColumn("BillingAccountId", FocusColumnKind.TEXT, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("BillingAccountName", FocusColumnKind.TEXT, ColumnRequirement.MANDATORY, "1.0"),
    FocusColumn("BillingAccountType", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.2", nullable=False),
    FocusColumn("SubAccountId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("SubAccountName", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("SubAccountType", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.2"),
    FocusColumn(
        "ProviderName", FocusColumnKind.TEXT, ColumnRequirement.MANDATORY, "1.0", nullable=False, removed="1.4"
    ),
    FocusColumn(
        "PublisherName", FocusColumnKind.TEXT, ColumnRequirement.MANDATORY, "1.0", nullable=False, removed="1.4"
    ),
    FocusColumn("ServiceProviderName", FocusColumnKind.TEXT, ColumnRequirement.MANDATORY, "1.3", nullable=False),
    FocusColumn("HostProviderName", FocusColumnKind.TEXT, ColumnRequirement.MANDATORY, "1.3"),
    FocusColumn("InvoiceIssuerName", FocusColumnKind.TEXT, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("InvoiceId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.2"),
    FocusColumn("InvoiceDetailId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.4"),
    FocusColumn("BillingPeriodStart", FocusColumnKind.MOMENT, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("BillingPeriodEnd", FocusColumnKind.MOMENT, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("ChargePeriodStart", FocusColumnKind.MOMENT, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("ChargePeriodEnd", FocusColumnKind.MOMENT, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn(
        "ChargeCategory",
        FocusColumnKind.WORD,
        ColumnRequirement.MANDATORY,
        "1.0",
        nullable=False,
        words=words.CHARGE_CATEGORIES,
    ),
    FocusColumn("ChargeClass", FocusColumnKind.WORD, ColumnRequirement.MANDATORY, "1.0", words=words.CHARGE_CLASSES),
    FocusColumn("ChargeDescription", FocusColumnKind.TEXT, ColumnRequirement.MANDATORY, "1.0"),
    FocusColumn(
        "ChargeFrequency",
        FocusColumnKind.WORD,
        ColumnRequirement.RECOMMENDED,
        "1.0",
        nullable=False,
        words=words.CHARGE_FREQUENCIES,
    ),
    FocusColumn("BillingCurrency", FocusColumnKind.CURRENCY, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("BilledCost", FocusColumnKind.DECIMAL, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("EffectiveCost", FocusColumnKind.DECIMAL, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("ListCost", FocusColumnKind.DECIMAL, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("ListUnitPrice", FocusColumnKind.DECIMAL, ColumnRequirement.CONDITIONAL, "1.0", negative=False),
    FocusColumn("ContractedCost", FocusColumnKind.DECIMAL, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("ContractedUnitPrice", FocusColumnKind.DECIMAL, ColumnRequirement.CONDITIONAL, "1.0", negative=False),
    FocusColumn(
        "PricingCategory", FocusColumnKind.WORD, ColumnRequirement.CONDITIONAL, "1.0", words=words.PRICING_CATEGORIES
    ),
    FocusColumn("PricingQuantity", FocusColumnKind.DECIMAL, ColumnRequirement.MANDATORY, "1.0"),
    FocusColumn("PricingUnit", FocusColumnKind.UNIT, ColumnRequirement.MANDATORY, "1.0"),
    FocusColumn("PricingCurrency", FocusColumnKind.CURRENCY, ColumnRequirement.CONDITIONAL, "1.2", nullable=False),
    FocusColumn(
        "PricingCurrencyContractedUnitPrice",
        FocusColumnKind.DECIMAL,
        ColumnRequirement.CONDITIONAL,
        "1.2",
        negative=False,
    ),
    FocusColumn(
        "PricingCurrencyEffectiveCost", FocusColumnKind.DECIMAL, ColumnRequirement.CONDITIONAL, "1.2", nullable=False
    ),
    FocusColumn(
        "PricingCurrencyListUnitPrice", FocusColumnKind.DECIMAL, ColumnRequirement.CONDITIONAL, "1.2", negative=False
    ),
    FocusColumn("ConsumedQuantity", FocusColumnKind.DECIMAL, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("ConsumedUnit", FocusColumnKind.UNIT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn(
        "ServiceCategory",
        FocusColumnKind.WORD,
        ColumnRequirement.MANDATORY,
        "1.0",
        nullable=False,
        words=words.SERVICE_CATEGORIES,
    ),
    FocusColumn(
        "ServiceSubcategory",
        FocusColumnKind.WORD,
        ColumnRequirement.RECOMMENDED,
        "1.1",
        nullable=False,
        words=words.SUBCATEGORIES,
    ),
    FocusColumn("ServiceName", FocusColumnKind.TEXT, ColumnRequirement.MANDATORY, "1.0", nullable=False),
    FocusColumn("SkuId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("SkuMeter", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.1"),
    FocusColumn("SkuPriceId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("SkuPriceDetails", FocusColumnKind.JSON, ColumnRequirement.CONDITIONAL, "1.1"),
    FocusColumn("ResourceId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("ResourceName", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("ResourceType", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("RegionId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("RegionName", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("AvailabilityZone", FocusColumnKind.TEXT, ColumnRequirement.RECOMMENDED, "1.0"),
    FocusColumn("CommitmentDiscountId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn("CommitmentDiscountName", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn(
        "CommitmentDiscountCategory",
        FocusColumnKind.WORD,
        ColumnRequirement.CONDITIONAL,
        "1.0",
        words=words.COMMITMENT_CATEGORIES,
    ),
    FocusColumn("CommitmentDiscountType", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.0"),
    FocusColumn(
        "CommitmentDiscountStatus", FocusColumnKind.WORD, ColumnRequirement.CONDITIONAL, "1.0", words=words.STATUSES
    ),
    FocusColumn("CommitmentDiscountQuantity", FocusColumnKind.DECIMAL, ColumnRequirement.CONDITIONAL, "1.1"),
    FocusColumn("CommitmentDiscountUnit", FocusColumnKind.UNIT, ColumnRequirement.CONDITIONAL, "1.1"),
    FocusColumn("CommitmentProgramEligibilityDetails", FocusColumnKind.JSON, ColumnRequirement.CONDITIONAL, "1.4"),
    FocusColumn("ContractApplied", FocusColumnKind.JSON, ColumnRequirement.CONDITIONAL, "1.3"),
    FocusColumn("CapacityReservationId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.1"),
    FocusColumn(
        "CapacityReservationStatus", FocusColumnKind.WORD, ColumnRequirement.CONDITIONAL, "1.1", words=words.STATUSES
    ),
    FocusColumn("AllocatedMethodId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.3"),
    FocusColumn("AllocatedMethodDetails", FocusColumnKind.JSON, ColumnRequirement.RECOMMENDED, "1.3"),
    FocusColumn("AllocatedResourceId", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.3"),
    FocusColumn("AllocatedResourceName", FocusColumnKind.TEXT, ColumnRequirement.CONDITIONAL, "1.3"),
    FocusColumn("AllocatedTags", FocusColumnKind.JSON, ColumnRequirement.CONDITIONAL, "1.3"),
    FocusColumn("Tags", FocusColumnKind.JSON, ColumnRequirement.CONDITIONAL, "1.0"),
)

# docs/bills.md says what each of ours means.
OWN_COLUMNS: tuple[FocusColumn, ...] = (
    FocusColumn("x_PlanId", FocusColumnKind.TEXT, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_JobId", FocusColumnKind.TEXT, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_Attempt", FocusColumnKind.TEXT, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_RecordState", FocusColumnKind.WORD, ColumnRequirement.OWN, "1.0", words=words.RECORD_STATES),
    FocusColumn("x_PriceObservedAt", FocusColumnKind.MOMENT, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_PriceSource", FocusColumnKind.TEXT, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_OnDemandEquivalentCost", FocusColumnKind.DECIMAL, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_WasteKind", FocusColumnKind.WORD, ColumnRequirement.OWN, "1.0", words=words.WASTE_KINDS),
    FocusColumn("x_GpuHours", FocusColumnKind.DECIMAL, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_GpuModel", FocusColumnKind.TEXT, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_UsefulUnits", FocusColumnKind.DECIMAL, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_UsefulUnit", FocusColumnKind.UNIT, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_SplitOriginId", FocusColumnKind.TEXT, ColumnRequirement.OWN, "1.0"),
    FocusColumn("x_SplitOriginCost", FocusColumnKind.DECIMAL, ColumnRequirement.OWN, "1.0"),
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
