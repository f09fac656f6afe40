"""Each notebook runs from top to bottom, and is committed without outputs."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.repository import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_without_outputs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert [i for i, cell in enumerate(cells) if cell.cell_type == "code" and cell.outputs] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_it_imports_is_there(path: Path) -> None:
    cells = (cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")
    lines = (line for source in cells for line in source.splitlines() if not line.lstrip().startswith(("%", "!")))
    imported = [node for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.ImportFrom)]
    assert imported
    for node in imported:
        module = import_module(node.module or "")
        missing = [name.name for name in node.names if not hasattr(module, name.name)]
        assert [name for name in missing if find_spec(f"{node.module}.{name}") is None] == [], node.module


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
