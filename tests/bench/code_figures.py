"""Count what a newcomer meets in the code: files, words of our own, names used twice.

    python -m tests.bench.code_figures [--tree FOLDER]

Retired words are those that docs/glossary.md replaces; they are counted in names, docstrings, comments and messages of
the four packages, a file at a time. Database columns, file keys and other public words stay and are not counted.

- **A value class mirrors another**: it has four fields or more, and another value class of the product has 60 % or more
  of their names. A value class is a frozen dataclass, a named tuple or a model with annotated fields.
- **A file knows a rule of the plan**: a name in its code holds the rule's word (``RULE_WORDS``); files of
  ``router.planning`` count.
- **Floors**: the longest chain of imports among the files and rooms of one folder inside ``router.planning``.
- **Vague names**: parameters, fields, module values and names that are returned, out of ``VAGUE``.
"""

from __future__ import annotations

import argparse
import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

PACKAGES: Final = ("router", "providers", "pricing", "terraform")
SMALL_LINES: Final = 60
# A word, and what may not follow it; parts of names count as words.
RETIRED: Final = (
    "weather", "sky", "errand", "sundries", "settling", "whats left", "taking back", "taken back", "takes back",
    "took back", "letting know", "was had", "retelling", "reckoning", "sighting", "harvest", "estate", "brake",
    "witness", "everyones", "stray", "depot", "happening", "hopeless", "sieve", "steadiness",
)  # fmt: skip
RULE_WORDS: Final = {
    "commitments": r"commitment",
    "team budgets": r"budget",
    "job groups": r"job_?group|^groups?$",
    "egress caps": r"egress_?cap",
    "maintenance": r"maintenance",
    "fair share": r"fair_?share",
    "carbon": r"carbon|emission",
}
MIRROR_FIELDS: Final = 4
MIRROR_SHARE: Final = 0.6
VAGUE: Final = frozenset(("found", "each", "known", "one", "most", "own", "wanted", "asked", "left"))
_EXCEPT: Final = {"sky": (r"(?<!import )", r"(?! ?(?:pilot|nomad))")}


def sources(tree: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((tree / package).rglob("*.py"))


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def retired_words(tree: Path) -> dict[Path, Counter[str]]:
    """Return how often each retired word occurs in each file that has any, by path from the tree."""
    found = {path.relative_to(tree): words_in(path) for path in sources(tree)}
    return {path: words for path, words in found.items() if words}


def words_in(path: Path) -> Counter[str]:
    """Return how often each retired word occurs in a file, in singular, plural or as a part of a name."""
    return retired_in(_words(path.read_text(encoding="utf-8")))


def retired_in(text: str) -> Counter[str]:
    """Return how often each retired word occurs in a text as a word of its own."""
    # Most words are in no text: to look for them plainly takes a tenth of the time of their patterns.
    lowered = text.lower()
    return +Counter({word: len(pattern.findall(text)) for word, pattern in _PATTERNS.items() if word in lowered})


def _pattern(word: str) -> re.Pattern[str]:
    before, after = _EXCEPT.get(word, ("", ""))
    return re.compile(rf"(?<![a-z]){before}{word}(?:s|ies|ed)?(?![a-z]){after}", re.IGNORECASE)


_PATTERNS: Final = {word: _pattern(word) for word in RETIRED}


def _words(text: str) -> str:
    """The text with the parts of names set apart: ``MadeUpName`` and ``made_up_name`` are three words each."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)


def classes_named_twice(tree: Path) -> dict[str, int]:
    """Names of classes of ``router`` that more than one class has, and how many have it."""
    names = Counter(
        node.name
        for path in sorted((tree / "router").rglob("*.py"))
        for node in ast.walk(_parse(path))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: count for name, count in sorted(names.items()) if count > 1}


def value_classes(tree: Path) -> dict[tuple[Path, str], frozenset[str]]:
    """Return the names of the annotated fields of each value class, by its file and name."""
    classes = {}
    for path in sources(tree):
        for node in ast.walk(_parse(path)):
            if isinstance(node, ast.ClassDef):
                fields = (part.target for part in node.body if isinstance(part, ast.AnnAssign))
                names = frozenset(name.id for name in fields if isinstance(name, ast.Name))
                if names:
                    classes[path.relative_to(tree), node.name] = names
    return classes


def mirrors(tree: Path) -> dict[tuple[Path, str], tuple[Path, str]]:
    """Return the value classes that mirror another one, each with the one that has most of its fields."""
    classes = value_classes(tree)
    mirrored = {}
    for key, names in classes.items():
        if len(names) >= MIRROR_FIELDS:
            shared, other = max(
                ((len(names & fields), o) for o, fields in classes.items() if o != key), default=(0, key)
            )
            if shared >= MIRROR_SHARE * len(names):
                mirrored[key] = other
    return mirrored


def files_of_rules(tree: Path) -> dict[str, list[Path]]:
    """Return the files of ``router.planning`` that know each rule of the plan."""
    files: dict[str, list[Path]] = {rule: [] for rule in RULE_WORDS}
    for path in sorted((tree / "router" / "planning").rglob("*.py")):
        names = set(_names_in(_parse(path)))
        for rule, words in RULE_WORDS.items():
            if any(re.search(words, name, re.IGNORECASE) for name in names):
                files[rule].append(path.relative_to(tree))
    return files


def _names_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.ClassDef(name=name):
                yield name
            case ast.FunctionDef(name=name) | ast.keyword(arg=str(name)) | ast.alias(name=name):
                yield name


def vague_names(tree: Path) -> Counter[str]:
    """Return how often a vague word names a parameter, a field, a module's value or what is returned."""
    count: Counter[str] = Counter()
    for path in sources(tree):
        for node in ast.walk(_parse(path)):
            match node:
                case ast.arg(arg=name) | ast.Return(value=ast.Name(id=name)):
                    count[name] += name in VAGUE
                case ast.ClassDef() | ast.Module():
                    for part in node.body:
                        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                            count[part.target.id] += part.target.id in VAGUE
    return +count


def floors(tree: Path, package: str = "router.planning") -> int:
    """Return the most floors that a folder of a package has: the longest chain of imports among its files and rooms."""
    folder = tree.joinpath(*package.split("."))
    rooms = [folder, *sorted(path for path in folder.rglob("*") if path.is_dir() and path.name != "__pycache__")]
    return max(_floors_of(room, ".".join(room.relative_to(tree).parts)) for room in rooms)


def _floors_of(folder: Path, package: str) -> int:
    graph: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).with_suffix("").parts[0]
        if name != "__init__":
            inside = (
                module.removeprefix(f"{package}.") for module in _imports(path) if module.startswith(f"{package}.")
            )
            graph.setdefault(name, set()).update(module.split(".")[0] for module in inside)
    graph = {name: (below & graph.keys()) - {name} for name, below in graph.items()}
    height: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        height[name] = 1 + max((height[below] for below in graph[name]), default=0)
    return max(height.values(), default=0)


