"""``stepfare plan``, ``plan show`` and ``plan diff``: formats, streams, exit codes, what is written."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from router.cli.site_options import load_previous_plan
from router.planning.document.plan_json import plan_from_json, plan_to_json
from tests.support.command import NOW, plan, run, write_job
from tests.support.night import nightly_plan
from tests.support.repository import ROOT

FIELD = ROOT.parent / "shared" / "field"
COMMAND = [sys.executable, "-c", "from router.cli.main import main; main()"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs that fit, one that comes too late; limits; their plans before and after the limits."""
    at = tmp_path_factory.mktemp("plans")
    data = "data: {uri: s3://corpus, at: aws/us-east-1, gib: 200}\n"
    write_job(at / "jobs", "llama-7b")
    write_job(at / "jobs", "long-run", steps=90000, deadline="+12d", more=data)
    write_job(at / "jobs", "rush", deadline="+1h")
    write_job(at / "good", "llama-7b")
    (at / "limits.yaml").write_text("clouds: [gcp]\n", encoding="utf-8")
    assert plan(at / "jobs", "--out", at / "plan.json").exit_code == 3
    assert plan(at / "jobs", "--limits", at / "limits.yaml", "--out", at / "gcp.json").exit_code == 3
    return at


def longest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_the_table_says_what_where_and_how_sure(folder: Path) -> None:
    result = plan(folder / "jobs")
    assert result.exit_code == 3
    assert result.stderr == ""
    assert longest(result.stdout) <= 80
    assert "2 of 3 jobs placed, optimal within the gap asked" in result.stdout
    for word in ("llama-7b", "$/STEP", "total ", "at least ", "proven bound", "gap 0.", "LEFT OUT"):
        assert word in result.stdout
    assert "rush: the deadline is too near" in result.stdout
    assert "it would fit with +1 h" in result.stdout


def test_all_placed_is_0(folder: Path) -> None:
    result = plan(folder / "good")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "1 of 1 jobs placed" in result.stdout


def test_wide_has_every_line_and_move(folder: Path) -> None:
    document = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    text = plan(folder / "jobs", "-o", "wide").stdout
    assert sum(" order " in row or " outlook " in row for row in text.splitlines()) == len(document["lines"])
    assert {"order", "outlook"} <= {line["kind"] for line in document["lines"]}
    assert "PRICED" in text


