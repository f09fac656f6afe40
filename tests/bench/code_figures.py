"""Count what a newcomer meets in the code: files, words of our own, names used twice.

    python -m tests.bench.code_figures [--tree FOLDER]

Retired words are those that docs/glossary.md replaces; they are counted in names, docstrings, comments and messages of
the four packages, a file at a time. Database columns, file keys and other public words stay and are not counted.
"""

from __future__ import annotations

import argparse
import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
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
_EXCEPT: Final = {"sky": (r"(?<!import )", r"(?! ?(?:pilot|nomad))")}


def sources(tree: Path) -> Iterator[Path]:
    """Python files of the packages."""
    for package in PACKAGES:
        yield from sorted((tree / package).rglob("*.py"))


def retired_words(tree: Path) -> dict[Path, Counter[str]]:
    """Return how often each retired word occurs in each file that has any, by path from the tree."""
    found = {path.relative_to(tree): words_in(path) for path in sources(tree)}
    return {path: words for path, words in found.items() if words}


def words_in(path: Path) -> Counter[str]:
    """Return how often each retired word occurs in a file, in singular, plural or as a part of a name."""
    return retired_in(_words(path.read_text(encoding="utf-8")))


def retired_in(text: str) -> Counter[str]:
    """Return how often each retired word occurs in a text as a word of its own."""
    return +Counter({word: len(pattern.findall(text)) for word, pattern in _PATTERNS.items()})


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
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: count for name, count in sorted(names.items()) if count > 1}


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
        "classes of router whose name another one has": sum(classes_named_twice(tree).values()),
        "retired words": sum(words.total() for words in retired_words(tree).values()),
        "fmt: skip": sum(path.read_text(encoding="utf-8").count("# fmt: skip") for path in everything),
        "import contracts": len(project["tool"]["importlinter"]["contracts"]),
        "lines of tests": sum(len(p.read_text(encoding="utf-8").splitlines()) for p in (tree / "tests").rglob("*.py")),
        "words in the README": len((tree / "README.md").read_text(encoding="utf-8").split()),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="FOLDER")
    tree: Path = parser.parse_args().tree
    for name, value in figures(tree).items():
        print(f"{value:8,}  {name}")
    retired = sum(retired_words(tree).values(), Counter[str]())
    print("\nretired words:", ", ".join(f"{word} {count}" for word, count in retired.most_common()))
    print("\nclasses:", ", ".join(f"{name} {count}" for name, count in classes_named_twice(tree).items()))


if __name__ == "__main__":
    main()
