"""List what others rely on, and compare it with what it was at another commit.

    python -m tests.bench.public_surface [--against COMMIT] [-o json]

Without ``--against`` it prints the surface of this tree: published schemas, golden files, tables of the state database,
values of enumerations (phases, reasons, journal words, exit codes), environment variables, tags and metrics, FOCUS
columns, commands with their options, and the bytes of the example plan. With it, it prints what was added and what is
gone, and exits with 1 where anything is gone. Command lines are run from the compared tree, with this environment.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.support.repository import ROOT

Surface = dict[str, list[str]]
PACKAGES: Final = ("router", "providers", "pricing", "terraform")
FILES: Final = ("docs/schema/*.json", "tests/golden/**/*")
# A plan has its own limit, so that a slow machine does not make another one.
PLAN: Final = (
    "plan", "examples/nightly", "--book", "embedded", "--limits", "examples/nightly/limits.yaml",
    "--now", "2026-11-21T18:00Z", "--time-limit", "10m", "-o", "json",
)  # fmt: skip
_WORDS: Final = {
    "environment variables": re.compile(r"\bSTEPFARE_[A-Z][A-Z_]*[A-Z]\b"),
    "tags and metrics": re.compile(r"\bstepfare_[a-z][a-z_]*[a-z]\b"),
    "FOCUS columns": re.compile(r"\bx_[A-Z]\w+\b"),
}
_ENUMS: Final = {"Enum", "StrEnum", "IntEnum"}
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
_PROSE: Final = {"$comment", "description", "examples", "title"}
# The table of commands, where it is and where it was.
_NAMES: Final = """
try:
    from router.cli.commands import TABLE
    names = list(TABLE.commands)
except ImportError:
    from router.cli.main import COMMANDS
    names = list(COMMANDS)
print(*names, sep="\\n")
"""


def surface(tree: Path) -> Surface:
    """Everything, by kind, sorted."""
    found = {"files": sorted(_files(tree)), **_words(tree), "database": sorted(_tables(tree))}
    found["commands and options"] = sorted(_commands(tree))
    found["example plan"] = [hashlib.sha256(_run(tree, PLAN).encode()).hexdigest()]
    return found


def _files(tree: Path) -> Iterator[str]:
    for pattern in FILES:
        for path in tree.glob(pattern):
            if path.is_file():
                content = path.read_bytes()
                if path.parent.name == "schema":
                    content = json.dumps(_rules(json.loads(content)), sort_keys=True).encode()
                yield f"{path.relative_to(tree)} {hashlib.sha256(content).hexdigest()}"


def _rules(schema: dict[str, Any]) -> Any:
    """Return what a schema accepts: without prose, and definitions where they are used in place of by name."""
    definitions = schema.get("$defs", {})

    def plain(value: Any, seen: tuple[str, ...] = ()) -> Any:
        if isinstance(value, list):
            return [plain(each, seen) for each in value]
        if not isinstance(value, dict):
            return value
        name = str(value.get("$ref", "")).removeprefix("#/$defs/")
        if name in definitions:
            return {"again": seen.index(name)} if name in seen else plain(definitions[name], (*seen, name))
        # Under "properties" the keys are fields of files, which may be called anything.
        return {
            key: {field: plain(each, seen) for field, each in inner.items()}
            if key == "properties"
            else plain(inner, seen)
            for key, inner in value.items()
            if key not in _PROSE
        }

    return plain({key: value for key, value in schema.items() if key != "$defs"})


def _words(tree: Path) -> Surface:
    """Strings of the code that match a pattern, and the values of every enumeration."""
    found: dict[str, set[str]] = {name: set() for name in _WORDS}
    values: set[str] = set()
    for package in PACKAGES:
        for path in (tree / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for name, pattern in _WORDS.items():
                        found[name].update(pattern.findall(node.value))
                elif isinstance(node, ast.ClassDef) and _ENUMS & {ast.unparse(base) for base in node.bases}:
                    values.update(_enum_values(node))
    return {**{name: sorted(words) for name, words in found.items()}, "values of enumerations": sorted(values)}


def _enum_values(node: ast.ClassDef) -> Iterator[str]:
    for line in node.body:
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant):
            yield repr(line.value.value)


def _tables(tree: Path) -> Iterator[str]:
    """The SQL of every table and index of a new state."""
    with tempfile.TemporaryDirectory() as home:
        _run(tree, ("budget", "set", "10", "--team", "a", "--now", "2026-11-21T18:00Z"), home)
        for path in Path(home).rglob("*.db"):
            with sqlite3.connect(path) as database:
                for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
                    yield " ".join(sql.split())


def _commands(tree: Path) -> Iterator[str]:
    """Each command with each of its options, as its help names them."""
    names = _python(tree, _NAMES, ()).splitlines()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        helps = pool.map(partial(_run, tree), [(*name.split(), "--help") for name in names])
        for name, text in zip(names, helps, strict=True):
            yield name
            yield from (f"{name} {option}" for option in set(_OPTION.findall(text)))


def _run(tree: Path, words: Sequence[str], home: str = "") -> str:
    """Return the output of a command of that tree. Raises CalledProcessError where it fails."""
    scripts: dict[str, str] = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, function = scripts["stepfare"].split(":")
    return _python(tree, f"from {module} import {function} as main; main()", words, home)


def _python(tree: Path, code: str, words: Sequence[str], home: str = "") -> str:
    """Return the output of a program that imports the packages of that tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEPFARE_")}
    with tempfile.TemporaryDirectory() as empty:
        environment = {**kept, "STEPFARE_HOME": home or empty, "COLUMNS": "200", "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tree)!r})\n{code}", *words],
            cwd=tree,
            env=environment,
            text=True,
            check=True,
            capture_output=True,
        )
    return done.stdout


def of_commit(commit: str) -> Surface:
    """The surface of a commit of this repository, checked out for as long as that takes."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            return surface(tree)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def main() -> None:
    """Print the surface, or what changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    now = surface(ROOT)
    if options.against is None:
        counts = "\n".join(f"{kind}: {len(rows)}" for kind, rows in now.items())
        print(json.dumps(now, indent=1) if options.output == "json" else counts)
        return
    before = of_commit(options.against)
    gone = {kind: sorted(set(rows) - set(now.get(kind, ()))) for kind, rows in before.items()}
    added = {kind: sorted(set(rows) - set(before.get(kind, ()))) for kind, rows in now.items()}
    if options.output == "json":
        print(json.dumps({"gone": gone, "added": added}, indent=1))
    else:
        for kind, rows in before.items():
            print(f"{kind}: {len(rows) - len(gone[kind])} of {len(rows)} as before, {len(added[kind])} added")
            print("".join(f"  gone: {row}\n" for row in gone[kind]), end="")
            print("".join(f"  added: {row}\n" for row in added[kind]), end="")
    sys.exit(1 if any(gone.values()) else 0)


if __name__ == "__main__":
    main()
