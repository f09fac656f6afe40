"""``stepfare plan --metrics`` and ``--prometheus``: what they write, read by an independent parser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.planning.document.plan_json import plan_from_json
from tests.support.command import plan, write_job

NAME = re.compile(r"^stepfare_plan_[a-z_]+$")


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """One job that fits, and one that comes too late."""
    write_job(tmp_path / "jobs", "llama-7b")
    write_job(tmp_path / "jobs", "rush", deadline="+1h")
    return tmp_path / "jobs"


def samples(text: str) -> dict[str, float]:
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_planning_appends_a_line_and_replaces_the_textfile(jobs: Path, tmp_path: Path) -> None:
    lines, text, out = tmp_path / "plans.jsonl", tmp_path / "stepfare.prom", tmp_path / "plan.json"
    for _ in range(2):
        result = plan(jobs, "--metrics", lines, "--prometheus", text, "--out", out)
        assert (result.exit_code, result.stderr) == (3, "")
    first, second = map(json.loads, lines.read_text(encoding="utf-8").splitlines())
    document = json.loads(out.read_text(encoding="utf-8"))
    made = plan_from_json(out.read_text(encoding="utf-8"))
    for row in (first, second):
        assert {
            key: row[key] for key in ("digest", "cost_usd", "bound_usd", "gap", "gap_asked", "solver", "status")
        } == {key: document[key] for key in ("digest", "cost_usd", "bound_usd", "gap", "gap_asked", "solver", "status")}
        assert (row["schema_version"], row["jobs"], row["placed"], row["unplaced"], row["cuts"]) == (1, 2, 1, 1, [])
        assert row["as_of"] == "2026-11-21T18:00:00Z"
        assert set(row["phases"]) == {"feasibility", "build", "solve", "price"}
        assert 0 < sum(row["phases"].values()) <= row["seconds"] + 0.01
    assert first["made_at"] < second["made_at"]
    found = samples(text.read_text(encoding="utf-8"))
    assert found["stepfare_plan_jobs{result=placed}"] == 1
    assert found["stepfare_plan_jobs{result=unplaced}"] == 1
    assert found["stepfare_plan_cost_usd"] == pytest.approx(made.cost_usd.dollars())
    assert found["stepfare_plan_bound_usd"] <= found["stepfare_plan_cost_usd"]
    assert found["stepfare_plan_gap_ratio"] == made.gap
    assert found["stepfare_plan_as_of_timestamp_seconds"] == made.as_of.timestamp()
    assert found["stepfare_plan_info{solver=highs}{status=optimal}"] == 1
    assert found["stepfare_plan_duration_seconds"] > found["stepfare_plan_phase_seconds{phase=solve}"] > 0
    assert (found["stepfare_plan_cuts{by=time}"], found["stepfare_plan_cuts{by=work}"]) == (0, 0)
    assert not list(tmp_path.glob(".*.part"))


def test_the_textfile_keeps_the_rules_of_the_format(jobs: Path, tmp_path: Path) -> None:
    """A name of its own for each family, help and type before samples, base units, a last newline."""
    text = tmp_path / "stepfare.prom"
    plan(jobs, "--prometheus", text)
    content = text.read_text(encoding="utf-8")
    assert content.endswith("\n")
    seen: list[str] = []
    for family in text_string_to_metric_families(content):
        assert NAME.match(family.name), family.name
        assert (family.type, bool(family.documentation)) == ("gauge", True)
        assert f"# HELP {family.name} " in content
        assert content.index(f"# TYPE {family.name} gauge") < content.index(f"\n{family.name}")
        assert not family.name.endswith(("_total", "_count", "_ms", "_percent"))
        seen.append(family.name)
    assert len(seen) == len(set(seen)) >= 12


@pytest.mark.parametrize("option", ["--metrics", "--prometheus"])
def test_a_file_that_cannot_be_written_is_named_after_the_plan(jobs: Path, tmp_path: Path, option: str) -> None:
    result = plan(jobs, option, tmp_path / "missing" / "file")
    assert result.exit_code == 1
    assert "1 of 2 jobs placed" in result.stdout
    assert f"{tmp_path / 'missing' / 'file'}: cannot be written: No such file or directory" in result.stderr
