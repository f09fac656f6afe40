"""A state can be made from what a wheel holds, and not only from this tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.repository import PACKAGES, ROOT

_OPENS = """
import sys
from datetime import UTC, datetime
import router
from router.state.store import StateStore
with StateStore.open(sys.argv[1], now=datetime.now(UTC)) as store:
    print(router.__file__, store.ledger.head(), len(store.id))
"""


@pytest.mark.slow
def test_the_tables_are_made_by_an_installed_one(tmp_path: Path) -> None:
    source, here = tmp_path / "source", tmp_path / "100% installed"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*build, str(source)], cwd=tmp_path, check=True)
    (wheel,) = tmp_path.glob("stepfare-*.whl")
    zipfile.ZipFile(wheel).extractall(here)
    done = subprocess.run(
        [sys.executable, "-P", "-c", _OPENS, f"sqlite:///{tmp_path}/home/state.db"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(here)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout == f"{here / 'router' / '__init__.py'} 0 11\n"
