"""The example month, and what it came to by currency, as each format and command of finance says it."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow.parquet as pq

from router.cli.console import ExitCode
from tests.support.command import run
from tests.support.repository import ROOT

Sums = dict[str, Decimal]
EXAMPLE = ROOT / "examples" / "showback"
BILLS = [EXAMPLE / f"bill-{cloud}.csv" for cloud in ("aws", "gcp", "azure")]
COSTS = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")


def say(*words: object, code: ExitCode = ExitCode.OK) -> str:
    done = run(*words)
    assert done.exit_code == code, (words, done.stderr)
    return done.stdout


def fill_november(added: str, billed: str) -> None:
    """Put the example month into the state of STEPFARE_HOME: its books, then what was added and billed at moments."""
    say("ledger", "restore", EXAMPLE / "ledger.backup")
    say("ledger", "add", EXAMPLE / "added.yaml", "--now", added)
    say("bills", "import", *BILLS, "--now", billed)


def restated(folder: Path, more: str) -> Path:
    """Write the AWS bill with so much more on its first row of usage."""
    with BILLS[0].open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    row = next(each for each in rows if each["ChargeCategory"] == "Usage")
    row.update({name: str(Decimal(row[name]) + Decimal(more)) for name in COSTS})
    path = folder / f"restated{more}.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(row))
        writer.writeheader()
        writer.writerows(rows)
    return path


def summed(rows: Iterable[dict[str, Any]], column: str = "effective") -> Sums:
    sums: Sums = defaultdict(Decimal)
    for row in rows:
        if row.get(column) not in (None, ""):
            sums[row["currency"]] += Decimal(str(row[column]))
    return dict(sums)


def focus_sums(path: Path, column: str = "EffectiveCost", period: str = "") -> Sums:
    """Rows of a FOCUS file; those whose billing period begins in a month, or all."""
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    else:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    sums: Sums = defaultdict(Decimal)
    for row in rows:
        if str(row["BillingPeriodStart"]).startswith(period):
            sums[row["BillingCurrency"]] += Decimal(str(row[column]))
    return dict(sums)


def figures(month: str, at: str, folder: Path) -> dict[str, Sums]:
    """By format and command, as of a moment; files are written under ``folder``."""
    when = ("--month", month, "--now", at)
    sections = json.loads(say("showback", *when, "-o", "json"))["sections"]
    said = {"json": summed(sections["groups"]["rows"]), "totals": summed(sections["totals"]["rows"])}
    tidy = csv.DictReader(io.StringIO(say("showback", *when, "-o", "csv")))
    said["csv"] = summed(row for row in tidy if row["section"] == "groups")
    for ending in ("html", "xlsx", "parquet"):
        say("showback", *when, "-o", ending, "--out", folder / f"month.{ending}")
    table = pq.read_table(folder / "month.parquet").to_pylist()
    said["parquet"] = summed(row for row in table if row["section"] == "groups")
    said["xlsx"] = _of_workbook(folder / "month.xlsx", said["json"])
    page = (folder / "month.html").read_text(encoding="utf-8")
    said["html"] = {
        currency: amount for currency, amount in said["json"].items() if f'value="{_plain(amount)}"' in page
    }
    for name, version in (("month.csv", "1.4"), ("twelve.parquet", "1.2")):
        say("showback", *when, "-o", "focus", "--focus-version", version, "--out", folder / name)
        said[f"focus {version}"] = focus_sums(folder / name)
    say("ledger", "export", folder / "export.csv", *when)
    said["ledger export"] = focus_sums(folder / "export.csv")
    say("ledger", "export", folder / "all.csv", "--now", at)
    said["ledger export of all"] = focus_sums(folder / "all.csv", period=month)
    total = json.loads(say("bills", "reconcile", *when, "-o", "json"))["total"]
    said["bills reconcile"] = {row["currency"]: Decimal(row["actual"]) for row in total}
    periods = {row["period"]: row for row in json.loads(say("ledger", "periods", "--now", at, "-o", "json"))["periods"]}
    if month in periods:
        others = {currency: Decimal(amount) for currency, amount in periods[month]["spent_others"].items()}
        said["ledger periods"] = {"USD": Decimal(periods[month]["spent_usd"]), **others}
    return said


def _of_workbook(path: Path, known: Iterable[str]) -> Sums:
    head, *rows = [row for row in openpyxl.load_workbook(path)["Totals"].iter_rows(values_only=True) if any(row)]
    while "Effective" not in head:
        head, *rows = rows
    places = (head.index("Currency"), head.index("Effective"))
    return {str(row[places[0]]): round(Decimal(str(row[places[1]])), 5) for row in rows if row[places[0]] in known}


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
