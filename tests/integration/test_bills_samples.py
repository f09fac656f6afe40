"""Bills that we did not write: anonymised real ones, synthetic ones of three clouds, the examples of the
specification, and fresh ones that another project's generator makes. Each is taken in, its sums kept to the last
digit, and counted once."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from focus_data_toolkit.cli import main as toolkit
from focus_data_toolkit.model import lint_focus_1_4_structure

from router.showback.bill_import import BillImport, import_bills
from router.showback.bill_store import BillStore
from router.showback.bills import DeliveryKind
from router.showback.focus.charge_files import write_csv
from router.showback.focus.columns import COSTS
from router.showback.focus.survey import check_file
from tests.support.golden_charges import golden_charges
from tests.support.repository import ROOT

SAMPLES = ROOT.parent / "shared" / "data" / "focus-sample"
BILLS = [*sorted(SAMPLES.glob("*_cost_and_usage_*.csv")), *sorted(SAMPLES.glob("*_public_sample.csv"))]
EXAMPLES = sorted((SAMPLES / "spec-examples").glob("*.csv"))
NOW = datetime(2026, 11, 22, tzinfo=UTC)
CLOUDS = ("aws", "azure", "gcp")
here = pytest.mark.skipif(not BILLS, reason="the shared data are not here")
Sums = dict[tuple[str, str], Decimal]

# What is wrong with the anonymised real rows, by rule: every column that it is seen in, and how often.
REAL_GAPS = {
    "unknown-column": {"Id": 1},
    "time": dict.fromkeys(("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd"), 498),
    "word": {"ChargeFrequency": 4},
    "null": {"ContractedCost": 4},
    "list-cost": {"ListCost": 17},
    "contracted-cost": {"ContractedCost": 6},
    "costs-differ": {"EffectiveCost": 1, "ListCost": 1},
}


def told(path: Path) -> tuple[int, Sums]:
    """Rows and sums by currency, as the csv module and Decimal have them."""
    sums: Sums = defaultdict(Decimal)
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        for cost in COSTS:
            if row.get(cost) not in (None, "", "NULL", "null"):
                sums[row.get("BillingCurrency", ""), cost] += Decimal(row[cost])
    return len(rows), dict(sums)


def kept(done: BillImport) -> tuple[int, Sums]:
    sums: Sums = defaultdict(Decimal)
    for bill in done.delivery.bills:
        for code, by_cost in bill.sums.items():
            for cost, amount in by_cost.items():
                if amount is not None:
                    sums[code, cost] += Decimal(amount)
    return sum(bill.rows for bill in done.delivery.bills), dict(sums)


def gaps(done: BillImport) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for gap in done.delivery.gaps:
        found[gap.rule][gap.column] = gap.count
    return dict(found)


def taken_in_once(path: Path, folder: Path) -> BillImport:
    store = BillStore(folder)
    done = import_bills([path], store, NOW)
    assert kept(done) == told(path)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert import_bills([path], store, NOW) == BillImport(done.delivery, new=False)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    return done


@here
@pytest.mark.parametrize("path", [*BILLS, *EXAMPLES], ids=lambda path: path.stem)
def test_a_sample_is_taken_in_to_the_last_digit_and_once(path: Path, tmp_path: Path) -> None:
    done = taken_in_once(path, tmp_path / "bills")
    named = path.stem.split("_")[1:3] if path in BILLS else ["1", "1"]
    assert done.delivery.sources[0].version == ".".join(named)


@here
def test_gaps_of_real_rows_are_those_that_are_known(tmp_path: Path) -> None:
    found = gaps(import_bills([SAMPLES / "focus_1_0_public_sample.csv"], BillStore(tmp_path / "bills"), NOW))
    words = found.pop("null-word")
    assert found == REAL_GAPS
    assert (words["ChargeClass"], words["Tags"], words["RegionName"]) == (498, 144, 1)


@here
@pytest.mark.parametrize("path", BILLS[:-1], ids=lambda path: path.stem)
def test_synthetic_bills_break_no_rule_but_those_they_are_known_to(path: Path, tmp_path: Path) -> None:
    """Their fleets are one resource that is metered by several rows at once, their parts lack the tags of the
    origin."""
    assert set(gaps(import_bills([path], BillStore(tmp_path / "bills"), NOW))) <= {"overlap", "split-tags"}


@here
def test_all_samples_stand_side_by_side(tmp_path: Path) -> None:
    store = BillStore(tmp_path / "bills")
    store.set_rule("", "scenarios of one example have rows in common", "ana", NOW, allowed=True)
    for path in (*BILLS, *EXAMPLES):
        import_bills([path], store, NOW, kind=DeliveryKind.VERSION)
    replaced = [each for each in store.bills() if each.replaced_by is not None]
    # 1.3 has the issuers, accounts and month of 1.2; nothing else meets.
    assert {each.delivery.sources[0].version for each in replaced} == {"1.2"}
    assert len(store.current()) == len(store.bills()) - len(replaced)


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(("version", "seed"), [("1.2", 7), ("1.3", 11), ("1.3", 2026)])
def test_fresh_bills_of_the_generator(cloud: str, version: str, seed: int, tmp_path: Path) -> None:
    options = [
        "--provider",
        cloud,
        "--focus-version",
        version,
        "--rows",
        "300",
        "--seed",
        str(seed),
        "--out",
        str(tmp_path),
    ]
    assert toolkit(["generate", *options]) == 0
    (path,) = tmp_path.rglob("*cost_and_usage*.csv")
    assert taken_in_once(path, tmp_path / "bills").delivery.sources[0].version == version


def test_our_newest_version_is_clean_to_the_other_lint(tmp_path: Path) -> None:
    path = tmp_path / "november.csv"
    write_csv(path, golden_charges())
    with path.open(encoding="utf-8", newline="") as stream:
        report = lint_focus_1_4_structure(
            "Cost and Usage",
            list(csv.DictReader(stream)),
            supported_conditions=["SupportsMultiplePricingCategories", "SupportsUnitPricing"],
        )
    assert report.messages() == []
    assert report.row_count == 60
    assert toolkit(["validate", str(path)]) == 0
    assert check_file(path).counts == {}
