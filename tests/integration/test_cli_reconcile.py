"""``stepfare bills reconcile`` as a person runs it: a real ledger, an imported bill, and what is told of both."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from pricing.money import Usd, UsdPerHour
from router.cli.console import ExitCode
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from router.showback.focus.charge_files import write_csv
from router.showback.focus.columns import Charge
from tests.support.command import run
from tests.support.golden_charges import WHAT
from tests.support.new_state import open_state
from tests.support.state_values import NOW, entry

RATE = Decimal("27.52")
DAY = datetime(2026, 11, 3, tzinfo=UTC)
MONTH = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))


def hour(number: float) -> datetime:
    return DAY + timedelta(hours=number)


def ledger(key: str, begin: float, end: float, rate: Decimal = RATE, **said: Any) -> LedgerEntry:
    hours = Fraction(end - begin)
    usd = Usd.parse(str(rate * Decimal(end - begin)))
    given = {"quantity": hours, "usd": usd, "usd_per_hour": UsdPerHour.parse(str(rate)), **said}
    return entry(key, start=hour(begin), end=hour(end), **given)


def charge(begin: float, end: float, price: Decimal, resource: str, **said: Any) -> Charge:
    """Hours of a machine on the bill of a cloud, which knows nothing of our jobs."""
    quantity = Decimal(end - begin)
    cost = price * quantity
    costs = dict.fromkeys(("billed_cost", "effective_cost", "list_cost", "contracted_cost"), cost)
    prices = dict.fromkeys(("list_unit_price", "contracted_unit_price"), price)
    usual: dict[str, Any] = {
        "charge_category": "Usage", "charge_frequency": "Usage-Based", "billing_period_start": MONTH[0],
        "billing_period_end": MONTH[1], "charge_period_start": hour(begin), "charge_period_end": hour(end),
        "pricing_quantity": quantity, "consumed_quantity": quantity, "consumed_unit": "Hours",
        "pricing_currency": "USD", "pricing_currency_effective_cost": cost, "resource_id": resource, **costs, **prices,
    }  # fmt: skip
    ours = ("x_gpu_model", "x_price_source", "x_price_observed_at", "x_record_state")
    return Charge(**{**usual, **{name: value for name, value in WHAT["aws-spot"].items() if name not in ours}, **said})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plan was ten hours; it started for half of one, worked for 11.5, and the spot price had risen by a tenth. The
    last two hours are on no bill yet; a machine that nobody made is on it."""
    folder = tmp_path / "home"
    monkeypatch.setenv("STEPFARE_HOME", str(folder))
    with open_state(folder / "state.db", NOW) as store:
        store.ledger.add(
            [
                ledger("plan", 0, 10, kind=LedgerEntryKind.PLANNED, attempt="", rank=None, recorded_at=DAY),
                ledger("start", 0, 0.5, use=MachineUse.STARTUP, resource="i-0abc"),
                ledger("work", 0.5, 12, use=MachineUse.WORK, resource="i-0abc"),
                entry(
                    "fee",
                    kind=LedgerEntryKind.FEE,
                    what=CostItem.OTHER,
                    who="anna",
                    reason="support",
                    usd=Usd.parse("12.25"),
                    job="",
                    start=DAY,
                    end=hour(1),
                    machines=0,
                    rank=None,
                    attempt="",
                    market=None,
                    team="",
                ),
            ]
        )
    return folder


@pytest.fixture
def bill(tmp_path: Path) -> Path:
    dearer = Decimal("30.272")
    arn = "arn:aws:ec2:us-east-1:111122223333:instance/i-0abc"
    rows = [charge(number, number + 1, dearer, arn) for number in range(10)]
    path = tmp_path / "=bill.csv"
    write_csv(path, [*rows, charge(20, 21, Decimal(40), "i-0stray")], "1.2")
    return path


def reconcile(*arguments: object, code: ExitCode = ExitCode.OK) -> Result:
    done = run("bills", "reconcile", "--now", "2026-12-05T00:00Z", "--month", "2026-11", *arguments)
    assert done.exit_code == code, done.stderr
    return done


def test_all_is_estimated_without_a_bill() -> None:
    done = reconcile()
    assert "no bill is stored, so all is estimated" in done.stderr
    assert "USD: 96.4 % of what was spent is estimated" in done.stdout


def test_a_bill_explains_every_dollar(bill: Path) -> None:
    assert run("bills", "import", bill, "--now", "2026-12-02T00:00Z").exit_code == ExitCode.OK
    found = json.loads(reconcile("-o", "json").stdout)
    assert found["schema_version"] == 1
    levels = {each["level"]: (each["rows"], each["amount"]) for each in found["levels"]}
    assert levels == {"resource": (10, "302.72"), "none": (1, "40")}
    job = next(each for each in found["groups"] if each["job"] == "llama")
    # 9.5 billed hours of work at 2.752 more; 11.5 hours of work for 10 planned; half an hour of start-up, billed.
    want = {
        "planned": "275.2", "price": "26.144", "quantity": "41.28", "mix": "0", "waste": "15.136", "unplanned": "0",
        "credit": "0", "actual": "357.76", "timing": "-55.04", "invoiced": "302.72", "metered": "330.24",
    }  # fmt: skip
    assert {name: job[name] for name in want} == want
    (total,) = found["total"]
    assert (total["actual"], total["invoiced"]) == ("410.01", "342.72")
    assert [each["through"] for each in found["bills_through"]] == ["2026-11-03T21:00:00+00:00"]
    assert [(each["resource"], each["amount"]) for each in found["on_a_bill_not_metered"]] == [("i-0stray", "40")]
    (left,) = found["metered_not_on_a_bill"]
    assert (left["start"], left["amount"], left["due"]) == ("2026-11-03T10:00:00+00:00", "55.04", True)
    assert {each["kind"] for each in found["findings"]} == {"plan", "bill-price", "unmatched", "unbilled"}
    # Again, it is the same.
    assert json.loads(reconcile("-o", "json").stdout) == found