def test_json_on_stdout_is_the_plan_and_what_out_writes(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    result = plan(folder / "jobs", "-o", "json", "--out", file)
    assert result.exit_code == 3
    assert file.read_text(encoding="utf-8") == result.stdout == (folder / "plan.json").read_text(encoding="utf-8")
    document = json.loads(result.stdout)
    assert (document["schema_version"], document["status"]) == (1, "optimal")
    assert [job["job"] for job in document["unplaced"]] == ["rush"]
    assert plan_to_json(plan_from_json(result.stdout)) == result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_optimistic_is_only_shown_and_what_is_stored_is_the_plan(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    usual, beside = tmp_path / "usual.json", tmp_path / "beside.json"
    before = plan(folder / "good", "--out", usual)
    result = plan(folder / "good", "--out", beside, "--optimistic")
    assert (result.exit_code, result.stderr) == (0, "")
    assert beside.read_bytes() == usual.read_bytes()
    assert result.stdout.startswith(f"{before.stdout}\ntotal ")
    assert "at the lower end" in result.stdout.removeprefix(before.stdout)
    assert longest(result.stdout) <= 80
    stored = load_previous_plan("last", "trial", datetime.now(UTC))
    assert stored is not None
    assert plan_to_json(stored).encode() == usual.read_bytes()
    document = json.loads(plan(folder / "good", "--optimistic", "-o", "json").stdout)
    assert float(document["optimistic"]["cost_usd"]) <= float(document["cost_usd"])
    del document["optimistic"]
    assert document == json.loads(usual.read_text(encoding="utf-8"))


def test_files_globs_and_folders_are_all_jobs(folder: Path) -> None:
    one = plan(folder / "jobs" / "llama-7b.yaml", "-o", "json").stdout
    assert json.loads(one)["jobs"][0]["job"] == "llama-7b"
    some = plan(folder / "jobs" / "l*.yaml", "-o", "json").stdout
    assert [job["job"] for job in json.loads(some)["jobs"]] == ["llama-7b", "long-run"]


def test_advisory_and_an_old_price_are_asked_for(folder: Path) -> None:
    usual, advised = (json.loads(plan(folder / "good", "-o", "json", *more).stdout) for more in ((), ("--advisory",)))
    assert all(line["provisionable"] for line in usual["lines"])
    assert float(advised["cost_usd"]) <= float(usual["cost_usd"])
    young = plan(folder / "good", "--max-age", "120d", "-o", "json")
    assert re.search(r"left out: [\d,]+ offers? older than 120d or undated", young.stderr)
    assert all(line["price_as_of"] >= "2026-07-24" for line in json.loads(young.stdout)["lines"])


@pytest.mark.skipif(not FIELD.exists(), reason="no ../shared")
@pytest.mark.parametrize("accelerators", ["TPU-v6e:8", "GB200:4", "V100-16GB:4", "A10:2"])
def test_what_nothing_can_make_is_not_ordered(
    accelerators: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a documented image is shown with ``--advisory`` alone, and a dry run orders nothing on it."""
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    job, file = tmp_path / "job.yaml", tmp_path / "plan.json"
    text = (FIELD / "03-tpu-cannot-be-made" / "job.yaml").read_text(encoding="utf-8")
    job.write_text(text.replace("TPU-v6e:8", accelerators), encoding="utf-8")
    ran = plan(job)
    assert ran.exit_code == 3
    said = " ".join(ran.stdout.split())
    assert "only machines that cannot be ordered from here would do" in said
    assert "no image documents this machine (" in said
    assert plan(job, "--advisory", "--out", file).exit_code == 0
    assert {line["provisionable"] for line in json.loads(file.read_text(encoding="utf-8"))["lines"]} == {False}
    dry = run("apply", file, "--dry-run", "--book", "embedded")
    assert "the plan orders nothing" in dry.stdout + dry.stderr


@pytest.mark.skipif(not FIELD.exists(), reason="no ../shared")
def test_a_slice_of_eight_is_one_thing() -> None:
    (line,) = json.loads(plan(FIELD / "03-tpu-cannot-be-made" / "job.yaml", "--advisory", "-o", "json").stdout)["lines"]
    assert not line["provisionable"]
    assert (line["instance_type"], line["machines"]) == ("tpu-v6e-8", 1)


def test_a_gang_is_of_the_machines_that_it_states(folder: Path) -> None:
    """A gang of two H100 on one machine is never two machines of one, and no message offers these."""
    job = folder / "small.yaml"
    text = """{name: small, team: red, steps: 1000, gang: {accelerators: "NAME:2", machines: 1}, market: {spot: RULE},
        workload: {profile: [{accelerators: "NAME:2", seconds_per_step: 1, placement: SHAPE}]}}"""
    job.write_text(text.replace("NAME", "H100").replace("RULE", "allowed").replace("SHAPE", "1x2"))
    (line,) = json.loads(plan(job, "-o", "json").stdout)["lines"]
    assert (line["machines"], line["accelerators"]) == (1, 2)
    elsewhere = text.replace("steps: 1000", "steps: 1000, residency: {allow: [aws]}")
    job.write_text(elsewhere.replace("NAME", "L4").replace("RULE", "never").replace("SHAPE", "2x1"))
    left_out = " ".join(plan(job).stdout.split())
    assert "it takes 2; `gang.machines: 2` allows it" in left_out
    assert "any number of machines" in left_out


@pytest.mark.parametrize(
    ("gang", "remedy"),
    [("", "a point needs `fabric: ethernet`"), (", rdma: required", "`gang.rdma: optional` allows it")],
)
def test_a_job_that_lacks_a_fabric_is_told_what_to_write(folder: Path, gang: str, remedy: str) -> None:
    job = folder / "two.yaml"
    job.write_text(
        f"""{{name: two, team: red, steps: 1000, gang: {{accelerators: "V100-16GB:2"{gang}}}, market: {{spot: never}},
        workload: {{profile: [{{accelerators: "V100-16GB:2", seconds_per_step: 1}}]}}}}"""
    )
    assert remedy in " ".join(plan(job).stdout.split())


def test_show_prints_what_plan_printed(folder: Path) -> None:
    for form in ("table", "wide", "json"):
        shown = run("plan", "show", folder / "plan.json", "-o", form)
        assert (shown.exit_code, shown.stderr) == (0, "")
        assert "llama-7b" in shown.stdout
    assert run("plan", "show", folder / "plan.json").stdout == plan(folder / "jobs").stdout


def test_the_picture_is_the_same_while_planning_and_from_the_file(folder: Path) -> None:
    shown = run("plan", "show", folder / "plan.json", "-o", "gantt")
    planned = plan(folder / "jobs", "-o", "gantt")
    assert (shown.exit_code, shown.stderr, planned.exit_code) == (0, "", 3)
    assert shown.stdout == planned.stdout
    assert longest(shown.stdout) <= 80
    assert "\x1b" not in shown.stdout
    for word in ("S spot, D on-demand, R reserved", "llama-7b", "long-run"):
        assert word in shown.stdout


def test_the_page_is_the_same_while_planning_and_from_the_file(folder: Path, tmp_path: Path) -> None:
    shown = run("plan", "show", folder / "plan.json", "--html", tmp_path / "shown.html")
    planned = plan(folder / "jobs", "--html", tmp_path / "planned.html")
    assert (shown.exit_code, shown.stderr, planned.exit_code, planned.stderr) == (0, "", 3, "")
    assert shown.stdout == planned.stdout
    page = (tmp_path / "shown.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "planned.html").read_text(encoding="utf-8")
    assert "2 of 3 jobs placed" in page
    assert "rush" in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["planned.html", "shown.html"]


def test_a_page_that_cannot_be_written_is_an_error_before_planning(folder: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none" / "x.html"
    for result in (
        run("plan", "show", folder / "plan.json", "--html", missing),
        plan(folder / "jobs", "--html", missing),
    ):
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"{missing}: cannot be written: there is no folder {missing.parent}" in result.stderr
    taken = run("plan", "show", folder / "plan.json", "--html", tmp_path)
    assert (taken.exit_code, taken.stdout) == (1, "")
    assert f"{tmp_path}: cannot be written" in taken.stderr


def test_help_names_page_and_picture(folder: Path) -> None:
    for command in (("plan",), ("plan", "show")):
        helped = run(*command, "--help").stdout
        assert "--html" in helped
        assert "gantt" in helped


def test_diff_names_what_moved_and_the_difference(folder: Path) -> None:
    result = run("plan", "diff", folder / "plan.json", folder / "gcp.json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert longest(result.stdout) <= 80
    assert "llama-7b moved" in result.stdout
    assert "  from aws/" in result.stdout
    assert "  to   gcp/" in result.stdout
    assert "why: " in result.stdout
    assert "the same prices, the same jobs" in result.stdout
    document = json.loads(run("plan", "diff", folder / "plan.json", folder / "gcp.json", "-o", "json").stdout)
    changes = {c["job"]: c for c in document["changes"]}
    assert (document["schema_version"], document["same_book"]) == (1, True)
    assert changes["llama-7b"]["after"]["cloud"] == "gcp"
    assert changes["rush"]["change"] == "same"


def test_diff_names_the_fields_of_a_job_that_changed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both plans were made with --out here, so the state has both specifications; without it the job is named."""
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    write_job(tmp_path / "jobs", "llama-7b", more="residency: {allow: [EU]}\n")
    assert plan(tmp_path / "jobs", "--out", tmp_path / "one.json").exit_code == 0
    write_job(tmp_path / "jobs", "llama-7b", steps=1100)
    assert plan(tmp_path / "jobs", "--out", tmp_path / "two.json").exit_code == 0
    text = " ".join(run("plan", "diff", tmp_path / "one.json", tmp_path / "two.json").stdout.split())
    assert "why: the job changed: residency.allow EU -> empty, steps 1000 -> 1100" in text
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "empty"))
    other = run("plan", "diff", tmp_path / "one.json", tmp_path / "two.json", "-o", "json")
    assert (other.exit_code, other.stderr) == (0, "")
    (change,) = json.loads(other.stdout)["changes"]
    assert change["causes"] == [{"kind": "job", "text": "the job changed", "follows": ""}]
    assert not (tmp_path / "empty").exists()


def test_diff_of_a_plan_with_itself_is_nothing(folder: Path) -> None:
    result = run("plan", "diff", folder / "plan.json", folder / "plan.json")
    assert result.stdout.startswith("0 changed, 3 as before")
    assert "(+$0.00)" in result.stdout


@pytest.mark.slow
def test_the_night_fits_in_80_columns(tmp_path: Path) -> None:
    file = tmp_path / "night.json"
    file.write_text(plan_to_json(nightly_plan()), encoding="utf-8")
    for command in (("plan", "show", file), ("explain", file), ("plan", "diff", file, file)):
        result = run(*command)
        assert result.exit_code == 0, result.stderr
        assert longest(result.stdout) <= 80, command


@pytest.mark.slow
def test_nothing_is_said_on_stderr_unless_it_is_a_terminal(folder: Path) -> None:
    command = [*COMMAND, "plan", str(folder / "good"), "--now", NOW]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("no_color", ["", "1"])
def test_on_a_terminal_progress_goes_to_stderr_and_no_color_is_kept(folder: Path, no_color: str) -> None:
    reading, writing = pty.openpty()
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm"}
    with subprocess.Popen(
        [*COMMAND, "plan", str(folder / "good"), "--solver", "higs" if no_color else "highs", "--now", NOW],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=writing,
        text=True,
    ) as process:
        stdout, _ = process.communicate(timeout=60)
    os.close(writing)
    seen = os.read(reading, 65536).decode()
    os.close(reading)
    assert "planning 1 job over" in seen
    assert "\x1b" not in stdout
    if no_color:
        assert (process.returncode, stdout) == (2, "")
        assert "PuLP knows no solver 'higs'" in seen
        assert "\x1b[" not in seen
    else:
        assert (process.returncode, "1 of 1 jobs placed" in stdout) == (0, True)


def test_the_schema_of_a_plan_is_the_one_in_the_docs(tmp_path: Path) -> None:
    published = (ROOT / "docs" / "schema" / "plan.json").read_text(encoding="utf-8")
    assert run("schema", "plan").stdout == published
    assert run("schema", "plan", "--out", tmp_path / "plan.json").exit_code == 0
    assert (tmp_path / "plan.json").read_text(encoding="utf-8") == published


def test_a_team_of_the_limits_file_without_a_job_is_a_warning(folder: Path, tmp_path: Path) -> None:
    limits = tmp_path / "limits.yaml"
    limits.write_text("teams: [{team: reserch, budget: $5000}]\n", encoding="utf-8")
    result = plan(folder / "good", "--limits", limits)
    assert result.exit_code == 0
    assert f"{limits}:1:16: warning: teams[0].team: no job here is of team 'reserch'" in result.stderr
    assert "did you mean research?" in result.stderr
    checked = run("validate", folder / "good", limits, "--book", "embedded", "--now", NOW)
    assert checked.exit_code == 0
    assert "no job here is of team 'reserch'" in checked.stdout


def test_a_job_that_may_cost_more_than_its_budget_is_named(tmp_path: Path) -> None:
    """The budget holds for what is expected; at the ceilings of its prices the order may cost more."""
    job = write_job(tmp_path, "one", more="budget: $60\n")
    shown = " ".join(plan(job, "--book", "embedded").stdout.split())
    words = "one: its budget of $60.00 holds for the expected cost: at the ceilings of its prices it may cost up to $"
    assert words in shown
    assert float(shown.partition(words)[2].split()[0].replace(",", "")) > 60
    rich = write_job(tmp_path / "rich", "one", more="budget: $60000\n")
    assert "holds for the expected cost" not in plan(rich, "--book", "embedded").stdout


@pytest.mark.slow
def test_a_plan_that_was_cut_short_says_how_long_it_would_have_taken() -> None:
    nightly = ROOT / "examples" / "nightly"
    cut = plan(nightly, "--limits", nightly / "limits.yaml", "--time-limit", "1s", "-o", "json")
    said = " ".join(cut.stderr.split())
    found = re.search(r"cut short after 1 s: try --time-limit (\d+)m ", said)
    assert found is not None, said
    assert int(found[1]) >= 1
