"""The notebook on cost per step also runs on the table beside it, where the published runs are not at hand."""

from __future__ import annotations

import csv
import re
import shutil
from dataclasses import fields
from datetime import date
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from pricing.peak_rates import read_peak_rates
from tests.bench.held_out_speeds import TABLE, HeldOutSpeed, choose_speeds, held_out_speeds
from tests.bench.published_runs import RUNS
from tests.support.repository import ROOT

NOTEBOOK = ROOT / "notebooks" / "06-cost-per-step.ipynb"


def rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_each_row_of_the_table_has_source_and_date_and_a_known_accelerator() -> None:
    found = rows()
    assert list(found[0]) == [field.name for field in fields(HeldOutSpeed)]
    known = read_peak_rates()
    for row in found:
        assert row["source"]
        assert row["source_url"]
        date.fromisoformat(row["as_of"])
        assert row["accelerator"] in known
        assert 0.05 < float(row["half_width"]) < 1
        assert 0.1 < float(row["estimated_tokens_per_s"]) / float(row["published_tokens_per_s"]) < 10


def speed(accelerator: str, source: str, published: float, estimated: float) -> HeldOutSpeed:
    return HeldOutSpeed(
        source, "m", accelerator, 8, "bf16", "dense", published, estimated, 0.2, "2026-11-24", "example.com"
    )


def test_rows_are_chosen_by_accelerator_source_and_speed_alone() -> None:
    many = [speed("A", "one", 100.0 + i, 100.0) for i in range(60)] + [
        speed("A", "two", 50.0 + i, 9.0) for i in range(60)
    ]
    few = [speed("B", "one", 7.0, 7.0)]
    chosen = choose_speeds([*many, *few])
    assert [(s.accelerator, s.source) for s in chosen] == [("A", "one")] * 6 + [("A", "two")] * 6 + [("B", "one")]
    otherwise = [speed(s.accelerator, s.source, s.published_tokens_per_s, 1.0) for s in (*many, *few)]
    again = choose_speeds(otherwise)
    assert [s.published_tokens_per_s for s in again] == [s.published_tokens_per_s for s in chosen]


@pytest.mark.slow
@pytest.mark.skipif(not RUNS.is_file(), reason="the shared data are not here")
def test_the_table_is_what_the_command_writes() -> None:
    chosen = choose_speeds(held_out_speeds())
    stored = rows()
    assert [(s.source, s.model, s.accelerator, s.as_of) for s in chosen] == [
        (row["source"], row["model"], row["accelerator"], row["as_of"]) for row in stored
    ]
    for one, row in zip(chosen, stored, strict=True):
        # A fit ends a little elsewhere with other versions of the libraries.
        assert one.estimated_tokens_per_s == pytest.approx(float(row["estimated_tokens_per_s"]), rel=0.01)
        assert one.half_width == pytest.approx(float(row["half_width"]), rel=0.02)


@pytest.mark.slow
def test_without_published_runs_it_shows_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    shutil.copytree(ROOT / "examples" / "nightly", folder / "examples" / "nightly")
    (folder / "notebooks").mkdir()
    shutil.copy(TABLE, folder / "notebooks")
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 5
    text = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    assert f"{len(rows())} published runs of 19 accelerators from 23 sources" in text
    assert "half of the estimates are off by less than 11%, nine in ten by less than 42%" in text
    assert "inside the 80 % interval: 70%" in text
    assert "on demand the cheapest is 8 H100, aws: $94.39 for a thousand steps,\n4.4 times as much" in text
    # About the chosen interval the cost is flat: half and twice of it cost as much or a little more, eight times more.
    more = [float(found) for found in re.findall(r"times the chosen interval costs ([+-][\d.]+)%", text)]
    assert len(more) == 3
    assert -1 < more[0] < 5
    assert -1 < more[1] < 5
    assert more[2] > 10
    assert "spot is worth it up to 12.4 interruptions an hour" in text
