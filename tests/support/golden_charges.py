"""The golden charges of tests/golden/focus/november.csv, whose rows say what is particular and whose words say the
rest."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from router.showback.focus.columns import Charge
from tests.support.repository import ROOT

GOLDEN = ROOT / "tests" / "golden" / "focus" / "november.csv"
START, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
_GPUS = 8
_SECONDS = 3600

Said = dict[str, Any]
_AWS: Said = {
    "billing_account_id": "111122223333",
    "billing_account_name": "Training",
    "billing_account_type": "Payer Account",
    "sub_account_id": "000044445555",
    "sub_account_name": "research",
    "sub_account_type": "Linked Account",
    "service_provider_name": "AWS",
    "host_provider_name": "AWS",
    "invoice_issuer_name": "AWS",
    "billing_currency": "USD",
    "region_id": "us-east-1",
    "region_name": "US East (N. Virginia)",
    "availability_zone": "us-east-1a",
    "x_record_state": "Estimated",
}
_GCP: Said = {
    "billing_account_id": "01A2B3-C4D5E6-F7A8B9",
    "billing_account_name": "Training",
    "billing_account_type": "Billing Account",
    "sub_account_id": "training-prod",
    "sub_account_name": "training-prod",
    "sub_account_type": "Project",
    "service_provider_name": "Google Cloud",
    "host_provider_name": "Google Cloud",
    "invoice_issuer_name": "Google Cloud",
    "billing_currency": "USD",
    "region_id": "us-central1",
    "region_name": "Iowa",
    "availability_zone": "us-central1-a",
    "x_record_state": "Provisional",
}
_NEBIUS: Said = {
    "billing_account_id": "contract-77",
    "billing_account_name": "Training EU",
    "billing_account_type": "Contract",
    "sub_account_id": "project-9",
    "sub_account_name": "tts",
    "sub_account_type": "Project",
    "service_provider_name": "Nebius",
    "host_provider_name": "Nebius",
    "invoice_issuer_name": "Nebius",
    "billing_currency": "EUR",
    "region_id": "eu-north1",
    "region_name": "Finland",
    "x_record_state": "Invoiced",
    "invoice_id": "NB-2026-11",
    "invoice_detail_id": "NB-2026-11-1",
}
_NODE: Said = {
    "service_category": "Compute",
    "service_subcategory": "Virtual Machines",
    "pricing_unit": "Hours",
    "resource_type": "Instance",
    "sku_meter": "Instance hours",
    "x_gpu_model": "H100",
    "x_price_source": "price book 3f2a90c1",
    "x_price_observed_at": datetime(2026, 11, 3, tzinfo=UTC),
}
_P5: Said = {
    **_AWS,
    **_NODE,
    "service_name": "Amazon EC2",
    "sku_id": "p5.48xlarge",
    "sku_price_details": {"InstanceType": "p5.48xlarge", "GpuCount": 8, "CoreCount": 192, "x_GpuModel": "H100"},
}
_A3: Said = {
    **_GCP,
    **_NODE,
    "service_name": "Compute Engine",
    "sku_id": "a3-highgpu-8g",
    "sku_price_details": {"InstanceType": "a3-highgpu-8g", "GpuCount": 8, "CoreCount": 208, "x_GpuModel": "H100"},
}
_COMMITMENT: Said = {
    "commitment_discount_id": "sp-1",
    "commitment_discount_name": "a year of H100",
    "commitment_discount_category": "Spend",
    "commitment_discount_type": "Savings Plan",
    "commitment_discount_unit": "USD",
}
_PLAN: Said = {
    **_AWS,
    **_COMMITMENT,
    "service_category": "Compute",
    "service_subcategory": "Virtual Machines",
    "service_name": "Amazon EC2",
    "pricing_unit": "USD",
    "sku_id": "savings-plan",
    "sku_price_id": "savings-plan-1y",
    "sku_meter": "Commitment",
    "resource_type": "Savings Plan",
    "availability_zone": None,
}
_OBJECTS: Said = {
    "service_category": "Storage",
    "service_subcategory": "Object Storage",
    "pricing_unit": "GB-Months",
    "sku_id": "objects",
    "sku_price_id": "objects-standard",
    "sku_meter": "Stored",
    "resource_type": "Bucket",
    "pricing_category": "Standard",
    "availability_zone": None,
}
_EGRESS: Said = {
    "service_category": "Networking",
    "service_subcategory": "Network Connectivity",
    "pricing_unit": "GB",
    "sku_id": "egress",
    "sku_price_id": "egress-internet",
    "sku_meter": "Transferred",
    "pricing_category": "Standard",
    "availability_zone": None,
    "charge_description": "data transfer out",
}
_TAX: Said = {
    "charge_category": "Tax",
    "charge_frequency": "One-Time",
    "region_id": None,
    "region_name": None,
    "availability_zone": None,
}
_VM: Said = {"service_category": "Compute", "service_subcategory": "Virtual Machines"}
_NOWHERE: Said = {"region_id": None, "region_name": None, "availability_zone": None}

WHAT: dict[str, Said] = {
    "aws-spot": {**_P5, "pricing_category": "Dynamic", "sku_price_id": "p5-spot"},
    "aws-ondemand": {**_P5, "pricing_category": "Standard", "sku_price_id": "p5-on-demand"},
    "gcp-spot": {**_A3, "pricing_category": "Dynamic", "sku_price_id": "a3-spot"},
    "gcp-reserved": {
        **_A3,
        "pricing_category": "Standard",
        "sku_price_id": "a3-on-demand",
        "capacity_reservation_id": "cr-1",
        "capacity_reservation_status": "Used",
    },
    "gcp-reserved-unused": {
        **_A3,
        "pricing_category": "Standard",
        "sku_price_id": "a3-on-demand",
        "resource_type": "Reservation",
        "capacity_reservation_id": "cr-1",
        "capacity_reservation_status": "Unused",
    },
    "nebius-ondemand": {
        **_NEBIUS,
        **_NODE,
        "service_name": "Compute Cloud",
        "pricing_category": "Standard",
        "sku_id": "gpu-h100-8",
        "sku_price_id": "gpu-h100-8-on-demand",
        "sku_price_details": {"GpuCount": 8, "x_GpuModel": "H100"},
    },
    "aws-used": {
        **_P5,
        **_COMMITMENT,
        "pricing_category": "Committed",
        "sku_price_id": "p5-on-demand",
        "commitment_discount_status": "Used",
        "commitment_discount_quantity": Decimal(30),
    },
    "aws-unused": {
        **_PLAN,
        "pricing_category": "Committed",
        "commitment_discount_status": "Unused",
        "commitment_discount_quantity": Decimal(30),
    },
    "aws-commitment": {
        **_PLAN,
        "charge_category": "Purchase",
        "charge_frequency": "Recurring",
        "pricing_category": "Standard",
        "commitment_discount_quantity": Decimal(30),
    },
    "aws-shared": {
        **_P5,
        "pricing_category": "Standard",
        "sku_price_id": "p5-on-demand",
        "allocated_method_id": "gpu-seconds-v1",
    },
    "aws-disk": {
        **_AWS,
        "service_category": "Storage",
        "service_subcategory": "Block Storage",
        "service_name": "Amazon EBS",
        "pricing_unit": "GB-Months",
        "sku_id": "gp3",
        "sku_price_id": "gp3-standard",
        "sku_meter": "Stored",
        "resource_type": "Volume",
        "pricing_category": "Standard",
    },
    "aws-objects": {**_AWS, **_OBJECTS, "service_name": "Amazon S3"},
    "nebius-objects": {**_NEBIUS, **_OBJECTS, "service_name": "Object Storage"},
    "aws-egress": {**_AWS, **_EGRESS, "service_name": "AWS Data Transfer", "resource_type": "Bucket"},
    "gcp-egress": {**_GCP, **_EGRESS, "service_name": "Networking", "resource_type": "Instance"},
    "aws-tokens": {
        **_AWS,
        "service_category": "AI and Machine Learning",
        "service_subcategory": "Generative AI",
        "service_name": "Amazon Bedrock",
        "pricing_unit": "1000 Tokens",
        "sku_id": "model-1",
        "sku_meter": "Tokens",
        "sku_price_id": "model-1-on-demand",
        "resource_type": "Model",
        "pricing_category": "Standard",
        "availability_zone": None,
    },
    "aws-support": {
        **_AWS,
        **_NOWHERE,
        "service_category": "Management and Governance",
        "service_subcategory": "Support",
        "service_name": "Support",
        "charge_category": "Purchase",
        "charge_frequency": "Recurring",
        "pricing_unit": "Months",
        "pricing_category": "Standard",
        "sku_id": "support",
        "sku_price_id": "support-month",
        "sku_meter": "Months",
    },
    "aws-credit": {
        **_AWS,
        **_VM,
        **_NOWHERE,
        "service_name": "Amazon EC2",
        "charge_category": "Credit",
        "charge_frequency": "One-Time",
    },
    "aws-tax": {**_AWS, **_VM, **_TAX, "service_name": "Amazon EC2"},
    "gcp-tax": {**_GCP, **_VM, **_TAX, "service_name": "Compute Engine"},
    "nebius-tax": {**_NEBIUS, **_VM, **_TAX, "service_name": "Compute Cloud"},
    "gcp-adjustment": {
        **_GCP,
        **_VM,
        **_NOWHERE,
        "service_name": "Compute Engine",
        "charge_category": "Adjustment",
        "charge_frequency": "One-Time",
    },
    "aws-correction": {
        **_P5,
        "charge_class": "Correction",
        "sku_price_details": None,
        "sku_id": None,
        "sku_meter": None,
        "pricing_unit": None,
        "x_gpu_model": None,
    },
}
_NOT_CONSUMED = frozenset({"aws-unused", "aws-commitment", "aws-support", "gcp-reserved-unused"})


def golden_charges() -> tuple[Charge, ...]:
    """All sixty, in the order of the file."""
    with GOLDEN.open(encoding="utf-8", newline="") as stream:
        rows = [line for line in stream if not line.startswith("#")]
    return tuple(_charge(row) for row in csv.DictReader(rows))


def of_job(charges: tuple[Charge, ...], job: str) -> tuple[Charge, ...]:
    return tuple(charge for charge in charges if charge.x_job_id == job)


def _charge(row: dict[str, str]) -> Charge:
    said = WHAT[row["what"]]
    start, end = _moment(row["start"]), _moment(row["end"])
    hours = Decimal(int((end - start).total_seconds())) / _SECONDS
    price = Decimal(row["price"]) if row["price"] else None
    quantity = None if price is None else Decimal(row["qty"]) if row["qty"] else hours
    worth = Decimal(row["billed"]) if price is None or quantity is None else price * quantity
    billed = Decimal(row["billed"]) if row["billed"] else worth
    effective = Decimal(row["effective"]) if row["effective"] else billed
    consumed = quantity is not None and row["what"] not in _NOT_CONSUMED
    node = said.get("x_gpu_model") is not None
    charge = Charge(
        **{
            "charge_category": "Usage",
            "charge_frequency": "Usage-Based",
            "charge_description": row["what"],
            "billing_period_start": START,
            "billing_period_end": END,
            "charge_period_start": start,
            "charge_period_end": end,
            "billed_cost": billed,
            "effective_cost": effective,
            "list_cost": worth,
            "contracted_cost": worth,
            "list_unit_price": price,
            "contracted_unit_price": price,
            "pricing_quantity": quantity,
            "pricing_currency": said["billing_currency"],
            "pricing_currency_effective_cost": effective,
            "pricing_currency_list_unit_price": price,
            "pricing_currency_contracted_unit_price": price,
            "consumed_quantity": quantity if consumed else None,
            "consumed_unit": said.get("pricing_unit") if consumed else None,
            "resource_id": row["resource"] or None,
            "resource_name": row["resource"] or None,
            "tags": _tags(row),
            "x_plan_id": "plan-2026-11" if row["job"] else None,
            "x_job_id": row["job"] or None,
            "x_attempt": row["attempt"] or None,
            "x_waste_kind": row["waste"] or None,
            "x_useful_units": Decimal(row["useful"]) if row["useful"] else None,
            "x_useful_unit": row["unit"] or None,
            "x_on_demand_equivalent_cost": Decimal(row["od"]) * quantity
            if row["od"] and quantity is not None
            else None,
            "x_gpu_hours": quantity * _GPUS if node and quantity is not None else None,
            **said,
        }
    )
    return _part(charge, row) if row["what"] == "aws-shared" else charge


def _part(charge: Charge, row: dict[str, str]) -> Charge:
    """Of a node that several jobs shared for an hour: the node is nobody's, the part is the job's."""
    ratio, price = Decimal(row["qty"]), Decimal(row["price"])
    element = {"AllocatedRatio": ratio, "UsageUnit": "Seconds", "UsageQuantity": ratio * _SECONDS}
    return replace(
        charge,
        tags={"owner": "platform"},
        allocated_tags={**_tags_of_job(row), "owner": "platform"},
        allocated_method_details={"Elements": [element]},
        allocated_resource_id=row["job"],
        allocated_resource_name=row["job"],
        x_split_origin_id=f"{row['resource']}/{row['start']}",
        x_split_origin_cost=price,
    )


def _tags(row: dict[str, str]) -> dict[str, str] | None:
    return _tags_of_job(row) or None


def _tags_of_job(row: dict[str, str]) -> dict[str, str]:
    return {key: row[key] for key in ("team", "project", "job") if row[key]}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(f"{text if len(text) > len('30T00:00') else f'2026-11-{text}'}:00+00:00")
