"""``examples/showback`` is what metering makes of its month, its page is true, and all of it adds up."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from tests.support import example_month
from tests.support.repository import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "showback"
STEPFARE = Path(sys.executable).with_name("stepfare")
WHEN = "--month 2026-11 --now 2026-12-03T09:00Z"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example and a state of its own, where all that the page shows was run in order."""
    place = tmp_path_factory.mktemp("november")
    shutil.copytree(EXAMPLE, place / "examples" / "showback")
    blocks = re.findall(r"```console\n(.*?)```", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    for command, *shown in (part.splitlines() for block in blocks for part in block.split("$ ")[1:]):
        printed = stepfare(place, command.removeprefix("stepfare ")).splitlines()
        assert [line for line in shown if line not in printed] == [], command
        assert max((len(line) for line in printed), default=0) <= 80, command
    return place


def stepfare(place: Path, words: str) -> str:
    environment = {**os.environ, "STEPFARE_HOME": str(place / "home"), "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [str(STEPFARE), *shlex.split(words)], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


@cache
def asked(place: Path, words: str) -> Any:
    """Return the output of a command that changes nothing: several tests look at one answer."""
    return json.loads(stepfare(place, f"{words} {WHEN} -o json"))


def test_the_month_played_again_gives_the_same_files(tmp_path: Path) -> None:
    example_month.make_files(tmp_path)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.name for path in EXAMPLE.iterdir()} - {"README.md", "added.yaml"}
    for name in made - {example_month.LEDGER}:
        assert (tmp_path / name).read_bytes() == (EXAMPLE / name).read_bytes(), name
    # How well it is packed is the business of the library that packs.
    again, kept = (gzip.decompress((place / example_month.LEDGER).read_bytes()) for place in (tmp_path, EXAMPLE))
    assert again == kept


def test_the_report_and_the_reconciliation_say_the_same(folder: Path) -> None:
    sections = asked(folder, "showback")["sections"]
    found = asked(folder, "bills reconcile")
    totals = {row["currency"]: row["effective"] for row in sections["totals"]["rows"]}
    assert totals == {row["currency"]: row["actual"] for row in found["total"]}
    variance = {(row["job"], row["currency"]): row["invoiced"] for row in sections["variance"]["rows"]}
    assert variance == {(row["job"] or "__unallocated__", row["currency"]): row["invoiced"] for row in found["groups"]}
    shares = {row["currency"]: float(row["estimated_share"]) for row in sections["totals"]["rows"]}
    assert shares == pytest.approx(found["estimated"], abs=1e-9)


def test_every_dollar_of_the_bills_is_there(folder: Path) -> None:
    bills = json.loads(stepfare(folder, "bills list -o json"))["bills"]
    found = asked(folder, "bills reconcile --basis billed")
    sums: dict[str, Decimal] = {}
    for bill in bills:
        for currency, amounts in bill["sums"].items():
            sums[currency] = sums.get(currency, Decimal(0)) + Decimal(amounts["BilledCost"])
    assert sums == {row["currency"]: Decimal(row["invoiced"]) for row in found["total"]}


def test_what_was_played_is_what_finance_sees(folder: Path) -> None:
    """By hand: 120 unused hours of the block at 55.04; the sweep's machine idle for 17 hours at 28.80; four machines
    on demand for two and a half hours past the deadline, and a night's hour and a quarter; a stray machine for six
    days at 4.60; the code model's 144.2 hours at 24.90 and 4 % of 144.2 x 24.90 more."""
    found = asked(folder, "bills reconcile")
    kinds = next(row["kinds"] for row in found["total"] if row["currency"] == "USD")
    assert kinds["waste"]["reservation_unused"] == str(Decimal("120") * Decimal("55.04")).rstrip("0")
    sweep = next(row for row in found["groups"] if row["job"] == "lr-sweep")
    assert Decimal(sweep["kinds"]["waste"]["idle_allocated"]) == Decimal("17") * Decimal("28.8")
    assert kinds["unplanned"]["machine"] == str(6 * 24 * Decimal("4.60")).rstrip("0")
    code = next(row for row in found["groups"] if row["job"] == "code-34b-pretrain")
    assert Decimal(code["metered"]) == Decimal("144.2") * Decimal("24.9")
    (price,) = [row for row in found["bill_prices"] if row["job"] == "code-34b-pretrain"]
    assert Decimal(price["invoiced"]) == Decimal(code["metered"]) * Decimal("1.04")
    levels = {row["level"] for row in found["levels"]}
    assert levels == {"resource", "tags", "none"}


def test_public_addresses_are_not_among_what_was_moved(folder: Path) -> None:
    """28 days of 72 address hours at 0.005 are on the bill, 10.08 together, and no gigabyte is."""
    found = asked(folder, "bills reconcile")
    kinds = next(row["kinds"]["unplanned"] for row in found["total"] if row["currency"] == "USD")
    assert Decimal(kinds["egress"]) == Decimal("0.02") * (140 + 12 * 3) + Decimal("28")  # AWS, then Google Cloud
    moved = [row for row in asked(folder, "showback")["sections"]["movement"]["rows"] if row["what"] == "egress"]
    assert {row["unit"] for row in moved} == {"GB"}


def test_the_workbook_and_the_page_are_whole(folder: Path) -> None:
    book = openpyxl.load_workbook(folder / "november.xlsx")
    assert {"Totals", "Waste", "Jobs"} <= set(book.sheetnames)
    page = (folder / "november.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "://" not in re.sub(r'xmlns="[^"]*"', "", page)
    assert page.count("<svg") >= 2
    assert 'value="26750.96' in page


def test_the_page_says_what_the_json_says_and_the_bridge_closes(folder: Path) -> None:
    """By hand: 120 of 168 reserved hours at 55.04 are the largest driver; the euro job was metered at 1,805 dollars."""
    sections = {name: section["rows"] for name, section in asked(folder, "showback")["sections"].items()}
    page = stepfare(folder, f"showback {WHEN} -o html")
    dollars = {name: [row for row in rows if row.get("currency") == "USD"] for name, rows in sections.items()}
    drivers = [rounded(row["difference"]) for row in dollars["drivers"]]
    assert re.findall(r'<li><b><data value="([^"]+)">', page)[:5] == drivers
    assert drivers[0] == str(120 * Decimal("55.04"))
    steps = {(row["side"], row["step"]): Decimal(row["amount"]) for row in dollars["bridge"]}
    stations = [Decimal(0), *(Decimal(row["sum"]) for row in dollars["bridge"] if row["step"] in ("metered", "spent"))]
    reasons = [sum(v for (at, step), v in steps.items() if at == side and step not in STATIONS) for side in SIDES]
    assert stations[1] == steps["meter", "planned"] + reasons[0]
    assert stations[2] == stations[1] + reasons[1] == Decimal(dollars["totals"][0]["effective"])
    assert steps["bill", "invoiced"] == stations[2] + steps["bill", "timing"]
    assert steps["bill", "currency"] == Decimal(-1805)
    metered = {row["currency"]: row["metered"] for row in asked(folder, "bills reconcile")["total"]}
    assert stations[1] == Decimal(metered["USD"])
    begin, end = page.index('<p class="sub top0">'), page.index("invoiced. Each amount is rounded")
    written = re.findall(r'<data value="([^"]+)">', page[begin:end])
    assert [written[0], *written[2::2]] == [
        rounded(row["sum"]) for row in dollars["bridge"] if row["step"] in STATIONS and row["step"] != "timing"
    ]
    for name, cost in (("teams", "cost"), ("waste", "effective"), ("months", "cost")):
        for row in dollars[name]:
            assert row[cost] is None or f'<data value="{rounded(row[cost])}">' in page, row


SIDES = ("meter", "bill")
STATIONS = ("planned", "metered", "spent", "invoiced", "timing")


def rounded(amount: str) -> str:
    return str(Decimal(amount).quantize(Decimal("0.01"), ROUND_HALF_EVEN))


def test_the_state_itself_knows_quotes_and_deadlines(tmp_path: Path) -> None:
    example_month.make_home(tmp_path / "home")
    sections = asked(tmp_path, "showback")["sections"]
    kept = {row["job"]: (row["within_p90"], row["on_time"]) for row in sections["quotes"]["rows"]}
    assert kept == {"code-34b-pretrain": (False, True), "tts-voices": (True, True)}
    met = {row["job"]: row["deadline_met"] for row in sections["jobs"]["rows"]}
    assert met["assistant-70b-sft"] is False
    assert met["code-34b-pretrain"] is True
