"""``stepfare estimate`` as a user runs it: formats, gangs without an answer, flags of launchers, the page."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from pricing.money import Usd
from router.app.learned import runs_to_json
from router.config.job_files import load_jobs
from router.jobs.experience import RunRecords, SpeedRun, job_signature
from router.render.estimate_text import CSV_FIELDS, number
from router.render.tables import WIDTH, format_step_price
from tests.support.command import run
from tests.support.night import NOW as MOMENT
from tests.support.page_reader import check_landmarks, read_page
from tests.support.repository import ROOT

NOW = "2026-11-21T18:00:00Z"
JOB = """\
name: tune
team: search
steps: 2000
deadline: "2026-11-20T00:00:00Z"  # has passed: it does not count here
workload:
  transformer:
    parameters: 7B
    layers: 32
    hidden: 4096
    sequence_length: 4096
    tokens_per_step: 1048576
gang:
  accelerators: {H100: [8, 16]}
checkpoint: {size_gib: 90}
startup: 20m
"""
MEASURED = """\
name: measured
team: search
steps: 2000
workload: {profile: [{accelerators: "H100:8", steps_per_hour: 300}]}
gang: {accelerators: "H100:8"}
checkpoint: {size_gib: 90}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tune.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


def estimate(file: Path, *arguments: object) -> Result:
    return run("estimate", file, "--book", "embedded", "--now", NOW, *arguments)


def rows(file: Path, *arguments: object, code: int = 0) -> list[dict[str, Any]]:
    result = estimate(file, "-o", "json", *arguments)
    assert result.exit_code == code, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return found


def test_without_gangs_those_of_the_job_file_are_compared(file: Path) -> None:
    found = rows(file)
    assert {(row["gang"], row["market"]) for row in found} == {
        (gang, market) for gang in ("H100:8", "H100:16") for market in ("spot", "on_demand")
    }
    costs = [float(row["answer"]["usd_per_step"]["expected"]) for row in found]
    assert costs == sorted(costs)


def test_gangs_are_named_as_in_a_job_file_and_each_counts_once(file: Path) -> None:
    found = rows(file, "--on", "H100:8,H200:8", "--on", "MI300X:8,H100:8", "--market", "on_demand")
    assert sorted(row["gang"] for row in found) == ["H100:8", "H200:8", "MI300X:8"]


def test_a_table_has_every_gang_and_is_80_columns_wide(file: Path) -> None:
    result = estimate(file, "--on", "H100:8,H200:8,A100-80GB:8,MI300X:8,T4:8,H1000:8")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= WIDTH
    for words in ("$/1M TOKENS (80 %)", "No answer", "did you mean H100", "usable", "steps that last", "ZeRO-3"):
        assert words in " ".join(result.stdout.split())


def test_speed_while_it_runs_and_the_share_of_the_time_stand_apart(file: Path) -> None:
    """Waiting for spot machines makes no gang slower while it runs."""
    found = {row["market"]: row["answer"] for row in rows(file, "--on", "H100:8")}
    spot, demand = found["spot"], found["on_demand"]
    assert spot["nominal_steps_per_hour"] == demand["nominal_steps_per_hour"]
    assert spot["running_share"] < demand["running_share"] <= 1
    for answer in (spot, demand):
        in_all = answer["nominal_steps_per_hour"] * answer["running_share"]
        assert in_all == pytest.approx(answer["steps_per_hour"]["expected"], rel=1e-5)
    shown = estimate(file, "--on", "H100:8").stdout
    head, first, second = (line.split() for line in shown.splitlines()[:3])
    at = head.index("STEPS/H")
    assert first[at] == second[at]
    assert first[at + 1] == f"{min(spot['running_share'], demand['running_share']):.0%}"


def test_wide_is_a_row_for_each_gang_in_each_market(file: Path) -> None:
    lines = estimate(file, "--on", "H100:8,H200:8,T4:8", "-o", "wide").stdout.splitlines()
    assert len(lines) == 1 + 3 * 2
    for words in ("LAYOUT", "$ CHECKPOINTS", "LARGEST PART", "NO ANSWER BECAUSE"):
        assert words in lines[0]


