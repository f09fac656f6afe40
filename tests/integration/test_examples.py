"""The examples hold what they promise: every point has its source, and the schedules do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from router.planning.document.plan_json import plan_from_json
from tests.support.command import write_job
from tests.support.repository import ROOT, ran

EXAMPLES = ROOT / "examples"
NIGHTLY = sorted(path for path in (EXAMPLES / "nightly").glob("*.yaml") if path.name != "limits.yaml")
JOBS = [*NIGHTLY, *sorted((EXAMPLES / "instructive").glob("*.yaml"))]
SCRIPT = EXAMPLES / "schedule" / "nightly-plan.sh"

SOURCED = re.compile(
    r"    # (?P<table>\w+\.csv) line \d+\n    # .+\n    - accelerator: (?P<rest>(?:.+\n)+?)(?=    [#-]|\w)"
)


def test_a_platform_team_would_recognise_the_night() -> None:
    text = "".join(path.read_text() for path in NIGHTLY)
    assert len(re.findall(r"^name: ", text, flags=re.MULTILINE)) >= 16
    assert len(set(re.findall(r"^team: (.+)$", text, flags=re.MULTILINE))) >= 8


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_each_profile_point_names_its_row(path: Path) -> None:
    text = path.read_text()
    points = text.count("    - accelerator: ")
    sourced = [match for match in SOURCED.finditer(text) if f'source: "{match["table"]}: ' in match["rest"]]
    assert len(sourced) == points
    assert points or "  transformer:" in text


@pytest.mark.parametrize(("planned", "code", "diffs"), [(0, 0, 1), (3, 3, 1), (2, 2, 0)])
def test_the_nightly_script_passes_the_exit_code_on(tmp_path: Path, planned: int, code: int, diffs: int) -> None:
    """0 and 3 compare with the last plan; anything else stops there."""
    stand_in = tmp_path / "bin" / "stepfare"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n[ "$2" = diff ] && exit 0\nexit {planned}\n')
    stand_in.chmod(0o755)
    plans = tmp_path / "plans"
    plans.mkdir()
    (plans / "plan-2026-11-20T180000Z.json").touch()
    run = ran(["bash", SCRIPT, "jobs", plans], env={**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"})
    calls = (tmp_path / "calls").read_text().splitlines()
    assert run.returncode == code, run.stderr
    assert calls[0].startswith(f"plan jobs --limits jobs/limits.yaml --name night --since last --out {plans}/plan-")
    assert calls[0].endswith(f".html --against {plans}/plan-2026-11-20T180000Z.json")
    assert sum(call.startswith("plan diff ") for call in calls) == diffs


def test_with_a_clouds_file_prices_and_quotas_are_read_first_and_may_be_partial(tmp_path: Path) -> None:
    stand_in = tmp_path / "bin" / "stepfare"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\necho "$@" >> "$CALLS"\n[ "$1" = plan ] || exit 5\nexit 0\n')
    stand_in.chmod(0o755)
    calls = tmp_path / "calls"
    run = ran(
        ["bash", SCRIPT, "jobs", tmp_path / "plans", "clouds.yaml"],
        env={**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}", "CALLS": str(calls)},
    )
    assert run.returncode == 0, run.stderr
    assert "older prices serve" in run.stderr
    assert "the last reading serves" in run.stderr
    lines = calls.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["prices", "quotas", "plan"]
    assert "--quotas latest" in lines[-1]


@pytest.mark.slow
def test_two_nights_of_the_script_are_a_plan_and_one_near_it(tmp_path: Path) -> None:
    write_job(tmp_path / "jobs", "walk")
    (tmp_path / "jobs" / "limits.yaml").write_text("limits: []\n")
    real, stand_in = Path(sys.executable).parent / "stepfare", tmp_path / "bin" / "stepfare"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f'#!/bin/sh\n[ "$2" = diff ] && exec {real} "$@"\nexec {real} "$@" --book embedded --gap 0.05\n'
    )
    stand_in.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{stand_in.parent}:{os.environ['PATH']}",
        "STEPFARE_HOME": str(tmp_path / "home"),
    }
    command = ["bash", str(SCRIPT), str(tmp_path / "jobs"), str(tmp_path / "plans")]
    runs = [subprocess.run(command, env=environment, capture_output=True, text=True, check=False) for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0], runs[-1].stderr
    first, second = (
        plan_from_json(path.read_text(encoding="utf-8")) for path in sorted((tmp_path / "plans").glob("*.json"))
    )
    assert [line.region for line in second.lines] == [line.region for line in first.lines]
    assert len(list((tmp_path / "plans").glob("*.html"))) == 2
    assert ["no plan named night was written" in run.stderr for run in runs] == [True, False]


def test_the_cron_job_runs_the_script_in_the_folder_of_the_console() -> None:
    job = yaml.safe_load((EXAMPLES / "schedule" / "cronjob.yaml").read_text())
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    home = next(each["value"] for each in container["env"] if each["name"] == "STEPFARE_HOME")
    containerfile = (EXAMPLES / "serve" / "Containerfile").read_text()
    assert f"ENV STEPFARE_HOME={home}" in containerfile
    assert f"USER {pod['securityContext']['runAsUser']}" in containerfile
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    assert mounts["stepfare"] == home
    (script,) = container["args"]
    assert f"{mounts['schedule']}/{SCRIPT.name} {mounts['jobs']} " in script
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0


@pytest.mark.slow
def test_a_change_of_jobs_is_planned_against_what_stands_and_told_as_markdown(tmp_path: Path) -> None:
    for name, jobs in (("before", ["walk"]), ("after", ["walk", "ride"])):
        for job in jobs:
            write_job(tmp_path / name, job)
        (tmp_path / name / "limits.yaml").write_text("limits: []\n")
    folder = tmp_path / "out"
    words = [tmp_path / "before", tmp_path / "after", folder, "--book", "embedded", "--gap", "0.05"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = ran(
        ["bash", EXAMPLES / "schedule" / "plan-change.sh", *map(str, words)],
        env={**os.environ, "PATH": path, "STEPFARE_HOME": str(tmp_path / "home")},
    )
    assert run.returncode == 0, run.stderr
    before, after = (
        plan_from_json((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("before", "after")
    )
    assert float(run.stdout) == round((after.cost_usd - before.cost_usd).dollars(), 2) > 0
    assert "| ride | new |" in (folder / "comment.md").read_text(encoding="utf-8")


def test_the_workflow_calls_what_lies_beside_it() -> None:
    workflow = yaml.safe_load((EXAMPLES / "schedule" / "nightly-plan.yml").read_text())
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    called = {name for step in steps for name in re.findall(r"ci/([\w-]+\.sh)", step)}
    assert called == {path.name for path in (EXAMPLES / "schedule").glob("*.sh")}


def test_the_night_of_the_workflow_finds_the_plan_of_the_night_before() -> None:
    """Each run has a machine of its own: without the home of the last one, --since last would find nothing."""
    night = yaml.safe_load((EXAMPLES / "schedule" / "nightly-plan.yml").read_text())["jobs"]["night"]
    (cache,) = (step["with"] for step in night["steps"] if step.get("uses", "").startswith("actions/cache@"))
    assert night["env"]["STEPFARE_HOME"].endswith(f"/{cache['path']}")
    # The key is new each night, so that the home is stored again; the one before is found by what it begins with.
    assert cache["key"].startswith(cache["restore-keys"])
    assert "--since last" in (EXAMPLES / "schedule" / "nightly-plan.sh").read_text()