def test_the_table_fits_and_says_why(bill: Path) -> None:
    run("bills", "import", bill, "--now", "2026-12-02T00:00Z")
    lines = reconcile("--group-by", "team,job").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "bills of aws training-prod through 2026-11-03 21:00Z" in text or "bills of aws" in text
    row = next(number for number, line in enumerate(lines) if line.startswith("research/llama"))
    assert lines[row].split() == ["research/llama", "275.20", "330.24", "357.76", "302.72", "USD"]
    assert lines[row + 1].split("  ")[-1].startswith("price +26.14, quantity +41.28, waste +15.14 (startup)")
    assert "unbilled: " in text


def test_csv_is_exact_and_no_formula(home: Path) -> None:
    with open_state(home / "state.db", NOW) as store:
        store.ledger.add([ledger("odd", 13, 14, kind=LedgerEntryKind.PLANNED, attempt="", rank=None, job="=1+1")])
    rows = list(csv.DictReader(io.StringIO(reconcile("-o", "csv").stdout)))
    assert [row["job"] for row in rows] == ["__unallocated__", "'=1+1", "llama"]
    assert rows[1]["quantity"] == "-27.52"
    for row in rows:
        parts = (row[name] for name in ("planned", "price", "quantity", "mix", "waste", "unplanned", "credit"))
        assert sum(map(Decimal, parts)) == Decimal(row["actual"])


def test_what_is_still_to_come_is_not_planned_yet() -> None:
    done = run("bills", "reconcile", "--now", "2026-11-03T05:00Z", "-o", "json")
    job = next(each for each in json.loads(done.stdout)["groups"] if each["job"] == "llama")
    assert job["planned"] == "137.6"


def test_findings_fail_only_where_that_was_asked_for() -> None:
    reconcile("--strict", code=ExitCode.FAILURE)
    assert "no findings" in reconcile("--strict", "--tolerance", "50").stdout
    assert "no findings" in reconcile("--strict", "--tolerance-amount", "1000").stdout


@pytest.mark.slow
def test_a_named_rate_compares_a_bill_of_another_currency(tmp_path: Path) -> None:
    """Ten hours are metered at 27.52, so 275.20 dollars; 10 x 25.50 euros are 276.93 of them at 1.086, within 1 %."""
    arn = "arn:aws:ec2:us-east-1:111122223333:instance/i-0abc"
    euros = {"billing_currency": "EUR", "pricing_currency": "EUR"}
    rows = [charge(number, number + 1, Decimal("25.50"), arn, **euros) for number in range(10)]
    path = tmp_path / "euros.csv"
    write_csv(path, rows, "1.2")
    assert run("bills", "import", path).exit_code == ExitCode.OK
    assert "billed in EUR, reckoned in USD; name a rate to compare" in " ".join(reconcile().stdout.split())
    same, dearer = (reconcile("--rate", f"EUR={rate}@2026-11-30").stdout for rate in ("1.086", "1.2"))
    assert "name a rate" not in same + dearer
    assert "bill-price" not in same
    assert "bill-price: research llama: +30.80 of 275.20 USD" in dearer
    compared = json.loads(reconcile("--rate", "EUR=1.2@2026-11-30", "-o", "json").stdout)["bill_prices"]
    assert [(each["currency"], each["metered_currency"]) for each in compared] == [("USD", "USD")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--group-by", "planet"), "'planet' is no word of a charge"),
        (("--group-by", "job,job"), "'job' is there twice"),
        (("--tolerance", "much"), "'much' is no number from 0 up"),
        (("--tolerance-amount", "-5"), "'-5' is no number"),
        (("--rate", "EUR=1.08"), "write EUR=1.0842@2026-11-30"),
        (("--rate", "EUR=1.08@2026-13-30"), "month must be in 1..12"),
        (("--rate", "USD=1@2026-11-30"), "is no rate"),
    ],
)
def test_what_cannot_be_asked_is_said_with_its_option(arguments: tuple[str, ...], said: str) -> None:
    done = reconcile(*arguments, code=ExitCode.INVALID_INPUT)
    assert said in done.stderr
    assert arguments[0] in done.stderr


def test_the_earlier_name_of_the_grouping_is_read() -> None:
    assert reconcile("--by", "team,job").stdout == reconcile("--group-by", "team,job").stdout
    assert "--group-by: 'planet'" in reconcile("--by", "planet", code=ExitCode.INVALID_INPUT).stderr


def test_an_empty_ledger_has_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path))
    assert "nothing was planned, metered or billed in this month" in reconcile().stdout
    assert Month.parse("2026-11").begins == MONTH[0]