def test_csv_has_the_figures_of_the_json(file: Path) -> None:
    gangs = ("--on", "H100:8,T4:8")
    written = list(csv.DictReader(io.StringIO(estimate(file, *gangs, "-o", "csv").stdout)))
    found = rows(file, *gangs)
    assert tuple(written[0]) == CSV_FIELDS
    assert [(row["gang"], row["market"]) for row in written] == [(row["gang"], row["market"]) for row in found]
    for line, row in zip(written, found, strict=True):
        answer = row["answer"]
        assert bool(line["refusal"]) is (answer is None)
        if answer is not None:
            assert line["usd_per_step"] == answer["usd_per_step"]["expected"]
            assert float(line["tokens_per_s_high"]) == answer["tokens_per_s"]["high"]
            assert line["compute_usd"] == answer["step_terms"]["compute_usd"]
        assert float(line["memory_gib"]) == row["memory"]["need_gib"]


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ("torchrun", "--nnodes=1 --nproc-per-node=8\n"),
        ("megatron", "--micro-batch-size="),
        ("deepspeed", '"train_micro_batch_size_per_gpu"'),
    ],
)
def test_flags_of_the_cheapest_gang_stand_below_the_table(file: Path, launcher: str, words: str) -> None:
    result = estimate(file, "--on", "H100:8", "--launcher", launcher)
    assert result.exit_code == 0, result.output
    table, flags = result.stdout.split(f"# {launcher}: H100:8 ")
    assert words in flags
    assert words not in table
    assert words not in estimate(file, "--on", "H100:8").stdout


def test_auto_finds_a_layout_where_the_job_s_own_does_not_fit(file: Path) -> None:
    file.write_text(JOB.replace("7B", "30B").replace("hidden: 4096", "hidden: 8192\n    sharding: none"))
    refused = rows(file, "--on", "H100:64", "--market", "on_demand", code=3)[0]
    assert refused["memory"]["fits"] is False
    assert refused["memory"]["largest"] == "states"
    found = rows(file, "--on", "H100:64", "--market", "on_demand", "--layout", "auto")[0]
    assert found["memory"]["fits"] is True
    sizes = found["layout"]
    assert sizes["tensor_parallel"] * sizes["pipeline_parallel"] > 1
    flag = f"--tensor-model-parallel-size={sizes['tensor_parallel']}"
    assert flag in found["launcher"]["megatron"]


