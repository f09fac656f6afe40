"""The walks of docs/design/034 and the pointers of CONTRIBUTING name what is there."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "design" / "034-walks.md").read_text(encoding="utf-8")
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
    walks = PAGE.split("\n## ")[1:]
    assert len(walks) == 5
    for walk in walks:
        stations = re.findall(r"^\d+\. .*$", walk, re.MULTILINE)
        assert 8 <= len(stations) <= 12
        assert all(re.search(r"`(?:router|providers|pricing)\.", station) for station in stations)


def test_the_page_of_moves_leads_to_modules_that_exist() -> None:
    page = (ROOT / "docs" / "design" / "033-where-everything-went.md").read_text(encoding="utf-8")
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in ("router", "providers", "pricing", "terraform")
        for path in (ROOT / package).rglob("*.py")
    }
    found = [
        name if name.split(".")[0] in ("router", "providers") else f"{room}.{name}"
        for room, section in re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", page, re.MULTILINE | re.DOTALL)
        for old, new in re.findall(r"^\| (`.*) \| (.*) \|$", section, re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", old.partition(": ")[2] if new == "the same names" else new)
    ]
    assert len(found) >= 200
    assert [name for name in found if name not in modules] == []
