"""The notebook on price history also runs where the measurements it prefers are not at hand."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.repository import ROOT

NOTEBOOK = ROOT / "notebooks" / "02-price-history.ipynb"
MEASURED = (ROOT.parent / "shared" / "data" / "spot-availability").is_dir()


def printed(folder: Path) -> str:
    """What the notebook prints when it is run in a repository at ``folder``."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [kind for output in outputs for kind in output.get("data", {}) if kind.startswith("image/")]
    assert sorted(shown) == ["image/png"] * 3 + ["image/svg+xml"]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


@pytest.mark.slow
def test_without_measurements_it_shows_the_simulated_traces(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "traces", tmp_path / "repository" / "examples" / "traces")
    text = printed(tmp_path / "repository")
    assert "simulated_points: 4,035 written" in text
    assert "3 pools were watched, 3 of them for 24 hours" in text
    assert re.search(r"made…-east-1a p3.2xlarge spot 0.9500 .* 84%", text)


@pytest.mark.slow
@pytest.mark.skipif(not MEASURED, reason="the shared data are not here")
def test_with_measurements_it_shows_them() -> None:
    text = printed(ROOT)
    assert "v100_points: 91,140 written, 0 were there already" in text
    assert "22 pools were watched, 21 of them for 24 hours" in text
    assert "us-east-1c: probes fell 0.97 times an hour, a held machine was lost 0.58" in text
