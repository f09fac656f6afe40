"""The walks of docs/design/conventions.md and the pointers of CONTRIBUTING name what is there."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.support.repository import ROOT

NOTE = (ROOT / "docs" / "design" / "conventions.md").read_text(encoding="utf-8")
PAGE = NOTE.partition("\n## Walks through the code\n")[2].partition("\n## ")[0]
POINTERS = (
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where to change what")[2].partition("\n## ")[0]
)
NAMES = sorted(set(re.findall(r"`((?:router|providers|pricing|terraform|docs)\.[\w.]+)`", PAGE + POINTERS)))


def _find(name: str) -> object:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_exists(name: str) -> None:
    assert _find(name) is not None


def test_each_walk_has_at_most_a_dozen_stations_all_with_a_name() -> None:
    walks = PAGE.split("\n### ")[1:]
    assert len(walks) == 5
    for walk in walks:
        stations = re.findall(r"^\d+\. .*$", walk, re.MULTILINE)
        assert 8 <= len(stations) <= 12
        assert all(re.search(r"`(?:router|providers|pricing)\.", station) for station in stations)
