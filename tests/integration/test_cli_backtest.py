"""`stepfare backtest` on small made-up traces: figures, files, job files, refusals, several processes, Ctrl-C."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import Result

from router.cli import console
from router.cli.console import ExitCode
from tests.support import command
from tests.support.command import killed
from tests.support.repository import ROOT

TICK_S, TICKS = 1800, 400
SPOT, DEMAND = 1.0, 3.0
BASE = ("--work", "10h", "--deadline", "14h", "--every", "8h", "--processes", "1")


def trace(path: Path, data: list[int | None], **metadata: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {"gap_seconds": TICK_S, "spot_price_per_hour": SPOT, "on_demand_price_per_hour": DEMAND}
    path.write_text(json.dumps({"metadata": {**known, **metadata}, "data": data}), encoding="utf-8")
    return path


def availability(seed: int, most: int = 1) -> list[int | None]:
    rng, now = random.Random(seed), most
    found: list[int | None] = []
    for _ in range(TICKS):
        now = rng.randint(0, most) if rng.random() < 0.15 else now
        found.append(now)
    return found


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    for number, zone in enumerate(("us-east-1a", "us-east-1b", "us-west-2a")):
        trace(folder / f"{zone}.json", availability(number, most=4))
    return folder


def run(traces: object, *arguments: object) -> Result:
    return command.run("backtest", "--traces", traces, *arguments)


def test_a_table_of_the_usual_policies(traces: Path) -> None:
    result = run(traces, *BASE)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "10h of work in 14h, launch 12m, each of 3 zones"
    assert re.fullmatch(r"\d+ windows in \d+ stretches of time", lines[1])
    assert lines[3].split()[:3] == ["POLICY", "MEAN", "USD"]
    first = {line.split()[0] for line in lines[4:11]}
    assert first == {"ours", "greedy", "sliced", "up", "up-plain", "optimum", "on-demand"}
    assert re.search(r"^on-demand +31\.50 1\.000 ", result.stdout, re.MULTILINE)
    assert max(map(len, lines)) <= 80
    assert "parts played: " in result.stderr


def test_a_zone_that_looks_like_a_formula_is_text_in_the_csv(tmp_path: Path) -> None:
    trace(tmp_path / "traces" / "=1+1.json", availability(1))
    file = tmp_path / "windows.csv"
    result = run(tmp_path / "traces", *BASE, "--policy", "greedy", "--csv", str(file))
    assert result.exit_code == 0, result.stderr
    with file.open(encoding="utf-8", newline="") as stream:
        assert {row["site"] for row in csv.DictReader(stream)} == {"'=1+1"}


def test_what_the_watcher_runs_can_be_scored(traces: Path) -> None:
    """It asks, with --probes and without: the same dollars."""
    asked = ("--zones", "us-east-1a,us-east-1b", "--policy", "as-run,greedy", "--every", "40h", "-o", "json")
    found = [json.loads(run(traces, *BASE, *asked, *more).stdout)["cells"][0] for more in ((), ("--probes",))]
    policies = [{one["policy"]: one for one in cell["policies"]} for cell in found]
    assert [p["as-run"]["mean_usd"] for p in policies] == [policies[0]["as-run"]["mean_usd"]] * 2
    assert policies[0]["as-run"]["misses"] == 0
    assert found[0]["optimum_usd"] <= policies[0]["as-run"]["mean_usd"] < found[0]["on_demand_usd"]
    listed = command.run("backtest", "--list-policies").stdout
    assert re.search(r"^as-run +asks ", listed, re.MULTILINE)


def test_json_is_the_table_and_csv_has_a_row_a_window_and_policy(traces: Path, tmp_path: Path) -> None:
    file = tmp_path / "windows.csv"
    result = run(
        traces,
        *BASE,
        "--zones",
        "all",
        "--policy",
        "up,greedy",
        "--checkpoint",
        "50 GB",
        "--csv",
        file,
        "--ratio",
        "1.2",
        "-o",
        "json",
    )
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    assert [cell["deadline_h"] for cell in content["cells"]] == [14, 12]
    cell = content["cells"][0]
    assert cell["sites"][0]["zones"] == ["us-east-1a", "us-east-1b", "us-west-2a"]
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    mine = [row for row in rows if row["deadline_h"] == "14.0" and row["policy"] == "up"]
    assert len(rows) == 2 * sum(c["windows"] for c in content["cells"])
    assert len(mine) == cell["windows"]
    for policy in cell["policies"]:
        own = [float(r["cost_usd"]) for r in rows if r["deadline_h"] == "14.0" and r["policy"] == policy["policy"]]
        assert sum(own) / len(own) == pytest.approx(policy["mean_usd"], abs=1e-5)
        assert policy["of_on_demand"] == pytest.approx(policy["mean_usd"] / cell["on_demand_usd"])
        assert policy["over_optimum"] == pytest.approx(policy["mean_usd"] / cell["optimum_usd"] - 1)
        assert policy["misses"] == 0
        assert policy["difference"]["low"] <= policy["difference"]["mean"] <= policy["difference"]["high"]
    assert all(float(row["cost_usd"]) >= float(row["optimum_usd"]) * (1 - 1e-4) for row in rows)
    assert {row["late"] for row in rows} == {"0"}
    assert all(float(row["finish_h"]) <= float(row["deadline_h"]) for row in rows)


@pytest.mark.slow
def test_any_number_of_processes_finds_the_same(traces: Path) -> None:
    asked = ("--work", "10h", "--ratio", "1.3", "--every", "8h", "--zones", "us-east-1a,us-west-2a", "-o", "json")
    alone, three = (run(traces, *asked, "--processes", count) for count in (1, 3))
    assert alone.exit_code == three.exit_code == 0, three.stderr
    assert alone.stdout == three.stdout


@pytest.mark.slow
def test_a_page_that_needs_nothing_else(traces: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    asked = (
        "--work",
        "10h",
        "--ratio",
        "1.2",
        "--ratio",
        "1.5",
        "--every",
        "16h",
        "--processes",
        "1",
        "--zones",
        "grow",
        "--policy",
        "greedy,up,lindy",
        "--html",
    )
    assert run(traces, *asked, file).exit_code == 0
    text = file.read_text(encoding="utf-8")
    assert re.findall(r"<h2>(.*?)</h2>", text) == [
        "Cost against deadline",
        "Cost against number of zones",
        "One run",
        "Figures",
    ]
    assert text.count("<svg") == 3
    assert text.count("<table>") == 6
    assert "<script" not in text
    page = ElementTree.fromstring(
        text.replace("<!doctype html>", "")
        .replace('<meta charset="utf-8">', "")
        .replace('<meta name="viewport" content="width=device-width">', "")
    )
    shown = {url for element in page.iter() for url in element.attrib.values() if url.startswith("http")}
    assert all("w3.org" in url or "purl.org" in url or "creativecommons" in url for url in shown)
    again = tmp_path / "again.html"
    assert run(traces, *asked, again).exit_code == 0
    assert again.read_bytes() == file.read_bytes()


def test_policies_are_listed_and_all_that_can_ask_do(traces: Path) -> None:
    listed = command.run("backtest", "--list-policies")
    assert listed.exit_code == 0
    assert re.search(r"^skynomad +asks ", listed.stdout, re.MULTILINE)
    asked = ("--policy", "greedy", "--policy", "spot-or-wait", "--zones", "all", "-o", "json")
    free, paid = (json.loads(run(traces, *BASE, *asked, *more).stdout) for more in ((), ("--probes",)))
    assert [p["policy"] for p in free["cells"][0]["policies"]] == ["greedy"]
    assert free["cells"][0]["optimum_usd"] == paid["cells"][0]["optimum_usd"]
    usual = run(traces, *BASE, "--probes", "--zones", "all")
    assert {"greedy", "up-s", "lindy", "skynomad"} <= set(usual.stdout.split())


JOB = """\
name: {name}
team: research
steps: {steps}
deadline: +14h
startup: 12m
workload: {{profile: [{{accelerator: H100, count: 16, steps_per_hour: 900, fabric: rdma}}]}}
gang: {{accelerators: {gang}}}
{more}
"""


def job(folder: Path, *, steps: int = 9000, gang: str = "H100:16", more: str = "checkpoint: {size_gib: 80}") -> Path:
    path = folder / "llama.yaml"
    path.write_text(JOB.format(name="llama", steps=steps, gang=gang, more=more), encoding="utf-8")
    return path


JOBS = ("--book", "embedded", "--now", command.NOW, "--every", "8h", "--processes", "1", "--policy", "greedy")


def test_a_job_file_says_work_deadline_gang_and_launch(traces: Path, tmp_path: Path) -> None:
    plain = command.run("backtest", job(tmp_path), "--traces", traces, "--accelerator", "h100:8", *JOBS)
    assert plain.exit_code == 0, plain.stderr
    assert "llama: 10h of work on 2 machines in 14h, launch 12m, each of 3 zones" in plain.stdout
    assert re.search(r"^on-demand +63\.00 ", plain.stdout, re.MULTILINE)
    assert "measured: job profile" in plain.stderr
    job(tmp_path, more="checkpoint: {size_gib: 80, interval: 20m}")
    saves = command.run("backtest", tmp_path, "--traces", traces, "--accelerator", "H100:8", *JOBS, "--ratio", "2")
    assert "llama: 10h of work on 2 machines in 20h, launch 22m" in saves.stdout
    named = command.run(
        "backtest", tmp_path, "--traces", traces, "--accelerator", "H100:8", "--changeover", "6m", *JOBS
    )
    assert "launch 6m" in named.stdout


@pytest.mark.parametrize(
    ("changes", "arguments", "says"),
    [
        ({}, (), "--accelerator: is missing"),
        ({}, ("--accelerator", "H100:5"), "no machine of the book has 5 H100"),
        ({}, ("--accelerator", "V100"), "it has V100-16GB, V100-32GB"),
        ({}, ("--accelerator", "a:b:c"), "--accelerator: 'b:c' is no number of a"),
        ({}, ("--accelerator", "A100-80GB:8"), "llama.yaml:7:7: error: gang: its gang may not be of A100-80GB"),
        ({"gang": "H100:12"}, ("--accelerator", "H100:8"), "no gang of its is a multiple of 8 H100"),
        ({"gang": "H100:16, machines: 1"}, ("--accelerator", "H100:8"), "is a multiple of 8 H100 on 1 machine"),
        ({"gang": "H100:128"}, ("--accelerator", "H100:8"), "llama.yaml:6:11: error: workload: "),
        ({"more": ""}, ("--accelerator", "H100:8"), "checkpoint: without a checkpoint nothing of a run is left"),
        (
            {"more": "checkpoint: {size_gib: 1}\nuse_spot: false"},
            ("--accelerator", "H100:8"),
            "market.spot: spot is 'never'",
        ),
        (
            {"more": "checkpoint: {size_gib: 1}\nstatus: {steps_done: 9000}"},
            ("--accelerator", "H100:8"),
            "status: has no steps left",
        ),
        ({"steps": 90_000}, ("--accelerator", "H100:8"), "14h is too short for the 4d4h of work of llama"),
        ({}, ("--accelerator", "H100:8", "--work", "3h"), "--work: the job files say that"),
    ],
)
def test_jobs_that_cannot_be_played(
    traces: Path, tmp_path: Path, changes: dict[str, object], arguments: tuple[str, ...], says: str
) -> None:
    path = job(tmp_path, **changes)  # type: ignore[arg-type]
    result = command.run("backtest", path, "--traces", traces, *JOBS, *arguments)
    assert result.exit_code == ExitCode.INVALID_INPUT
    assert says in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--deadline", "14h"), "--work: is missing"),
        (("--work", "10h"), "--deadline: is missing"),
        (("--work", "10h", "--deadline", "9h"), "9h is too short for the 10h of work"),
        (("--work", "10h", "--deadline", "10h"), "from 10h30m on, at ticks of 1800 s"),
        (("--work", "10h", "--ratio", "0.9"), "--ratio: 0.9 is below 1"),
        (("--work", "10h", "--ratio", "nan"), "--ratio: nan is below 1"),
        (("--work", "150h", "--deadline", "190h"), "a window of 7d22h is longer than the 6d23h that are scored"),
        (("--work", "10", "--deadline", "14h"), "--work: '10' is no duration"),
        (("--work", "0h", "--deadline", "14h"), "--work: 0h is not 1 s or more"),
        ((*BASE, "--policy", "skynomd"), "there is no policy 'skynomd'"),
        ((*BASE, "--policy", "skynomd"), "did you mean skynomad or skynomad-v100?"),
        ((*BASE, "--policy", "sliced", "--probes"), "sliced cannot ask zones"),
        ((*BASE, "--policy", "ours", "--blocks", "1"), "ours learns from the past, and with one block there is none"),
        ((*BASE, "--zones", "us-east-1c"), "there is no zone 'us-east-1c'"),
        ((*BASE, "--zones", "us-east-1a,us-east-1a"), "names a zone twice"),
        ((*BASE, "--gang", "5"), "needs 5 machines at once, and there were never more than 4"),
        ((*BASE, "--spot-price", "1"), "--on-demand-price: is missing"),
        ((*BASE, "--spot-price", "-1", "--on-demand-price", "3"), "--spot-price: -1.0 is not a price above zero"),
        ((*BASE, "--spot-price", "1", "--on-demand-price", "nan"), "--on-demand-price: nan is not a price"),
        ((*BASE, "--transfer", "fast"), "--transfer: 'fast' is no rate"),
        ((*BASE, "--transfer", "0 GB/s"), "--transfer: is not more than nothing"),
        ((*BASE, "--checkpoint", "50"), "--checkpoint: '50' has no unit"),
        ((*BASE, "--tick", "50m"), "a tick of 1800 s does not divide 3000 s"),
        ((*BASE, "--accelerator", "H100:8"), "--accelerator: is for job files"),
    ],
)
def test_bad_options_are_refused_with_what_to_do(traces: Path, arguments: tuple[str, ...], says: str) -> None:
    result = run(traces, *arguments)
    assert result.exit_code == ExitCode.INVALID_INPUT, result.stdout
    assert says in result.stderr
    assert result.stdout == ""


def test_bad_traces_are_refused_whole(traces: Path, tmp_path: Path) -> None:
    assert "--traces: is missing" in command.run("backtest", *BASE).stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "there is no trace" in run(empty, *BASE).stderr
    broken = tmp_path / "broken" / "a.json"
    trace(broken, [1, 0])
    broken.write_text(broken.read_text(encoding="utf-8")[:-3], encoding="utf-8")
    assert f"{broken}:1:" in run(broken.parent, *BASE).stderr
    holed = trace(tmp_path / "holed" / "a.json", [*availability(1)[:-2], None, None])
    refused = run(holed, *BASE)
    assert refused.exit_code == ExitCode.INVALID_INPUT
    assert "2 ticks have no answer: 398, 399" in refused.stderr
    assert run(holed, *BASE, "--holes", "down", "--policy", "up").exit_code == 0
    ticks = tmp_path / "ticks"
    trace(ticks / "a.json", availability(1))
    trace(ticks / "b.json", availability(2)[: TICKS // 2], zone="b", gap_seconds=2 * TICK_S)
    assert "different ticks" in run(ticks, *BASE).stderr
    slower = run(ticks, *BASE, "--tick", "1h", "--policy", "up", "--zones", "all")
    assert slower.exit_code == 0, slower.stderr
    assert "2 zones" in slower.stdout
    twice = f"{traces.parent}/{traces.name}/us-east-1*.json"
    assert run(twice, *BASE, "--zones", "all", "--policy", "up").exit_code == 0
    trace(ticks / "c.json", availability(3)[: TICKS // 2], zone="b", gap_seconds=2 * TICK_S)
    assert "has several traces of one zone" in run(f"{ticks}/[bc].json", *BASE, "--zones", "all").stderr


def test_files_appear_whole_or_not_at_all(traces: Path, tmp_path: Path) -> None:
    for option in ("--csv", "--html"):
        result = run(traces, *BASE, "--policy", "up", option, tmp_path / "none" / "file")
        assert result.exit_code == ExitCode.FAILURE
        assert "cannot be written" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_process_that_is_killed_is_a_failure(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.app.backtest._play", killed)
    result = run(traces, "--work", "10h", "--deadline", "14h", "--processes", "2", "--policy", "up")
    assert result.exit_code == ExitCode.FAILURE
    assert "a process was killed" in result.stderr


def test_an_interruption_ends_every_process(traces: Path, tmp_path: Path) -> None:
    words = [
        "backtest",
        "--traces",
        str(traces),
        "--work",
        "20h",
        "--ratio",
        "1.5",
        "--every",
        "30m",
        "--processes",
        "2",
        "--policy",
        "skynomad",
        "--csv",
        str(tmp_path / "a.csv"),
    ]
    started = subprocess.Popen(
        [sys.executable, "-c", "from router.cli.main import main; main()", *words],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    workers = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    for _ in range(400):
        if len(workers.read_text().split()) >= 3:  # two, and what tracks their semaphores
            break
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(started.pid, signal.SIGINT)
    stdout, stderr = started.communicate(timeout=30)
    assert started.returncode == ExitCode.INTERRUPTED, stderr
    assert (stdout, stderr.strip()) == ("", "interrupted")
    assert not list(tmp_path.iterdir())
    for _ in range(100):
        try:
            os.killpg(started.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("processes are left")


def test_progress_is_shown_part_by_part(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int | None]] = []
    monkeypatch.setattr(
        console.ProgressBars, "advance", lambda self, name, done, total, remark: seen.append((done, total))
    )
    assert run(traces, *BASE, "--policy", "up").exit_code == 0
    assert seen == [(done, 30) for done in range(31)]
