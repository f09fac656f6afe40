"""What importing a bill costs: a CSV of a gigabyte, in a process of its own, so that its memory is its own; then the
same file held against the rules.

    python -m tests.bench.bills [--megabytes 1000]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from router.showback.focus.columns import columns_of
from tests.support.repository import ROOT

MEGABYTE = 1_000_000
MONTH = datetime(2026, 11, 1, tzinfo=UTC)
_MACHINES = 1_000
_HOURS = 720
_KIB_A_MIB = 1024
# What it says of itself: the kernel's count for a child begins with the memory of the process that started it.
_COMMAND = """
import atexit, re, sys
from pathlib import Path
told = Path(sys.argv.pop(1))
atexit.register(lambda: told.write_text(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]))
from router.cli.main import main
main()
"""
_FIXED = {
    "BillingAccountId": "123456789012", "BillingAccountName": "Training", "BillingAccountType": "Payer Account",
    "SubAccountType": "Linked Account", "ProviderName": "AWS", "PublisherName": "AWS", "InvoiceIssuerName": "AWS",
    "BillingPeriodStart": "2026-11-01T00:00:00Z", "BillingPeriodEnd": "2026-12-01T00:00:00Z",
    "ChargeCategory": "Usage",
    "ChargeDescription": "p5.48xlarge Linux/UNIX Spot Instance-hour in US East (N. Virginia)",
    "ChargeFrequency": "Usage-Based", "BillingCurrency": "USD", "PricingCategory": "Dynamic",
    "PricingUnit": "Hours",
    "PricingCurrency": "USD", "ConsumedUnit": "Hours", "ServiceCategory": "Compute",
    "ServiceSubcategory": "Virtual Machines", "ServiceName": "Amazon Elastic Compute Cloud", "SkuId": "SKU-0123456789A",
    "SkuMeter": "Instance-hours", "SkuPriceId": "SKU-0123456789AB.JRTCKXETXF.6YS6EN2CT7", "ResourceType": "Instance",
    "SkuPriceDetails": '"{""InstanceType"":""p5.48xlarge"",""GpuCount"":8,""CoreCount"":192}"',
    "RegionId": "us-east-1", "RegionName": "US East (N. Virginia)", "AvailabilityZone": "us-east-1a",
}  # fmt: skip


def main(arguments: tuple[str, ...] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time and memory of importing a large bill.")
    parser.add_argument("--megabytes", type=int, default=1_000, help="size of the bill")
    asked = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="stepfare-bench-") as folder:
        for line in figures(Path(folder), asked.megabytes):
            print(line, flush=True)


def figures(folder: Path, megabytes: int) -> Iterator[str]:
    """A line each: the bill, importing it, importing it again, checking it."""
    bill = folder / "bill.csv"
    rows = write_bill(bill, megabytes * MEGABYTE)
    yield f"A BILL of {bill.stat().st_size / MEGABYTE:,.0f} MB, {rows:,} rows, FOCUS 1.2, CSV"
    for name, arguments in {
        "bills import": ["bills", "import", str(bill)],
        "the same again": ["bills", "import", str(bill)],
        "ledger check": ["ledger", "check", str(bill)],
    }.items():
        seconds, kib = _run(arguments, folder / "home")
        yield f"  {name:16}{seconds:8.1f} s {kib / _KIB_A_MIB:10,.0f} MiB at most {rows / seconds:12,.0f} rows/s"


def write_bill(path: Path, size: int) -> int:
    """At least ``size`` bytes of rows, machine by machine and hour by hour; how many rows."""
    names = [column.name for column in columns_of("1.2")]
    hours = [(MONTH + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:%M:%SZ") for hour in range(_HOURS + 1)]
    count = written = 0
    with path.open("w", encoding="utf-8") as stream:
        written += stream.write(",".join(names) + "\n")
        while written < size:
            machine, hour = divmod(count, _HOURS)
            written += stream.write(_row(names, machine, hours[hour], hours[hour + 1]))
            count += 1
    return count


def _row(names: list[str], machine: int, start: str, end: str) -> str:
    price = f"{24 + machine % 7}.{machine % 10_000:04}"
    resource_id = f"i-{machine:017x}"
    cells = {
        **_FIXED,
        "SubAccountId": f"2000000{machine % _MACHINES:05}", "SubAccountName": f"team-{machine % 40}",
        "ChargePeriodStart": start, "ChargePeriodEnd": end, "PricingQuantity": "1", "ConsumedQuantity": "1",
        "ResourceId": resource_id, "ResourceName": f"gang-{machine % _MACHINES}-node-{machine}",
        "Tags": f'"{{""team"":""team-{machine % 40}"",""project"":""p{machine % 90}"",""job"":""job-{machine}""}}"',
    }  # fmt: skip
    for name in names:
        if name.endswith(("Cost", "Price")):
            cells[name] = price
    return ",".join(cells.get(name, "") for name in names) + "\n"


def _run(arguments: list[str], home: Path) -> tuple[float, int]:
    """Seconds, and the most memory in KiB."""
    told = home.with_name("most")
    command = [sys.executable, "-c", _COMMAND, str(told), *arguments]
    began = time.perf_counter()
    environment = {**os.environ, "STEPFARE_HOME": str(home)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} failed with {done.returncode}: {done.stderr}")
    return took, int(told.read_text())


if __name__ == "__main__":
    main()