def test_the_exit_code_says_that_no_gang_has_an_answer(file: Path) -> None:
    result = estimate(file, "--on", "T4:8,H1000:8")
    assert result.exit_code == 3
    assert "No answer" in result.stdout
    assert "no gang can run tune" in result.stderr
    assert estimate(file, "--on", "T4:8,H100:8").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--on", "H100:eight"), "--on: 'H100:eight' is no accelerator with a count"),
        (("--on", "H100:8,"), "--on"),
        (("--launcher", "torchrun", "-o", "csv"), "--launcher: flags are not printed beside csv"),
        (("--job", "other"), "holds no job 'other'"),
    ],
)
def test_bad_options_are_refused(file: Path, arguments: tuple[str, ...], said: str) -> None:
    result = estimate(file, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_measured_job_is_compared_by_the_step(tmp_path: Path) -> None:
    file = tmp_path / "measured.yaml"
    file.write_text(MEASURED, encoding="utf-8")
    result = estimate(file, "--on", "H100:8,H200:8", "--launcher", "megatron")
    assert result.exit_code == 0
    assert "$/STEP (80 %)" in result.stdout
    assert "no profile for H200" in result.stdout
    assert "states no `transformer`" in result.stderr
    assert estimate(file, "--layout", "auto").exit_code == 2
    page = tmp_path / "page.html"
    assert estimate(file, "--html", page).exit_code == 0
    check_landmarks(read_page(page.read_text(encoding="utf-8")))
    assert "Dollars a step" in page.read_text(encoding="utf-8")


def test_the_page_shows_every_gang_once_and_needs_nothing_else(file: Path, tmp_path: Path) -> None:
    pages = tmp_path / "page.html", tmp_path / "again.html"
    gangs = ("--on", "H100:8,H200:8,MI300X:8,T4:8")
    for page in pages:
        assert estimate(file, *gangs, "--html", page).exit_code == 0
    text = pages[0].read_text(encoding="utf-8")
    assert text == pages[1].read_text(encoding="utf-8")
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    document = read_page(text)
    answered = [row for row in rows(file, *gangs) if row["answer"] is not None]
    shown = [row.attributes["data-gang"] for row in document.tags("tr") if "data-gang" in row.attributes]
    assert shown == [f"{row['gang']} {row['market']}" for row in answered]
    drawn = [each.attributes["data-gang"] for each in document.tags("g") if "data-gang" in each.attributes]
    letters = {"spot": "S", "on_demand": "D"}
    assert drawn == 3 * [f"{row['gang']} {letters[row['market']]}" for row in answered]
    words = document.words
    assert "No answer" in words
    assert f"${float(answered[0]['answer']['cost_usd']):,.2f}" in words


def test_the_page_escapes_what_a_job_file_says(file: Path, tmp_path: Path) -> None:
    file.write_text(JOB.replace("team: search", "team: '<b>&'"), encoding="utf-8")
    page = tmp_path / "page.html"
    assert estimate(file, "--html", page).exit_code == 0
    assert "&lt;b&gt;&amp;" in page.read_text(encoding="utf-8")


def test_learned_runs_count_as_in_a_plan(file: Path, tmp_path: Path) -> None:
    """The speed of an earlier run of the same job moves the estimate toward it."""
    job = load_jobs([file], MOMENT, own_deadlines=False).jobs[0]
    before = rows(file, "--on", "H100:8", "--market", "on_demand")[0]["answer"]
    half = before["nominal_steps_per_hour"] / 2
    run_once = SpeedRun("tune-1", "tune", job_signature(job), "aws", "p5.48xlarge", "H100", 8, 1, None, half, MOMENT)
    learned = tmp_path / "runs.json"
    learned.write_text(runs_to_json(RunRecords((run_once,), ())), encoding="utf-8")
    after = rows(file, "--on", "H100:8", "--market", "on_demand", "--learned", learned)[0]["answer"]
    assert half <= after["nominal_steps_per_hour"] < before["nominal_steps_per_hour"]
    assert "earlier run" in after["speed_basis"]


def test_the_table_of_the_guide_is_what_the_command_says() -> None:
    guide = (ROOT / "docs/guides/job-owner.md").read_text(encoding="utf-8")
    shown = [line for line in guide.splitlines() if "| spot |" in line or "| on-demand |" in line]
    words = re.search(r"`stepfare (estimate examples[^`]+)`", guide)
    assert words is not None
    arguments = words[1].replace("examples/", f"{ROOT}/examples/").split()
    found = json.loads(run(*arguments, "-o", "json").stdout)["rows"]
    wanted = []
    for row in found:
        if row["answer"] is not None:
            answer, part = row["answer"], row["answer"]["parts"][-1]
            runs = (number(answer["nominal_steps_per_hour"]), f"{answer['running_share']:.0%}".replace("%", " %"))
            amounts = [
                [format_step_price(Usd.parse(answer[name][end])) for end in ("expected", "low", "high")]
                for name in ("usd_per_step", "usd_per_million_tokens")
            ]
            figures = [f"{expected} ({low}-{high})" for expected, low, high in amounts]
            place = f"{part['cloud']}/{part['region']}"
            cells = (row["gang"], row["market"].replace("_", "-"), place, *runs, *figures)
            wanted.append(f"| {' | '.join(cells)} |")
    assert shown == wanted
