"""``stepfare validate`` on the examples and on every bad input that a job file can hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from router.cli.main import app
from tests.support.repository import ROOT

NOW = ("--now", "2026-11-21T18:00:00Z")
GOOD = """\
name: llama-7b
team: research
steps: 1000
deadline: +18h
workload: {profile: [{accelerator: H100, count: 8, steps_per_hour: 900}]}
gang: {accelerators: H100:8}
checkpoint: {size_gib: 80}
"""


def validate(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["validate", *arguments, *NOW])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("job.yaml")


def test_all_examples_are_valid_with_the_embedded_book() -> None:
    result = validate(str(ROOT / "examples" / "nightly"), str(ROOT / "examples" / "instructive"), "--book", "embedded")
    assert result.exit_code == 0, result.output
    assert "1 limits file: valid (names as in the book of 2026-11-21)" in result.stdout


def test_a_folder_that_init_wrote_is_valid(tmp_path: Path) -> None:
    """Settings beside jobs are read as what they are, and what is wrong in them is told as such."""
    folder = tmp_path / "fleet"
    words = ["init", str(folder), "--yes", "--cloud", "aws", "--team", "research=20000", *NOW]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    result = validate(str(folder), "--book", "embedded")
    assert result.exit_code == 0, result.output
    assert "1 job in 1 file, 1 limits file, 1 clouds file, 1 deploy file: valid" in result.stdout
    (folder / "deploy.yaml").write_text("colour: red\n", encoding="utf-8")
    wrong = validate(str(folder), "--book", "embedded")
    assert wrong.exit_code == 2
    assert "is no field of a deploy file" in wrong.output
    assert "`stepfare schema job`" not in wrong.output


def test_settings_alone_are_checked_and_never_planned(tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    file.write_text("clouds: {aws: {}}\n", encoding="utf-8")
    assert validate(str(file)).exit_code == 0
    planned = CliRunner().invoke(app, ["plan", str(file), *NOW])
    assert planned.exit_code == 2
    assert "is a clouds file, and there is no job file beside it" in planned.output


def test_a_good_job_is_one_line(file: Path) -> None:
    file.write_text(GOOD, encoding="utf-8")
    result = validate("job.yaml")
    assert result.exit_code == 0
    assert result.stdout == "1 job in 1 file: valid (names as in the book of 2026-11-21)\n"
    assert result.stderr == ""


def test_a_secret_written_out_is_warned_of_and_not_shown(file: Path) -> None:
    text = GOOD + "run:\n  command: python train.py\n  env: {NCCL_DEBUG: INFO, HF_TOKEN: canary-91}\n"
    file.write_text(text, encoding="utf-8")
    result = validate("job.yaml")
    assert result.exit_code == 0
    assert "job.yaml:10:" in result.stdout
    assert "run.env" not in result.stderr
    assert "secret:env:NAME" in result.stdout
    assert "canary" not in result.output


BAD = {
    "unknown field": (GOOD + "dedline: +18h\n", "job.yaml:8:1: error: dedline: ", "did you mean deadline?"),
    "wrong unit": (GOOD + "startup: 10\n", "job.yaml:8:10: error: startup: 10 has no unit", "10m"),
    "past deadline": (GOOD.replace("+18h", "2026-11-20T00:00Z"), "job.yaml:4:11: error: deadline: has passed", "later"),
    "no zone": (GOOD.replace("+18h", "2026-11-25T09:00"), "job.yaml:4:11: error: deadline: ", "2026-11-25T09:00Z"),
    "zero steps": (GOOD.replace("1000", "0"), "job.yaml:3:8: error: steps: must be more than 0", ""),
    "duplicate name": (GOOD + "---\n" + GOOD, "job.yaml:9:7: error: name: 'llama-7b' is the name", "job.yaml:1:7"),
    "unknown region": (
        GOOD + "data: {uri: s3://a, at: aws/us-eats-1, gib: 1}\n",
        "job.yaml:8:25: error: data.at: ", "did you mean aws/us-east-1?",
    ),
    "unknown accelerator": (
        GOOD.replace("rs: H100", "rs: H1OO"), "job.yaml:6:22: error: gang.accelerators: ", "H100",
    ),
    "size nobody sells": (
        GOOD.replace("rs: H100:8", "rs: GB200:6"), "job.yaml:6:22: error: gang.accelerators: nobody sells", "GB200:8",
    ),
    "key twice": (GOOD + "steps: 5\n", "job.yaml:8:1: error: 'steps' is written twice", "keep one"),
    "not YAML": (GOOD + "data: [\n", "job.yaml:9:1: error: is not YAML", "brackets"),
    "10 MB": ("# " + "x" * 10_000_000, "job.yaml: error: is larger than 2 MB", "split"),
    "bomb": (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{c}: &{c} [{', '.join([f'*{chr(ord(c) - 1)}'] * 10)}]\n" for c in "bcdefghij"),
        "job.yaml:5:4: error: brings the file over 100,000 values", "aliases",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_2_with_place_and_remedy_and_no_traceback(file: Path, case: str) -> None:
    text, line, remedy = BAD[case]
    file.write_text(text, encoding="utf-8")
    result = validate("job.yaml")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert line in result.stderr
    assert remedy in result.stderr
    assert "Traceback" not in result.stderr
    assert [path.name for path in Path().iterdir()] == ["job.yaml"]


def test_an_empty_folder_is_2(file: Path) -> None:
    Path("jobs").mkdir()
    result = validate("jobs")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "jobs: error: holds no .yaml or .yml file" in result.stderr


def test_json_carries_problems_and_notes(file: Path) -> None:
    file.write_text(GOOD.replace("checkpoint: {size_gib: 80}\n", ""), encoding="utf-8")
    fine = json.loads(validate("job.yaml", "-o", "json").stdout)
    assert (fine["schema_version"], fine["valid"]) == (1, True)
    assert fine["jobs"][0]["job"] == "llama-7b"
    assert "starts over" in fine["notes"][0]["what"]
    file.write_text(GOOD.replace("1000", "0"), encoding="utf-8")
    result = validate("job.yaml", "-o", "json")
    bad = json.loads(result.stdout)
    assert (result.exit_code, bad["valid"]) == (2, False)
    assert (bad["problems"][0]["where"], bad["problems"][0]["field"]) == ("job.yaml:3:8", "steps")


def test_limits_beside_the_jobs_are_checked_too(file: Path) -> None:
    file.write_text(GOOD, encoding="utf-8")
    Path("limits.yaml").write_text("clouds: [aws, gpc]\n", encoding="utf-8")
    result = validate(".")
    assert result.exit_code == 2
    assert "limits.yaml:1:15: error: clouds[1]: no cloud of the price book is called 'gpc'" in result.stderr
    assert validate("limits.yaml", "--book", "none").exit_code == 0


def test_names_are_not_looked_up_where_no_book_is_wanted(file: Path) -> None:
    file.write_text(GOOD.replace("rs: H100", "rs: X100"), encoding="utf-8")
    result = validate("job.yaml", "--book", "none")
    assert result.exit_code == 0
    assert "names not looked up" in result.stdout
