"""Recognise bills in a cloud's own form by their columns, and say which FOCUS export to order there. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from router.showback.focus.versions import bare_name

_AWS = (
    "order FOCUS in Billing and Cost Management: Data Exports, Create, Standard data export, the newest table "
    "'FOCUS with AWS columns', Parquet or gzip; then import its folder or its manifest"
)
_AZURE = (
    "order FOCUS in Cost Management: Exports, Create, 'Cost and usage details (FOCUS)', which holds actual and "
    "amortized costs; then import the folder of a run"
)
_GOOGLE = (
    "FOCUS is a BigQuery view over the detailed and the pricing export, which Google publishes for Looker and "
    "BigQuery; make it, then EXPORT DATA of a month to Parquet or CSV"
)
_OCI = "take the files under 'FOCUS Reports' in Billing, Cost and Usage Reports, in place of those under 'reports'"


@dataclass(frozen=True, slots=True)
class NativeBill:
    """A form of bill: it has all columns of ``all_of``, and one of ``any_of`` where there are any."""

    name: str
    remedy: str
    all_of: frozenset[str]
    any_of: frozenset[str] = frozenset()


def _columns(*names: str) -> frozenset[str]:
    return frozenset(bare_name(name) for name in names)


# The first that fits is the one: CUR 2.0 has all columns of the older report that are looked for.
_NATIVE_BILLS = (
    NativeBill(
        "an AWS Cost and Usage Report 2.0",
        _AWS,
        _columns("line_item_usage_start_date"),
        _columns("bill_payer_account_name", "line_item_usage_account_name"),
    ),
    NativeBill(
        "an AWS Cost and Usage Report (legacy)",
        _AWS,
        frozenset(),
        _columns("lineItem/UsageStartDate", "line_item_usage_start_date", "identity/LineItemId"),
    ),
    NativeBill(
        "an Azure usage file of an Enterprise Agreement", _AZURE, _columns("MeterId", "ExtendedCost", "ResourceRate")
    ),
    NativeBill(
        "an Azure actual or amortized cost file",
        _AZURE,
        _columns("MeterId"),
        _columns("CostInBillingCurrency", "PreTaxCost", "Cost", "CostInPricingCurrency"),
    ),
    NativeBill(
        "Google Cloud's detailed or standard usage cost export",
        _GOOGLE,
        _columns("billing_account_id", "usage_start_time", "usage_end_time", "cost"),
    ),
    NativeBill("an OCI cost report", _OCI, _columns("lineItem/referenceNo", "lineItem/intervalUsageStart")),
)


def find_native_bill(header: Collection[str]) -> NativeBill | None:
    """Return the form of a bill that is not FOCUS; None where none is known."""
    names = frozenset(bare_name(name) for name in header)
    return next(
        (each for each in _NATIVE_BILLS if each.all_of <= names and (not each.any_of or each.any_of & names)), None
    )
