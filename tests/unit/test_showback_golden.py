"""The golden month, reported: totals worked out by hand in its file, and every number in every format, read again."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # publishes no types
import pytest

from router.showback.facts_from_focus import read_focus
from router.showback.focus.charge_files import write_csv
from router.showback.report.export import report_schema_text, report_to_json
from router.showback.report.values import HIDDEN, ShowbackReport
from router.showback.shared_costs import SharingMethod
from tests.support.golden_charges import golden_charges
from tests.support.repository import ROOT
from tests.support.showback_reports import Rows, exact_rows, numbers_of, one, plain, report_of, rows_of, short_forms

FORMATS = ("json", "csv", "parquet", "xlsx", "html")
# From the head of tests/golden/focus/november.csv, to the last digit.
TOTALS = {"USD": "1162.8", "EUR": "215.985"}
LIST = {"USD": "1342.8", "EUR": "215.985"}  # 1162.8 + 3 x 50 + 30
TEAMS = {
    ("speech", "USD"): "464.4666667",
    ("vision", "USD"): "276.66666665",
    ("search", "USD"): "402.66666665",
    ("__unallocated__", "USD"): "19",
    ("speech", "EUR"): "181.5",
    ("__unallocated__", "EUR"): "34.485",
}
WASTE = {
    "startup": "35", "checkpoint_overhead": "35", "restart_lost_work": "37.5", "failed_launch": "2.5",
    "idle_allocated": "100", "overrun": "25", "commitment_unused": "30", "reservation_unused": "120",
}  # fmt: skip


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> ShowbackReport:
    path = tmp_path_factory.mktemp("golden") / "november.csv"
    write_csv(path, golden_charges(), "1.4")
    return report_of(read_focus(path))


@pytest.fixture(scope="module")
def read(month: ShowbackReport) -> dict[str, dict[str, Rows]]:
    return {form: dict(sections) for form, sections in exact_rows(month).items()}


def test_totals(read: dict[str, dict[str, Rows]]) -> None:
    rows = {row["currency"]: row for row in read["json"]["totals"]}
    assert {currency: row["billed"] for currency, row in rows.items()} == TOTALS
    assert {currency: row["effective"] for currency, row in rows.items()} == TOTALS
    assert {currency: row["list"] for currency, row in rows.items()} == LIST


def test_teams(read: dict[str, dict[str, Rows]]) -> None:
    rows = read["json"]["groups"]
    assert {(row["team"], row["currency"]): row["billed"] for row in rows} == TEAMS
    assert {(row["team"], row["currency"]): row["effective"] for row in rows} == TEAMS


def test_waste(read: dict[str, dict[str, Rows]]) -> None:
    assert {row["use"]: row["effective"] for row in read["json"]["waste"]} == WASTE
    assert sum(Decimal(row["effective"]) for row in read["json"]["waste"]) == Decimal(385)


def test_unit_costs(read: dict[str, dict[str, Rows]]) -> None:
    jobs = {row["job"]: row for row in read["json"]["jobs"]}
    whisper, tts = jobs["whisper-ft"], jobs["tts"]
    assert (whisper["machines"], whisper["attempts"], whisper["accelerator_hours"]) == ("417.5", "5", "120.8")
    assert whisper["useful"] == "10750"
    assert whisper["per_accelerator_hour"] == plain(round(Decimal("417.5") / Decimal("120.8"), 9))
    assert whisper["per_1000_steps"] == plain(round(Decimal("417.5") / Decimal("10.75"), 9))
    assert (tts["currency"], tts["per_1000_steps"], tts["useful"]) == ("EUR", "50", "3600")
    bought = {(row["job"], row["market"]): row for row in read["json"]["unit_costs"]}
    assert bought["rank", "spot"]["per_1m_tokens"] == "25"
    assert bought["rank", "spot"]["useful"] == "5000000"


def test_savings(read: dict[str, dict[str, Rows]]) -> None:
    """By hand: of 806 on demand (656 of spot and 150) these hours are of restarts: 37.5 + 25 + 30 lost, 6 of a failed
    launch, and 12.5 + 30 + 12.5 of the three start-ups after the first; 806 - 417.5 - 153.5 = 235."""
    spot = next(row for row in read["json"]["unit_costs"] if (row["job"], row["market"]) == ("whisper-ft", "spot"))
    assert (spot["cost"], spot["on_demand"], spot["saved"]) == ("267.5", "656", "388.5")
    job = next(row for row in read["json"]["jobs"] if row["job"] == "whisper-ft")
    assert (job["on_demand"], job["saved"]) == ("806", "388.5")
    assert (job["restart_on_demand"], job["saved_net"]) == ("153.5", "235")


def test_corrections_and_movement(read: dict[str, dict[str, Rows]]) -> None:
    (correction,) = read["json"]["corrections"]
    assert (correction["job"], correction["billed"]) == ("whisper-old", "-10")
    moved = {(row["what"], row["cloud"]): (row["quantity"], row["billed"]) for row in read["json"]["movement"]}
    assert moved == {
        ("egress", "aws"): ("100", "9"),
        ("egress", "gcp"): ("50", "6"),
        ("storage", "aws"): ("100", "2.3"),
        ("storage", "nebius"): ("75", "1.5"),
        ("disk", "aws"): ("50", "4"),
    }


def test_every_number_is_the_same_in_every_format(month: ShowbackReport, read: dict[str, dict[str, Rows]]) -> None:
    for section in month.sections:
        names, wanted = numbers_of(section), read["json"][section.name]
        hidden = {column.name for column in section.columns if column.rank == HIDDEN}
        for form in FORMATS:
            found = read[form][section.name]
            assert len(found) == len(wanted), (form, section.name)
            for name in names:
                if form == "html" and name in hidden:
                    continue
                cells = [row.get(name, "") for row in found]
                assert cells == [row[name] for row in wanted], (form, section.name, name)


@pytest.mark.parametrize("form", ["wide", "markdown"])
def test_pages_for_people_say_them_to_the_cent(month: ShowbackReport, form: str) -> None:
    text = short_forms(month)[form].replace("\\_", "_").replace("|", " ")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert any(re.match(r"USD 1,162\.80 1,162\.80", line) for line in lines)
    assert any(re.match(r"speech USD 464\.47 464\.47", line) for line in lines)
    assert any(re.match(r"__unallocated__ USD 19\.00 19\.00", line) for line in lines)
    assert any(re.match(r"all USD 1,162\.80 1,162\.80", line) for line in lines)
    assert any(line.startswith("whisper-ft USD 430.50") for line in lines)
    assert any(line.startswith("USD restart_lost_work 37.50 37.50") for line in lines)


def test_a_table_fits_eighty_columns(month: ShowbackReport) -> None:
    assert max(map(len, short_forms(month)["wide"].splitlines())) <= 80


def test_json_keeps_its_schema(month: ShowbackReport) -> None:
    import json

    schema = json.loads(report_schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(report_to_json(month)), schema)


def test_the_schema_in_docs_is_the_one() -> None:
    """When this fails: `stepfare schema report > docs/schema/report.json`."""
    assert (ROOT / "docs/schema/report.json").read_text(encoding="utf-8") == report_schema_text()


def test_the_older_version_says_the_same_but_for_splits(tmp_path: Path) -> None:
    """FOCUS 1.2 has no columns for parts of shared charges: 50 + 50 of the shared node are nobody's there."""
    path = tmp_path / "november.csv"
    write_csv(path, golden_charges(), "1.2")
    report = report_of(read_focus(path))
    assert one(report, "totals", currency="USD")["billed"] == Decimal("1162.8")
    assert one(report, "groups", team="__unallocated__", currency="USD")["billed"] == Decimal(119)


def test_what_nobody_owns_is_shared_in_full(tmp_path: Path) -> None:
    path = tmp_path / "november.csv"
    write_csv(path, golden_charges(), "1.4")
    report = report_of(read_focus(path), share=SharingMethod.EVEN)
    rows = {row["team"]: row for row in rows_of(report, "groups", currency="USD", pot=None)}
    assert sum(row["shared"] for row in rows.values()) == 19
    assert sum(row["after"] for row in rows.values()) == Decimal("1162.8")
    assert {row["after"] - row["billed"] for row in rows.values()} <= {
        Decimal("6.333333333"),
        Decimal("6.333333334"),
        Decimal("6.333333332"),
        Decimal("6.333333335"),
    }
