"""The picture of the rooms shows the imports as they are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest

from tests.support.repository import ROOT

SCRIPT = ROOT / "docs" / "room_graph.py"


@pytest.fixture(scope="module")
def room_graph() -> ModuleType:
    spec = importlib.util.spec_from_file_location("room_graph", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_room_has_a_place_and_every_arrow_points_down(room_graph: ModuleType) -> None:
    rows, edges = room_graph.layers(), room_graph.imports()
    level = {room: number for number, row in enumerate(rows) for room in row}
    assert set(edges) | {target for targets in edges.values() for target in targets} <= set(level)
    assert [(a, b) for a, targets in edges.items() for b in targets if level[a] >= level[b]] == []


def test_only_arrows_that_follow_from_others_are_left_out(room_graph: ModuleType) -> None:
    edges = {"a": frozenset({"b", "c", "d"}), "b": frozenset({"c"}), "c": frozenset({"d"})}
    assert room_graph.reduced(edges) == {"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"d"})}
