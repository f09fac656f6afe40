"""Define a charge, and convert it to the cells of a row of any written version. Pure.

A charge is one row of FOCUS 1.4 Cost and Usage, with our own columns, as a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import Any

from router.showback.focus.columns import BY_NAME, FocusColumn, FocusColumnKind
from router.showback.focus.texts import Json, decimal_text, json_text, moment_text
from router.showback.focus.versions import NEWEST, RENAMED_COLUMNS, written_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The cost of something in a period, as ``columns.py`` describes each field (``BilledCost`` is ``billed_cost``).

    Fields that must not be null in 1.4 must be given. Costs are in the billing currency, moments in UTC, periods
    without their end; JSON columns are mappings of JSON values with Decimal in the place of floats. None is null, and
    "" is refused, for a file cannot tell them apart. ValueError for a field that no file could hold; ``check`` tests
    whether the amounts agree.
    """

    billing_account_id: str
    billing_account_name: str | None = None
    billing_account_type: str
    sub_account_id: str | None = None
    sub_account_name: str | None = None
    sub_account_type: str | None = None
    service_provider_name: str
    host_provider_name: str | None = None
    invoice_issuer_name: str
    invoice_id: str | None = None
    invoice_detail_id: str | None = None
    billing_period_start: datetime
    billing_period_end: datetime
    charge_period_start: datetime
    charge_period_end: datetime
    charge_category: str
    charge_class: str | None = None
    charge_description: str | None = None
    charge_frequency: str
    billing_currency: str
    billed_cost: Decimal
    effective_cost: Decimal
    list_cost: Decimal
    list_unit_price: Decimal | None = None
    contracted_cost: Decimal
    contracted_unit_price: Decimal | None = None
    pricing_category: str | None = None
    pricing_quantity: Decimal | None = None
    pricing_unit: str | None = None
    pricing_currency: str
    pricing_currency_contracted_unit_price: Decimal | None = None
    pricing_currency_effective_cost: Decimal
    pricing_currency_list_unit_price: Decimal | None = None
    consumed_quantity: Decimal | None = None
    consumed_unit: str | None = None
    service_category: str
    service_subcategory: str
    service_name: str
    sku_id: str | None = None
    sku_meter: str | None = None
    sku_price_id: str | None = None
    sku_price_details: Json | None = None
    resource_id: str | None = None
    resource_name: str | None = None
    resource_type: str | None = None
    region_id: str | None = None
    region_name: str | None = None
    availability_zone: str | None = None
    commitment_discount_id: str | None = None
    commitment_discount_name: str | None = None
    commitment_discount_category: str | None = None
    commitment_discount_type: str | None = None
    commitment_discount_status: str | None = None
    commitment_discount_quantity: Decimal | None = None
    commitment_discount_unit: str | None = None
    commitment_program_eligibility_details: Json | None = None
    contract_applied: Json | None = None
    capacity_reservation_id: str | None = None
    capacity_reservation_status: str | None = None
    allocated_method_id: str | None = None
    allocated_method_details: Json | None = None
    allocated_resource_id: str | None = None
    allocated_resource_name: str | None = None
    allocated_tags: Json | None = None
    tags: Json | None = None
    x_plan_id: str | None = None
    x_job_id: str | None = None
    x_attempt: str | None = None
    x_record_state: str | None = None
    x_price_observed_at: datetime | None = None
    x_price_source: str | None = None
    x_on_demand_equivalent_cost: Decimal | None = None
    x_waste_kind: str | None = None
    x_gpu_hours: Decimal | None = None
    x_gpu_model: str | None = None
    x_useful_units: Decimal | None = None
    x_useful_unit: str | None = None
    x_split_origin_id: str | None = None
    x_split_origin_cost: Decimal | None = None

    def __post_init__(self) -> None:
        # Most fields are null, and may be.
        for column, value in zip(_COLUMNS, _VALUES(self), strict=True):
            if (value is not None or not column.nullable) and (why := _fault(column, value)) is not None:
                raise ValueError(f"{column.name} {why}")


_COLUMNS = written_columns(NEWEST)


_VALUES = attrgetter(*(column.field for column in _COLUMNS))


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


def header_names(version: str) -> tuple[str, ...]:
    """Return the names of the columns that a file of that version has."""
    return tuple(column.name for column in written_columns(version))


def cell_values(charge: Charge, version: str) -> tuple[Any, ...]:
    """Return the cells for a typed file: text, Decimal and datetime, JSON objects as text; None is null."""
    fields, kinds = _row_getter(version)
    return tuple(
        json_text(value) if kind is FocusColumnKind.JSON and value is not None else value
        for value, kind in zip(fields(charge), kinds, strict=True)
    )


def cell_texts(charge: Charge, version: str) -> tuple[str, ...]:
    """Return the cells for a text file; null is an empty cell."""
    fields, kinds = _row_getter(version)
    return tuple("" if value is None else _text(value, kind) for value, kind in zip(fields(charge), kinds, strict=True))


@cache
def _row_getter(version: str) -> tuple[Callable[[Charge], tuple[Any, ...]], tuple[FocusColumnKind, ...]]:
    """Return the getter of a row's values from a charge, and the kinds of the values."""
    columns = written_columns(version)
    fields = attrgetter(*(BY_NAME[RENAMED_COLUMNS.get(column.name, column.name)].field for column in columns))
    return fields, tuple(column.kind for column in columns)


def _text(value: Any, kind: FocusColumnKind) -> str:
    if kind is FocusColumnKind.DECIMAL:
        return decimal_text(value)
    if kind is FocusColumnKind.JSON:
        return json_text(value)
    return moment_text(value) if kind is FocusColumnKind.MOMENT else str(value)
