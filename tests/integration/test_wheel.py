"""The wheel holds the four packages and nothing else, and works with its own dependencies alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.repository import PACKAGES, ROOT

NOW = "2026-11-21T18:00:00Z"


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that a run leaves nothing in the tree."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("wheel")
    built = _run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        out,
        source,
        cwd=out,
    )
    assert built.returncode == 0, built.stderr
    (found,) = out.glob("stepfare-*.whl")
    return found


def test_it_holds_the_four_packages_with_tables_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == set(PACKAGES)
    tables = {f"pricing/tables/{table.name}" for table in (ROOT / "pricing" / "tables").glob("*.csv")}
    assert tables, "no tables in the tree"
    assert tables <= set(names)
    templates = {file.relative_to(ROOT).as_posix() for file in (ROOT / "router/render/templates").iterdir()}
    assert "router/render/templates/base.html" in templates
    assert templates <= set(names)
    modules = {
        file.relative_to(ROOT).as_posix() for file in (ROOT / "terraform" / "modules").rglob("*") if file.is_file()
    }
    assert any(name.endswith("/sandbox/start.sh") for name in modules)
    assert modules <= set(names)
    checked = _run(
        Path(sys.executable).with_name("check-wheel-contents"),
        "--config",
        ROOT / "pyproject.toml",
        wheel,
        cwd=wheel.parent,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
def test_it_plans_an_example_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    pins = ROOT / "requirements" / "constraints.txt"
    installed = _run(
        environment / "bin" / "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "-c",
        pins,
        wheel,
        cwd=tmp_path,
    )
    assert installed.returncode == 0, installed.stderr

    shutil.copytree(ROOT / "examples" / "nightly", tmp_path / "jobs")
    command = environment / "bin" / "stepfare"
    helped = _run(command, "--help", cwd=tmp_path)
    assert helped.returncode == 0, helped.stderr
    planned = _run(
        command,
        "plan",
        "jobs/bert-large-pretraining.yaml",
        "--book",
        "embedded",
        "--now",
        NOW,
        "--out",
        "plan.json",
        cwd=tmp_path,
    )
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert (tmp_path / "plan.json").is_file()
    drawn = _run(command, "plan", "show", "plan.json", "--html", "tonight.html", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert "1 of 1 job placed" in (tmp_path / "tonight.html").read_text(encoding="utf-8")
