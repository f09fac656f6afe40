"""The solver module under PuLP 4, which makes variables and rows in another way: the same answers as under PuLP 3."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.support.random_programs import answers
from tests.support.repository import ROOT

PROGRAMS = 40
# The newest of PuLP 4 when this was written; no version of it is final yet.
WANTED = ("pulp==4.0.0a12", "highspy", "numpy", "pydantic")


def test_random_programs_are_of_all_kinds() -> None:
    outcomes = [answer[0] for answer in answers(PROGRAMS)]
    assert {"optimal", "infeasible"} <= set(outcomes)
    assert outcomes.count("optimal") >= PROGRAMS // 4


@pytest.mark.slow
def test_the_answers_are_the_same_under_pulp_4(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    constraints = str(ROOT / "requirements" / "constraints.txt")
    kept = tmp_path / "constraints.txt"
    lines = Path(constraints).read_text(encoding="utf-8").splitlines()
    kept.write_text("\n".join(line for line in lines if not line.lower().startswith("pulp=")), encoding="utf-8")
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", str(kept), *WANTED]
    subprocess.run(pip, check=True, timeout=600)
    script = str(ROOT / "tests" / "support" / "random_programs.py")

    def run(interpreter: str) -> dict[str, Any]:
        words = [interpreter, "-W", "error", script, str(PROGRAMS)]
        said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True)
        found: dict[str, Any] = json.loads(said.stdout)
        return found

    ours, theirs = run(sys.executable), run(python)
    assert (ours["pulp"].split(".")[0], theirs["pulp"].split(".")[0]) == ("3", "4")
    assert ours["answers"] == theirs["answers"]
