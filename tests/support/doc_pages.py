"""The pages of the documentation as tests read them: code blocks, commands, links and anchors."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.repository import ROOT, ran

STEPFARE = Path(sys.executable).with_name("stepfare")
DOCS = ROOT / "docs"
#: Notes of a day: their commands and words are those of that day.
HISTORY = DOCS / "design"

_BLOCK = re.compile(r"^```(.*?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ATTEMPT = r"-[0-9a-f]{10}\b"
_ZONE = r"(sandbox-|…o?x-)(north|east|south|west)(-[a-d])?"
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced code block: what stands after the fence (`console`, `yaml job`), and its text."""

    kind: str
    text: str

    def commands(self) -> list[str]:
        """Return the shell commands of a `console` or `sh` block, in order, with continued lines joined."""
        text = self.text.replace("\\\n", " ")
        if self.kind == "console":
            return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
        if self.kind == "sh":
            return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        return []


def pages() -> list[Path]:
    """Return the pages at the root, all below docs and those of the examples."""
    return [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def current_pages() -> list[Path]:
    """Return the pages that are kept true: README, CONTRIBUTING and docs without the design notes."""
    own = {ROOT / "CONTRIBUTING.md", ROOT / "README.md"}
    return [page for page in pages() if page in own or (DOCS in page.parents and HISTORY not in page.parents)]


def blocks(page: Path, kind: str | None = None) -> list[Block]:
    """Return the code blocks of a page, or those of one kind."""
    found = [Block(*groups) for groups in _BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [block for block in found if kind is None or block.kind == kind]


def prose(page: Path) -> str:
    """Return the text of a page without its code blocks."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Return the targets of the links and pictures of a page that lead to files or anchors, not to other sites."""
    return [link for link in _LINK.findall(prose(page)) if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    titles = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in _HEADING.findall(prose(page)))
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def stepfare_commands(block: Block) -> Iterator[list[str]]:
    """Yield the words after `stepfare` of each of its commands in a block."""
    for command in block.commands():
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.commenters = "#"
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|()"):
                if words[:1] == ["stepfare"]:
                    yield words[1:]
                words = []
            else:
                words.append(word)


def run_in_order(commands: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run shell commands one after the other in one shell that stops at the first failure and echoes each."""
    path = f"{STEPFARE.parent}:{environment.get('PATH', '')}"
    return ran(["bash", "-euxc", "\n".join(commands)], cwd=folder, env={**environment, "PATH": path})


def without_chance(line: str) -> str:
    """Return a printed line without what differs from day to day: figures, identifiers, the zone that was cheapest."""
    for pattern, word in ((_ATTEMPT, "-ID"), (_ZONE, "ZONE"), (r"\d[\d.]*", "N"), (r"\s+", " ")):
        line = re.sub(pattern, word, line)
    return line.strip()
