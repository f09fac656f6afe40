"""What the tree promises to whoever opens it: small files, no address of one machine, names in one place."""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest

from tests.support.repository import PACKAGES, ROOT, python_files, repository_files

LONGEST_FILE = 600
# Small files joined the file whose subject they belong to, which made the usual one longer (127 lines before).
LONGEST_MEDIAN = 175

# Files that may name clouds: the vocabulary, the registry, and each cloud's own folder.
CLOUDS = {"aws", "gcp", "azure", "lambda", "runpod", "nebius", "verda"}
# sold.py is a table: a row a cloud and type, with its source.
NAMED_CLOUD = re.compile(f"""["'](?:{"|".join(sorted(CLOUDS))})["']""")
MAY_NAME_CLOUDS = {"pricing/places.py", "pricing/machines.py", "pricing/sale_rules.py", "providers/registry.py"}

# Written in two halves, so that this file does not contain what it looks for.
FOREIGN = {
    "a path of one machine": re.compile(r"(?<![\w.])/(?:" + "wor" + r"k|ro" + r"ot|far" + r"m|home/\w+|Users/\w+)/"),
    "a package index": re.compile(r"extra-index" + r"-url|find-" + r"links|pypi" + r"\.org|pythonhosted" + r"\.org"),
}


def _text(file: Path) -> str | None:
    try:
        return (ROOT / file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def _lines(file: Path) -> int:
    return len((ROOT / file).read_text(encoding="utf-8").splitlines())


def test_no_file_is_over_600_lines() -> None:
    sizes = {str(file): _lines(file) for file in python_files(*PACKAGES, "tests")}
    assert {name: lines for name, lines in sizes.items() if lines > LONGEST_FILE} == {}


def test_the_usual_file_is_short() -> None:
    sizes = [lines for file in python_files(*PACKAGES) if (lines := _lines(file)) > 5]
    assert statistics.median(sizes) <= LONGEST_MEDIAN


def test_no_file_names_a_machine_or_a_package_index() -> None:
    found = [
        f"{file}: {what}: {match[0]}"
        for file in repository_files()
        if (text := _text(file)) is not None
        for what, pattern in FOREIGN.items()
        if (match := pattern.search(text))
    ]
    assert found == []


def _shown_in_a_schema(tree: ast.AST) -> set[ast.AST]:
    """What stands under ``examples`` of a schema: shown to its reader, never decided upon."""
    shown: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "examples":
            shown.append(node.value)
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            shown += [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "examples"]
    return {inner for node in shown for inner in ast.walk(node)}


def test_clouds_are_named_in_one_place() -> None:
    found = []
    for file in python_files(*PACKAGES):
        if str(file) in MAY_NAME_CLOUDS or (file.parts[0] == "providers" and file.parts[1] in CLOUDS):
            continue
        text = (ROOT / file).read_text(encoding="utf-8")
        # Most files have no such string at all, and need not be parsed.
        if not NAMED_CLOUD.search(text):
            continue
        tree = ast.parse(text)
        shown = _shown_in_a_schema(tree)
        found += [
            f"{file}:{node.lineno}: {node.value!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node.value in CLOUDS and node not in shown
        ]
    assert found == []


def test_test_folders_are_kinds_not_packages() -> None:
    tests = [file for file in repository_files() if file.parts[0] == "tests"]
    assert [str(file) for file in tests if file.name == "__init__.py"] == ["tests/__init__.py"]
    assert {file.parts[1] for file in tests if len(file.parts) > 2} & set(PACKAGES) == set()


def test_test_files_have_names_of_their_own() -> None:
    names = Counter(file.name for file in python_files("tests") if file.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_package_folder_is_a_package() -> None:
    """Without ``__init__.py`` the import contracts would not see the folder, and pass."""
    folders = {file.parent for file in python_files(*PACKAGES)}
    assert [str(folder) for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed_and_say_what_they_are(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
    assert ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8")))
