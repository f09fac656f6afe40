"""A page read as people's tools read it: elements with their attributes and words, by the standard library."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser

_EMPTY = frozenset({"meta", "link", "br", "input", "hr", "img"})


@dataclass
class Element:
    """An element of a page."""

    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def words(self) -> str:
        return "".join(self.pieces)

    def every(self, wanted: Callable[[Element], bool]) -> list[Element]:
        """All elements below it that are wanted, in their order."""
        found = [] if not wanted(self) else [self]
        for child in self.children:
            found += child.every(wanted)
        return found

    def tags(self, tag: str) -> list[Element]:
        return self.every(lambda element: element.tag == tag)

    def of_class(self, name: str) -> list[Element]:
        return self.every(lambda element: name in element.attributes.get("class", "").split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("page", {})]
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _EMPTY:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1].tag == tag:
            self.open.pop()
        else:
            self.problems.append(f"</{tag}> closes <{self.open[-1].tag}>")

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.pieces.append(data)


def read_page(text: str) -> Element:
    """The page; AssertionError where an element is not closed."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert not reader.problems, reader.problems[:3]
    assert len(reader.open) == 1, [element.tag for element in reader.open]
    return reader.open[0]


def without_times(text: str) -> str:
    """A page whose moments are words alone, without the elements that say them to programs."""
    return re.sub(r'</?time(?: datetime="[^"]*")?>', "", text)


def check_landmarks(page: Element) -> None:
    """Assert the headings, landmarks and table heads that readers of screens need."""
    assert [len(page.tags(tag)) for tag in ("h1", "header", "main", "footer")] == [1, 1, 1, 1]
    ids = [e.attributes["id"] for e in page.every(lambda e: "id" in e.attributes)]
    assert len(ids) == len(set(ids))
    for section in page.tags("section"):
        assert section.attributes["aria-labelledby"] in ids
    for head in page.tags("th"):
        assert head.attributes["scope"] in ("row", "col")
        assert head.words.strip()
    for svg in page.tags("svg"):
        assert svg.attributes.get("role") == "img" or svg.attributes.get("aria-hidden") == "true"
