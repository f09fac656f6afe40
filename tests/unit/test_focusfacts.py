"""What the rows of clouds' bills are for, in the words that AWS, Google Cloud and Azure write."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from router.showback.facts_from_focus import facts_of_charges, read_focus
from router.showback.focus.columns import NEWEST, written_columns
from router.showback.focus.typed_rows import arrow_schema
from tests.support.repository import ROOT

SAMPLE = ROOT.parent / "shared" / "data" / "focus-sample" / "focus_1_0_public_sample.csv"
COMPUTE, NETWORK = ("Compute", "Virtual Machines"), ("Networking", "Network Connectivity")
GPUS = '{"InstanceType": "p5.48xlarge", "GpuCount": 8}'


def what(category: tuple[str, str | None], unit: str | None, **said: str) -> str:
    """What one row of usage is for."""
    row = {
        "ChargeCategory": "Usage", "ServiceCategory": category[0], "ServiceSubcategory": category[1],
        "ConsumedUnit": unit, "PricingUnit": unit, "ChargePeriodStart": datetime(2026, 11, 1, tzinfo=UTC),
        "ChargePeriodEnd": datetime(2026, 11, 2, tzinfo=UTC), **said,
    }  # fmt: skip
    schema = arrow_schema(written_columns(NEWEST))
    table = pa.Table.from_pylist([{**dict.fromkeys(schema.names), **row}], schema=schema)
    return str(facts_of_charges(table, "bill", 1, "bill.csv")["what"][0].as_py())


@pytest.mark.parametrize(
    ("category", "unit", "said"),
    [
        (NETWORK, "Hours", {"ChargeDescription": "$0.005 per In-use public IPv4 address per hour"}),
        (NETWORK, "Hours", {"SkuMeter": "USE1-PublicIPv4:InUseAddress"}),
        (COMPUTE, "Hours", {"SkuMeter": "ElasticIP:IdleAddress"}),
        (COMPUTE, "Hours", {"SkuMeter": "External IP Charge on a Standard VM"}),
        (COMPUTE, "hour", {"SkuMeter": "Static Ip Charge"}),
        (NETWORK, "Hours", {"SkuMeter": "External IP Charge on a Spot Preemptible VM"}),
        (NETWORK, "Hours", {"ChargeDescription": "IP Addresses - Standard IPv4 Static Public IP"}),
        (NETWORK, "1 Hour", {"SkuMeter": "Basic IPv4 Dynamic Public IP"}),
        (NETWORK, "Hours", {"ResourceType": "microsoft.network/publicipaddresses"}),
        (NETWORK, "Hours", {"SkuId": "public-address"}),
        (NETWORK, None, {"SkuMeter": "Standard IPv4 Static Public IP"}),
        (NETWORK, "Hours", {"ChargeDescription": "$0.0225 per Application LoadBalancer-hour"}),
        (COMPUTE, "Hours", {"ChargeDescription": "$0.045 per NAT Gateway Hour"}),
    ],
)
def test_what_networking_has_by_the_hour_is_no_egress(
    category: tuple[str, str], unit: str | None, said: dict[str, str]
) -> None:
    assert what(category, unit, **said) == "other"


@pytest.mark.parametrize(
    ("category", "unit", "said"),
    [
        (NETWORK, "GB", {"SkuMeter": "between-regions"}),
        (NETWORK, "gibibyte", {"SkuMeter": "Network Inter Region Egress"}),
        (NETWORK, "1 GB", {"SkuMeter": "Standard Data Transfer Out"}),
        (COMPUTE, "GB", {"ChargeDescription": "$0.090 per GB - first 10 TB / month data transfer out"}),
        (COMPUTE, "GiB", {"SkuMeter": "Network Internet Egress from Americas to China via external IP"}),
        (NETWORK, "GB Months", {"ChargeDescription": "Outbound Data Transfer Zone 1"}),
        (("Storage", "Object Storage"), "GB", {"SkuMeter": "DataTransfer-Out-Bytes"}),
    ],
)
def test_data_that_was_moved_is_egress_whatever_its_category(
    category: tuple[str, str], unit: str, said: dict[str, str]
) -> None:
    assert what(category, unit, **said) == "egress"


@pytest.mark.parametrize(
    ("category", "unit", "said", "found"),
    [
        (COMPUTE, "Hours", {"SkuMeter": "Machines"}, "machine"),
        (COMPUTE, "Hours", {"ChargeDescription": "p5 with a public IP", "SkuPriceDetails": GPUS}, "machine"),
        (COMPUTE, "Hours", {"ResourceName": "static ip holder"}, "machine"),
        (("Storage", "Block Storage"), "GB-Hours", {"SkuMeter": "Disks"}, "disk"),
        (("Storage", "Object Storage"), "GB-Months", {"SkuMeter": "Objects"}, "storage"),
        (("Compute", None), "GB", {"SkuMeter": "snapshots"}, "other"),
    ],
)
def test_the_rest_is_what_it_was(category: tuple[str, str | None], unit: str, said: dict[str, str], found: str) -> None:
    assert what(category, unit, **said) == found


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the shared data are not here")
def test_real_bills_name_their_addresses_so(tmp_path: Path) -> None:
    """The anonymised rows of September 2024: what says address is no egress, what says transfer is."""
    with SAMPLE.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    found = read_focus(SAMPLE)["what"].to_pylist()
    said = Counter[tuple[str, str]]()
    for row, kind in zip(rows, found, strict=True):
        text = row["ChargeDescription"].casefold()
        if row["ChargeCategory"] == "Usage" and ("public ip" in text or "data transfer" in text):
            said["address" if "public ip" in text else "transfer", kind] += 1
    assert {kind for word, kind in said if word == "address"} == {"other"}
    assert {kind for word, kind in said if word == "transfer"} == {"egress"}
    assert said["address", "other"] >= 20
    assert said["transfer", "egress"] >= 200
