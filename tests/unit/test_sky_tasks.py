"""Forty tasks in the forms of SkyPilot's public examples: machines, gangs and environment are those that they ask for.

Each becomes files that `stepfare validate` accepts once the marks are filled in. The tasks are our own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from pricing.book_file import embedded_book
from router.cli.import_jobs import import_sky
from router.config.book_check import check_against_book
from router.config.job_files import load_jobs
from router.jobs.fields import FILL_IN
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
BOOK = embedded_book()
SECRET = "secret:env:STEPFARE_JOB_"
# What a user writes for the marks, by the last word of their field.
WRITTEN: dict[str, Any] = {
    "team": "red", "name": "a", "steps": 1000, "seconds_per_step": 1.5, "ref": "main", "at": "aws/us-east-1", "gib": 5,
    "size_gib": 9, "allow": ["aws"],
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What one task asks for: machines, gangs in total (none: no accelerator that is planned), and its environment."""

    machines: int
    gangs: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    rdma: bool = False


TASKS: dict[str, dict[str, Any]] = {
    entry["name"]: entry
    for entry in yaml.safe_load((ROOT / "tests/recorded/sky_tasks.yaml").read_text(encoding="utf-8"))
}


def test_there_are_forty() -> None:
    assert len(TASKS) >= 40


@pytest.mark.parametrize("name", TASKS)
def test_a_task_keeps_its_machines_gangs_and_environment(name: str, tmp_path: Path) -> None:
    text, asked = (
        TASKS[name]["task"],
        [Asked(**{**each, "gangs": tuple(each["gangs"])}) for each in TASKS[name]["asked"]],
    )
    task, out = tmp_path / "task.yaml", tmp_path / ("job.yaml" if len(asked) == 1 else "jobs")
    task.write_text(text, encoding="utf-8")
    import_sky(task, out)
    files = [out] if len(asked) == 1 else sorted(out.iterdir())
    jobs = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    assert [shape(job) for job in jobs] == asked
    for number, (file, job) in enumerate(zip(files, jobs, strict=True)):
        written = WRITTEN | {"name": f"a-{number}"}
        file.write_text(json.dumps(filled_in(job, written, ""), ensure_ascii=False), encoding="utf-8")
    loaded = load_jobs(files, NOW)
    check_against_book(loaded, BOOK)
    for job, want in zip(loaded.jobs, asked, strict=True):
        assert dict(job.run.env if job.run else ()) == want.env
        assert job.gang.machines == want.machines


def shape(job: dict[str, Any]) -> Asked:
    gang = job["gang"]
    gangs = () if isinstance(gang["accelerators"], dict) else tuple(gang["accelerators"])
    return Asked(gang["machines"], gangs, job["run"].get("env", {}), gang.get("rdma") == "required")


def filled_in(node: Any, written: dict[str, Any], word: str) -> Any:
    """The job with what a user writes in place of the marks; of a gang that is not planned one that is."""
    if isinstance(node, dict) and set(node) == {FILL_IN}:
        return written[word]
    if not isinstance(node, dict):
        return [filled_in(item, written, word) for item in node] if isinstance(node, list) else node
    if "accelerators" in node and "machines" in node:
        gang = f"H100:{8 * node['machines']}"
        written |= {"accelerators": [gang], "workload": {"profile": [{"accelerators": gang, "seconds_per_step": 1}]}}
    elif "gang" in node:
        filled_in(node["gang"], written, "gang")
    return {key: filled_in(value, written, key) for key, value in node.items()}
