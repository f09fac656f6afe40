"""``stepfare profile`` as a user runs it: proposals with their cost, results written back, the file else as it was."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from router.cli.main import app

NOW = "2026-11-21T18:00:00Z"
JOB = """\
# A fine-tuning; the figures are of last week.
name: tune
team: search
steps: 40000
deadline: +3d
workload:
  batch: 512
  profile:
    # One machine, measured by hand.
    - {accelerators: "H100:8", placement: 1x8, batch: 256, steps_per_hour: 900}  # the only one
gang:
  accelerators: "H100:64"
checkpoint: {size_gib: 20}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tune.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


def run(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["profile", str(path), "--book", "embedded", "--now", NOW, *arguments])


def test_proposals_narrow_the_error_one_after_the_other(file: Path) -> None:
    result = run(file, "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    points = document["points"]
    assert 2 <= len(points) <= 3
    assert document["best"]["relative_error"] == pytest.approx(points[0]["relative_error_before"], abs=1e-3)
    for one, other in itertools.pairwise(points):
        assert one["relative_error_after"] == pytest.approx(other["relative_error_before"], abs=1e-3)
    for point in points:
        machines, each = map(int, point["placement"].split("x"))
        assert machines * each == point["count"] <= 64
        assert point["relative_error_after"] < point["relative_error_before"] - 0.01
        assert float(point["usd"]) > 0
        # Each accelerator has what it would have among 64.
        assert point["batch"] == pytest.approx(512 / 64 * point["count"])
    longer = json.loads(run(file, "-o", "json", "--lasting", "2h", "--points", "1").stdout)["points"]
    assert len(longer) == 1
    assert float(longer[0]["usd"]) > 2 * min(float(point["usd"]) for point in points)
    assert file.read_text(encoding="utf-8") == JOB


def test_the_table_says_how_to_write_results_back(file: Path) -> None:
    result = run(file)
    assert result.exit_code == 0
    assert "ERROR AFTER" in result.stdout
    assert f"stepfare profile {file} --add 'accelerators=H100:" in result.stdout


def test_a_result_is_written_back_and_read_by_the_next_run(file: Path) -> None:
    before = json.loads(run(file, "-o", "json").stdout)
    point = "accelerators=H100:32,placement=4x8,batch=256,steps_per_hour=3100,source=run 7,date=2026-11-20"
    result = run(file, "--add", point)
    assert result.exit_code == 0, result.output
    added = (
        '    - {accelerators: "H100:32", placement: "4x8", batch: 256, steps_per_hour: 3100, source: "run 7", '
        'date: "2026-11-20"}\n'
    )
    assert file.read_text(encoding="utf-8") == JOB.replace("  profile:\n", "  profile:\n" + added)
    after = json.loads(run(file, "-o", "json").stdout)
    assert after["best"]["basis"] == "fitted to 2 points"
    assert after["best"]["relative_error"] < before["best"]["relative_error"]


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("accelerators=H100:8,steps_per_hour", "is not FIELD=VALUE"),
        ("accelerators=H100:8,placement=1x8,batch=256,steps_per_hour=2000", "a second point for H100:8"),
        ("accelerators=H100:16,placement=2x8,batch=256,seconds_per_step=2500", "check the units"),
        ("accelerators=H101:8,placement=1x8,steps_per_hour=900", "no accelerator of the price book is called 'H101'"),
        ("accelerators=H100:16,placement=2x8,steps=4", "has no such field"),
    ],
)
def test_a_wrong_result_is_refused_and_the_file_stays(file: Path, point: str, said: str) -> None:
    result = run(file, "--add", point)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert file.read_text(encoding="utf-8") == JOB


def test_a_layout_that_cannot_be_edited_gets_a_block_to_paste(file: Path) -> None:
    inline = JOB.split("workload:", maxsplit=1)[0] + (
        'workload: {batch: 512, profile: [{accelerators: "H100:8", steps_per_hour: 900}]}\n'
        'gang: {accelerators: "H100:16"}\n'
    )
    file.write_text(inline, encoding="utf-8")
    result = run(file, "--add", "accelerators=H100:16,placement=2x8,steps_per_hour=1700")
    assert result.exit_code == 1
    assert result.stdout == '  profile:\n    - {accelerators: "H100:16", placement: "2x8", steps_per_hour: 1700}\n'
    assert file.read_text(encoding="utf-8") == inline


def test_a_job_of_several_is_named(file: Path) -> None:
    file.write_text(JOB + "---\n" + JOB.replace("name: tune", "name: other"), encoding="utf-8")
    result = run(file)
    assert result.exit_code == 2
    assert "holds tune, other" in " ".join(result.stderr.split())
    written = run(file, "--job", "other", "--add", "accelerators=H100:32,placement=4x8,batch=256,steps_per_hour=3100")
    assert written.exit_code == 0, written.output
    first, second = file.read_text(encoding="utf-8").split("---\n")
    assert first == JOB
    assert "H100:32" in second


def test_a_job_that_no_gang_can_run_gets_a_reason(file: Path) -> None:
    file.write_text(
        JOB.replace("H100:64", "A100-80GB:64").replace("placement: 1x8, batch: 256, ", ""), encoding="utf-8"
    )
    result = run(file)
    assert result.exit_code == 3
    assert "no profile for A100-80GB" in " ".join(result.stdout.split())
