"""The examples hold what they promise: every point has its source, and the schedules do what they say."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.repository import ROOT

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
    run = subprocess.run(
        ["bash", SCRIPT, "jobs", plans],
        env={**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    calls = (tmp_path / "calls").read_text().splitlines()
    assert run.returncode == code, run.stderr
    assert calls[0].startswith("plan jobs --limits jobs/limits.yaml --now ")
    assert sum(call.startswith("plan diff ") for call in calls) == diffs


def test_with_a_clouds_file_prices_are_fetched_first_and_may_be_partial(tmp_path: Path) -> None:
    stand_in = tmp_path / "bin" / "stepfare"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\necho "$@" >> "$CALLS"\n[ "$1" = prices ] && exit 5\nexit 0\n')
    stand_in.chmod(0o755)
    calls = tmp_path / "calls"
    run = subprocess.run(
        ["bash", SCRIPT, "jobs", tmp_path / "plans", "clouds.yaml"],
        env={**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}", "CALLS": str(calls)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "older prices serve" in run.stderr
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["prices", "plan"]
