"""One month is one figure: every format and command says the same of the example's November, and of any day of it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from router.showback.focus.survey import check_file
from tests.support.command import run
from tests.support.focus_tools import official_verdict
from tests.support.month_figures import BILLS, Sums, figures, fill_november, focus_sums, say, summed
from tests.support.repository import ROOT

AT = "2026-12-03T09:00Z"
ADDED_AT, BILLED_AT = "2026-12-02T10:00Z", "2026-12-03T08:00Z"
# By hand, from the files: what bills say (BilledCost), added.yaml less October's correction, metered on no bill.
CAME_TO = {"USD": Decimal("26750.96325"), "EUR": Decimal("1979.58")}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("november")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPFARE_HOME", str(folder))
        fill_november(ADDED_AT, BILLED_AT)
        for usd, *whose in (("12000", "--team", "research"), ("9000", "--project", "asr"), ("30000", "--all")):
            say("budget", "set", usd, *whose, "--from", "2026-11", "--now", "2026-11-01T00:00Z")
        yield folder


def report(*words: object, at: str = AT) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(say("showback", "--month", "2026-11", "--now", at, "-o", "json", *words))
    sections: dict[str, Any] = found["sections"]
    return sections


@pytest.mark.slow
def test_every_format_and_command_adds_up_to_one_figure(home: Path, tmp_path: Path) -> None:
    when = ("--month", "2026-11", "--now", AT)
    said = figures("2026-11", AT, tmp_path)
    assert {name: sums for name, sums in said.items() if sums != CAME_TO} == {}
    assert len(said) == 12
    total = json.loads(say("bills", "reconcile", *when, "-o", "json"))["total"]
    periods = {row["period"]: row for row in json.loads(say("ledger", "periods", "--now", AT, "-o", "json"))["periods"]}
    november = periods["2026-11"]
    assert november["basis"] == "effective"
    # One sum of what was planned, too.
    planned = {
        Decimal(total[-1]["planned"]),
        Decimal(november["planned_usd"]),
        summed(report()["groups"]["rows"], "planned")["USD"],
        summed(report()["jobs"]["rows"], "planned")["USD"],
        summed(report()["variance"]["rows"], "planned")["USD"],
    }
    assert planned == {Decimal("15794.195")}
    for words in (("showback", *when), ("showback", *when, "-o", "markdown"), ("ledger", "periods", "--now", AT)):
        text = say(*words)
        assert "26,750.96" in text, words
    assert "effective cost" in say("showback", *when)


@pytest.mark.slow
@pytest.mark.parametrize("basis", ["effective", "billed"])
def test_a_budget_is_used_by_what_the_report_says(home: Path, basis: str) -> None:
    when = ("--month", "2026-11", "--now", AT, "--basis", basis)
    sections = report("--basis", basis)
    total = next(row for row in sections["totals"]["rows"] if row["currency"] == "USD")
    teams = {row["team"]: row for row in sections["groups"]["rows"] if row["currency"] == "USD"}
    by_project = report("--basis", basis, "--group-by", "project")["groups"]["rows"]
    asr = next(row for row in by_project if row["currency"] == "USD" and row["project"] == "asr")
    wanted = {"all": total[basis], "team research": teams["research"][basis], "project asr": asr[basis]}
    assert {row["scope"]: row["spent"] for row in sections["budgets"]["rows"]} == wanted
    used = {row["scope"]: row["used"] for row in sections["budgets"]["rows"]}
    assert used["all"] == total["budget_used"]
    for command in (("budget", "check", "--no-notify"), ("budget", "list")):
        for form in ("json", "csv"):
            text = say(*command, *when, "-o", form)
            rows = json.loads(text)["budgets"] if form == "json" else list(csv.DictReader(io.StringIO(text)))
            found = {f"{row['scope']} {row['name']}".strip(): row for row in rows}
            assert {scope: round(Decimal(row["spent_usd"]), 5) for scope, row in found.items()} == {
                scope: round(Decimal(amount), 5) for scope, amount in wanted.items()
            }
            assert {(row["basis"], row["currency"]) for row in rows} == {(basis, "USD")}
        table = run(*command, *when)
        assert f"{basis} cost in USD" in table.stderr
        assert "in no budget: 1,979.58 EUR" in table.stderr
        shares = dict(re.findall(r"^(all|team research|project asr) .* ([0-9.]+%)", table.stdout, re.MULTILINE))
        assert shares == {scope: f"{Decimal(share) * 100:.1f}%" for scope, share in used.items()}


@pytest.mark.slow
def test_focus_rows_say_how_final_they_are_and_keep_every_rule(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "november.csv"
    say("showback", "--month", "2026-11", "--now", AT, "-o", "focus", "--out", path)
    sums: dict[str, Sums] = {state: defaultdict(Decimal) for state in ("Invoiced", "Provisional", "Estimated")}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            sums[row["x_RecordState"]][row["BillingCurrency"]] += Decimal(row["BilledCost"])
            assert (row["x_RecordState"] == "Provisional") == (row["InvoiceIssuerName"].startswith("Example Google"))
    bills: dict[Path, Decimal] = {}
    for bill in BILLS:
        with bill.open(encoding="utf-8", newline="") as stream:
            bills[bill] = sum((Decimal(row["BilledCost"]) for row in csv.DictReader(stream)), Decimal(0))
    assert sums["Provisional"] == {"USD": bills[BILLS[1]]}
    assert sums["Invoiced"]["EUR"] == bills[BILLS[2]]
    assert sums["Invoiced"]["USD"] + sums["Estimated"]["USD"] == CAME_TO["USD"] - bills[BILLS[1]]
    assert sums["Invoiced"]["USD"] >= bills[BILLS[0]]
    assert check_file(path).counts == {}
    # Read back, the file gives the report: teams, jobs, waste and what hours cost on demand are all in it.
    again, first = report("--from-file", path), report()
    for name, columns in (
        ("groups", ("team", "currency", "billed", "effective", "waste")),
        ("waste", ("currency", "use", "billed", "effective")),
        ("savings", ("currency", "market", "cost", "on_demand")),
        ("movement", ("currency", "what", "cloud", "region", "billed")),
    ):
        rows = [
            {
                tuple(row.get(column) for column in columns)
                for row in each[name]["rows"]
                if row.get("billed", 1) is not None
            }
            for each in (again, first)
        ]
        assert rows[0] == rows[1], name


@pytest.mark.slow
def test_the_official_validator_finds_nothing_new(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "november.parquet"
    say("showback", "--month", "2026-11", "--now", AT, "-o", "focus", "--focus-version", "1.2", "--out", path)
    with (ROOT / "tests" / "golden" / "focus" / "validator_allowed.csv").open(encoding="utf-8", newline="") as stream:
        allowed = {row["rule"] for row in csv.DictReader(stream)}
    # Rows of bills keep what is theirs: who sells is not who sends the bill, and few have a description.
    of_bills = {"BilledCost-C-000-M", "BilledCost-C-005-C", "ChargeDescription-C-000-M", "ChargeDescription-C-003-O"}
    with pq.ParquetFile(path) as file:
        rows = file.read(["InvoiceIssuerName", "ProviderName", "ChargeDescription", "x_RecordState"]).to_pylist()
    ours = [row for row in rows if not row["InvoiceIssuerName"].startswith("Example")]
    assert ours
    assert len(ours) < len(rows)
    for row in ours:
        assert row["ProviderName"] == row["InvoiceIssuerName"]
        assert row["ChargeDescription"]
    assert set(official_verdict(path).failed) <= allowed | of_bills


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "usd", "bills"),
    [
        # Metered by then; nothing added, no bill: as `ledger list` has it.
        ("2026-11-30T12:00Z", "19338.64", False),
        (ADDED_AT, "19963.44", False),
        (BILLED_AT, "26750.96325", True),
    ],
)
def test_a_past_now_knows_what_was_recorded_by_then(home: Path, tmp_path: Path, at: str, usd: str, bills: bool) -> None:
    sections = report(at=at)
    totals = {row["currency"]: row for row in sections["totals"]["rows"]}
    assert totals["USD"]["effective"] == usd
    assert ("EUR" in totals) is bills
    (spent,) = {row["spent"] for row in sections["budgets"]["rows"] if row["scope"] == "all"}
    assert spent == usd
    say("ledger", "export", tmp_path / "november.csv", "--month", "2026-11", "--now", at)
    assert focus_sums(tmp_path / "november.csv")["USD"] == Decimal(usd)
    periods = json.loads(say("ledger", "periods", "--now", at, "-o", "json"))["periods"]
    assert {row["period"]: Decimal(row["spent_usd"]) for row in periods}["2026-11"] == Decimal(usd)
    total = json.loads(say("bills", "reconcile", "--month", "2026-11", "--now", at, "-o", "json"))["total"]
    assert {row["currency"]: row["actual"] for row in total}["USD"] == usd


def test_nothing_is_forecast_on_top_of_a_past_moment(home: Path) -> None:
    """On the twentieth, of the month that is over by now: no later entry, no budget set later, no forecast."""
    say("budget", "set", "15000", "--all", "--from", "2026-11", "--now", "2026-11-25T00:00Z")
    say("budget", "set", "1", "--team", "speech", "--from", "2026-11", "--now", "2026-11-25T00:00Z")
    at = "2026-11-20T12:00Z"
    sections = report(at=at)
    (total,) = sections["totals"]["rows"]
    assert (total["effective"], total["forecast"], total["budget"]) == ("17469.53", None, "30000")
    assert any("as of a past moment" in note for note in sections["totals"]["notes"])
    found = json.loads(say("budget", "check", "--now", at, "--no-notify", "-o", "json"))["budgets"]
    assert {row["name"]: (row["usd"], row["forecast_usd"]) for row in found} == {
        "": ("30000.00", None),
        "research": ("12000.00", None),
        "asr": ("9000.00", None),
    }
    later = json.loads(say("budget", "list", "--now", "2026-11-26T00:00Z", "-o", "json"))["budgets"]
    assert {row["name"]: row["usd"] for row in later} == {
        "": "15000.00",
        "research": "12000.00",
        "speech": "1.00",
        "asr": "9000.00",
    }
    # October was closed on the fourth of November; the second did not know it.
    for at, books in (("2026-11-02T00:00Z", "open"), ("2026-11-05T00:00Z", "closed")):
        text = say("showback", "--month", "2026-10", "--now", at, "-o", "json")
        head = {row["name"]: row["value"] for row in json.loads(text)["sections"]["head"]["rows"]}
        assert (head["books"], head["currencies"]) == (books, "USD")