def _imports(path: Path) -> set[str]:
    nodes = ast.walk(_parse(path))
    whole = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {str(node.module) for node in whole} | {
        f"{node.module}.{name.name}" for node in whole for name in node.names
    }


def lines_by_room(tree: Path) -> Counter[str]:
    """Return the lines of each room of ``router`` and of each other package."""
    count: Counter[str] = Counter()
    for path in sources(tree):
        parts = path.relative_to(tree).parts
        room = "/".join(parts[:2]) if parts[0] == "router" and len(parts) > 2 else parts[0]
        count[room] += len(path.read_text(encoding="utf-8").splitlines())
    return count


def figures(tree: Path) -> dict[str, int]:
    """The figures of a tree, in the order in which they are printed."""
    router = sorted((tree / "router").rglob("*.py"))
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in router}
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))
    everything = [*sources(tree), *sorted((tree / "tests").rglob("*.py"))]
    return {
        "files in router": len(router),
        f"of them under {SMALL_LINES} lines": sum(count < SMALL_LINES for count in lines.values()),
        "lines in router": sum(lines.values()),
        "lines of the product": lines_by_room(tree).total(),
        "value classes": len(value_classes(tree)),
        "of them mirrors of another": len(mirrors(tree)),
        "floors inside planning": floors(tree),
        "vague names that leave a function": vague_names(tree).total(),
        "classes of router whose name another one has": sum(classes_named_twice(tree).values()),
        "retired words": sum(words.total() for words in retired_words(tree).values()),
        "fmt: skip": sum(path.read_text(encoding="utf-8").count("# fmt: skip") for path in everything),
        "import contracts": len(project["tool"]["importlinter"]["contracts"]),
        "lines of tests": sum(len(p.read_text(encoding="utf-8").splitlines()) for p in (tree / "tests").rglob("*.py")),
        "words in the README": len((tree / "README.md").read_text(encoding="utf-8").split()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="FOLDER")
    tree: Path = parser.parse_args().tree
    for name, value in figures(tree).items():
        print(f"{value:8,}  {name}")
    retired = sum(retired_words(tree).values(), Counter[str]())
    print("\nlines by room:", ", ".join(f"{room} {count:,}" for room, count in lines_by_room(tree).most_common()))
    print(
        "\nfiles that know a rule:", ", ".join(f"{rule} {len(files)}" for rule, files in files_of_rules(tree).items())
    )
    print("\nretired words:", ", ".join(f"{word} {count}" for word, count in retired.most_common()))
    print("\nclasses:", ", ".join(f"{name} {count}" for name, count in classes_named_twice(tree).items()))


if __name__ == "__main__":
    main()
