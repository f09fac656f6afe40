"""``stepfare plan what-if``: formats, the plot, refusals, several processes, interruption, engines."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import Result

from router.cli import console
from router.cli.console import ExitCode
from tests.support.command import NOW, killed, plan, run, write_job

LIMITS = """\
limits:
- {name: aws p5 spot, cloud: aws, family: p5, market: spot, amount: 192, unit: vcpus}
teams: [{team: research, budget: 4000}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three jobs that fit, and limits. One is in a hurry, and on demand: a later deadline makes none cheaper."""
    at = tmp_path_factory.mktemp("what-if")
    write_job(at / "jobs", "llama-7b")
    write_job(at / "jobs", "mpt-13b", steps=9000, deadline="+4d")
    write_job(at / "jobs", "rush", steps=2000, deadline="+4h", more="use_spot: false\n")
    (at / "limits.yaml").write_text(LIMITS, encoding="utf-8")
    return at


def what_if(folder: Path, *arguments: object, workers: int = 1) -> Result:
    """The command on the three jobs, in this process unless more workers are asked for."""
    fixed = ("--limits", folder / "limits.yaml", "--now", NOW, "--gap", "0", "--workers", workers)
    return run("plan", "what-if", folder / "jobs", *fixed, *arguments)


def test_one_variant_is_compared_with_the_plan(folder: Path) -> None:
    result = what_if(folder, "--limit", "aws p5 spot=0", "--deadline", "rush-3h", "-o", "json")
    assert (result.exit_code, result.stderr) == (ExitCode.UNPLACED, "plans made: 2 of 2\n")
    document = json.loads(result.stdout)
    base, (variant,) = document["base"], document["variants"]
    same = plan(folder / "jobs", "--limits", folder / "limits.yaml", "--gap", "0", "-o", "json")
    assert (base["cost_usd"], base["placed"]) == (json.loads(same.stdout)["cost_usd"], 3)
    assert variant["changes"] == ["limit aws p5 spot 0", "deadline rush -3h"]
    assert (variant["placed"], variant["unplaced"], variant["newly_unplaced"]) == (2, ["rush"], ["rush"])
    assert float(variant["difference_usd"]) == pytest.approx(float(variant["cost_usd"]) - float(base["cost_usd"]))
    assert {move["job"]: move["change"] for move in variant["moves"]}["rush"] == "dropped"
    assert not any("p5" in (move["after"] or "") and "spot" in move["after"] for move in variant["moves"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "words"),
    [
        pytest.param(
            "table",
            (r"in all rows but the base: drop-job rush", r"\+6h +384 +2 of 2 +\$", r"base +3 of 3 +\$"),
            marks=pytest.mark.slow,
        ),
        pytest.param("wide", (r"STATUS +JOBS +MOVES", r"limit aws p5 spot", r"optimal"), marks=pytest.mark.slow),
        ("csv", (r"^variant,deadline all,limit aws p5 spot,jobs,placed,cost_usd", r"deadline all \+0h; limit")),
        pytest.param(
            "json",
            (r'"sweeps": \[\n    "deadline all",\n    "limit aws p5 spot"', r'"values": \[\n'),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_grid_in_every_format(folder: Path, tmp_path: Path, form: str, words: tuple[str, ...]) -> None:
    file = tmp_path / "out"
    sweeps = ("--sweep", "deadline all +0h,+6h", "--sweep", "limit 'aws p5 spot' 0,384")
    result = what_if(folder, "--drop-job", "rush", *sweeps, "-o", form, "--out", file)
    assert (result.exit_code, result.stdout) == (ExitCode.OK, "")
    text = file.read_text(encoding="utf-8")
    for pattern in words:
        assert re.search(pattern, text, flags=re.MULTILINE), text
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [(row["deadline all"], row["limit aws p5 spot"]) for row in rows] == [
            ("", ""),
            ("'+0h", "0"),
            ("'+0h", "384"),
            ("'+6h", "0"),
            ("'+6h", "384"),
        ]
        assert float(rows[1]["cost_usd"]) > float(rows[2]["cost_usd"])


@pytest.mark.slow
def test_the_number_of_processes_changes_no_byte(folder: Path, tmp_path: Path) -> None:
    sweep = ("--sweep", "price aws 0.5,1.0", "-o", "json", "--plot")
    one, two = (what_if(folder, *sweep, tmp_path / f"{n}.svg", workers=n) for n in (1, 2))
    assert (one.exit_code, two.exit_code) == (ExitCode.OK, ExitCode.OK)
    assert one.stdout == two.stdout
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()
    document = json.loads(one.stdout)
    same = document["variants"][1]
    assert (same["cost_usd"], same["moves"]) == (document["base"]["cost_usd"], [])


@pytest.mark.slow
def test_the_plot_has_a_point_a_plan_and_the_jobs_left_out(folder: Path, tmp_path: Path) -> None:
    plot = tmp_path / "costs.svg"
    result = what_if(folder, "--sweep", "deadline all -6h,+0h,+6h", "--plot", plot)
    assert result.exit_code == ExitCode.UNPLACED
    root = ElementTree.fromstring(plot.read_text(encoding="utf-8"))
    circles = [each for each in root.iter() if each.tag.endswith("circle")]
    titles = ["".join(each.itertext()) for each in circles]
    assert [title.partition(":")[0] for title in titles] == [f"deadline all {value}" for value in ("-6h", "+0h", "+6h")]
    assert [title.rpartition(", ")[2] for title in titles] == ["1 left out", "0 left out", "0 left out"]
    assert ["fg" in (each.get("class") or "") for each in circles] == [True, False, False]
    costs = re.findall(r"^[+-]\d+h +\d of 3 +(\$[\d.,]+)", result.stdout, flags=re.MULTILINE)
    assert [re.findall(r"\$[\d.,]*\d", title)[0] for title in titles] == costs
    heights = [float(each.get("cy") or 0) for each in circles]
    assert heights[0] > heights[2] > heights[1], "the least costs are lowest: more time is cheaper, one job less most"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing is changed"),
        (("--limit", "aws p5 spt=1"), "--limit: there is no limit 'aws p5 spt'\n    did you mean aws p5 spot?"),
        (("--deadline", "rash+1h"), "--deadline: there is no job 'rash'"),
        (("--drop-region", "aws/us-east-9"), "--drop-region: there is no region 'aws/us-east-9'"),
        (("--budget", "reserch=1"), "--budget: there is no team 'reserch'\n    did you mean research?"),
        (("--price", "aws*2", "--sweep", "price azur 1,2"), "--sweep: there is no cloud"),
        (("--sweep", "deadline all"), "--sweep: 'deadline all' is no sweep"),
        (("--price", "aws", "--budget", "x", "--sweep", "y"), "3 problems; nothing was done"),
        (("--price", "aws*2", "--plot", "a.svg"), "--plot: draws along a sweep, and there is none"),
        (("--price", "aws*2", "--engine", "ray:/x"), "--engine: 'ray:/x' is no engine"),
        (("--price", "aws*2", "--slot", "1m"), "--slot: 1m is shorter than 0:05:00"),
        (("--price", "aws*2", "--horizon", "30d"), "--horizon: is from one slot up to 14 days"),
    ],
)
def test_bad_input_is_refused_before_anything_is_planned(
    folder: Path, arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.app.plan_rerun.run_tasks", lambda *_: pytest.fail("it plans"))
    result = what_if(folder, *arguments)
    assert (result.exit_code, result.stdout) == (ExitCode.INVALID_INPUT, "")
    assert words in result.stderr


@pytest.mark.slow
def test_an_interruption_ends_the_processes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_bars: object, _name: str, done: int, _total: int | None, _remark: str) -> None:
        if done:
            raise KeyboardInterrupt

    monkeypatch.setattr(console.ProgressBars, "advance", interrupt)
    before = set(multiprocessing.active_children())
    plot = tmp_path / "costs.svg"
    result = what_if(folder, "--sweep", "price aws 0.5,0.6,0.7,0.8", "--plot", plot, workers=2)
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (ExitCode.INTERRUPTED, "", "interrupted")
    assert set(multiprocessing.active_children()) <= before
    assert not plot.exists()


def test_a_process_that_is_killed_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.app.plan_rerun._plan", killed)
    result = what_if(folder, "--price", "aws*2", workers=2)
    assert result.exit_code == ExitCode.FAILURE
    assert "a process was killed, perhaps for memory\n    fewer --workers" in result.stderr


def test_without_ray_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = what_if(folder, "--price", "aws*2", "--engine", "ray://head:10001")
    assert result.exit_code == ExitCode.FAILURE
    assert "needs Ray, which is not installed\n    pip install 'stepfare[ray]'" in result.stderr
