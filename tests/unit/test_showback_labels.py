"""Words of labels in queries, paths by labels, and labels in the files of a report."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from pricing.problems import InvalidInputError
from router.app.showback import report_of_files
from router.ledger.month import Month
from router.showback.labels import label_name, label_word
from router.showback.report.build import collect_columns
from router.showback.report.export import report_to_csv
from router.showback.report.lines import SpendLine, SpendSums, find_level, label_names
from router.showback.report.query import ReportQuery
from router.showback.report.values import ReportColumn, ReportSection, ShowbackReport

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def _line(job: str, cost: str, **labels: str) -> SpendLine:
    return SpendLine(
        currency="USD",
        team="research",
        project=None,
        job=job,
        attempt=f"{job}-1",
        what="machine",
        sums=SpendSums(Decimal(cost), None, Decimal(1)),
        start=NOW,
        labels=tuple(sorted(labels.items())),
    )


@pytest.mark.parametrize(
    ("word", "name"),
    [("label:phase", "phase"), ("label:a:b", "a:b"), ("label: ", " "), ("label:", None), ("phase", None),
     ("label:a,b", None), ("label:a\nb", None), ("label:" + "x" * 201, None), ("Label:x", None)],
)  # fmt: skip
def test_a_word_names_a_label_or_none(word: str, name: str | None) -> None:
    assert label_name(word) == name
    if name is not None:
        assert label_word(name) == word


def test_a_path_begins_with_one_label() -> None:
    lines = (_line("a", "3", phase="sweep", model="7b"), _line("b", "4", phase="sweep"), _line("c", "5"))
    assert label_names(lines) == ("model", "phase")
    level = find_level(lines, (("label:phase", "sweep"),))
    assert level is not None
    assert dict(level.totals) == {"USD": Decimal(7)}
    assert dict(level.above) == {"USD": Decimal(12)}
    assert [table.kind for table in level.tables] == ["team", "project", "job"]
    job = level.tables[-1].rows[0]
    assert job.path == (("label:phase", "sweep"), ("team", "research"), ("project", "__unallocated__"), ("job", "b"))
    below = find_level(lines, job.path)
    assert below is not None
    assert dict(below.totals) == {"USD": Decimal(4)}
    unlabelled = find_level(lines, (("label:phase", "__unallocated__"),))
    assert unlabelled is not None
    assert dict(unlabelled.totals) == {"USD": Decimal(5)}
    assert find_level(lines, (("label:phase", "none such"),)) is None
    for path in ((("label:a", "x"), ("label:b", "y")), (("team", "x"), ("label:a", "y")), (("label:", "x"),)):
        with pytest.raises(ValueError, match="leads nowhere"):
            find_level(lines, path)


def test_a_label_is_a_column_after_those_of_every_report() -> None:
    groups = ReportSection("groups", "By label phase", (ReportColumn("label:phase", "Label phase"),), (("=1+1",),))
    report = ShowbackReport("Showback", (groups,))
    assert list(collect_columns(report))[-1] == "label:phase"
    assert list(collect_columns(ShowbackReport("Showback", ()))) == list(collect_columns(report))[:-1]
    (row,) = csv.DictReader(io.StringIO(report_to_csv(report)))
    assert row["label:phase"] == "'=1+1"


def test_files_have_no_labels() -> None:
    query = ReportQuery(month=Month.parse("2026-11"), now=NOW, by=("label:phase",))
    with pytest.raises(InvalidInputError) as caught:
        report_of_files([Path("bill.csv")], query)
    assert "--group-by" in str(caught.value)
    assert "labels are those of jobs in the state" in str(caught.value)
    with pytest.raises(ValueError, match="label:NAME for a label of jobs"):
        ReportQuery(month=Month.parse("2026-11"), now=NOW, by=("label:",))
