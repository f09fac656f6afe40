"""The smoke run of each cloud, dry, to its end: `make smoke-CLOUD DRY=1` as somebody without an account types it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.smoke import recordings
from tests.support.clouds import CANARY
from tests.support.doc_pages import DOCS, blocks
from tests.support.repository import ROOT, ran
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]
PAGE = DOCS / "first-account.md"
# In the order in which they must come.
STEPS = [
    "files", "doctor", "prices refresh", "offers", "quotas", "validate", "plan", "budget", "apply --dry-run", "apply",
    "preflight", "train", "notice", "hear", "migrate", "resume", "train again", "finish", "apply's end",
    "status", "logs", "ledger", "cost", "destroy", "sweep",
]  # fmt: skip
MACHINES = {"aws": "g4dn", "gcp": "g2-standard-4", "azure": "Standard_NC4as_T4_v3"}


def run_dry(cloud: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """With nothing in the environment that could lead to an account, but a key that must come nowhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    return ran(
        [sys.executable, "-m", "tests.smoke", cloud, "--dry", "--folder", str(folder), *options],
        cwd=ROOT,
        env={**kept, "AWS_SECRET_ACCESS_KEY": CANARY},
        timeout=1200,
    )


def still_there(folder: Path) -> list[str]:
    """Processes that know the folder: agents and trainings of its machines, commands."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in word for word in (*process.cmdline(), *process.environ().values())):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def without_chance(line: str) -> str:
    """A line of the transcript without figures and identifiers; what follows is cut in the middle of a word."""
    plain = re.sub(r"\b(?:i-|smoke-)?[0-9a-f]{9,}\b", "ID", line)
    return re.sub(r"[-+]?\d[\d.,]*", "N", re.sub(r" +", " ", plain))[:70]


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_a_dry_run_comes_to_its_end_and_leaves_nothing(cloud: str, tmp_path: Path) -> None:
    folder, recorded = tmp_path / "run", tmp_path / "recorded"
    # One without, as most will run it; those with it show that it disturbs nothing.
    done = run_dry(cloud, folder, *([] if cloud == "aws" else ["--record", str(recorded)]))
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((folder / "protocol.json").read_text(encoding="utf-8"))
    played = {check["step"]: check for check in told["checks"] if check["verdict"] != "not played"}
    assert list(played) == STEPS
    assert {check["verdict"] for check in played.values()} == {"ok"}
    assert all(check["seen"] for check in told["checks"])
    assert MACHINES[cloud] in played["offers"]["seen"]
    # The machine went in between, and the training went on from what it had saved.
    first, second = (re.search(r"smoke-[0-9a-f]{10}", played[step]["seen"]) for step in ("apply", "migrate"))
    assert first is not None
    assert second is not None
    assert first[0] != second[0]
    assert 0 < float(told["spent_usd"]) < 2
    assert played["ledger"]["seen"] == "2 gangs"
    log = "".join(file.read_text() for file in (folder / "home").rglob("logs/**/*") if file.is_file())
    assert "resumed from step" in log
    assert "counted 12880" in log
    assert still_there(folder) == []
    page = (folder / "protocol.md").read_text(encoding="utf-8")
    assert all(f"| {step} |" in page for step in STEPS)
    if cloud == "aws":
        (shown,) = blocks(PAGE, "text")
        printed = {without_chance(line) for line in done.stdout.splitlines()}
        assert [line for line in shown.text.splitlines() if without_chance(line) not in printed] == []
        assert len(shown.text.splitlines()) >= len(STEPS)
        return
    files = sorted(recorded.glob("*.json"))
    assert {"doctor", "prices", "apply"} <= {json.loads(file.read_text())["command"]["words"][0] for file in files}
    assert not any(CANARY in file.read_text() for file in recorded.iterdir())
    assert recordings.main([str(recorded)], tmp_path / "kept") == 0
    assert [file.name for file in sorted((tmp_path / "kept" / "recorded").iterdir())] == [
        file.name for file in files if re.search("-(doctor|prices|quotas)-", file.name)
    ]
