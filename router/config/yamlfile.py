"""Read YAML files with positions: every value knows its line and column, and nothing is executed or expanded.

PyYAML parses; what its events mean is decided here, because its own reading is YAML 1.1 (``NO`` is false, ``7e9`` is
text), keeps the last of two equal keys and expands aliases without a limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pricing.problems import InvalidInputError, Problem
from router.files.missing_file import missing_file

Scalar = str | int | float | bool | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST_NUMBER = 40

MAX_BYTES = 2_000_000
MAX_NODES = 100_000
MAX_DEPTH = 50

FieldPath = Sequence[str | int]

# The C parser where PyYAML has it: ten times as fast, the same events.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAG = "tag:yaml.org,2002:str"
_REMEDIES = (
    ("tab character", "indent with spaces instead of tabs"),
    ("cannot start any token", "indent with spaces, and quote text that begins with @, `, % or a tab"),
    ("mapping values are not allowed", "quote text that contains ': ', or put the field on a line of its own"),
    ("could not find expected ':'", "write `field: value`"),
    ("undefined alias", "an anchor (&name) must come before its alias (*name), in the same document"),
    ("did not find expected", "check the indentation and the brackets above this line"),
    ("expected", "check the indentation and the brackets above this line"),
)


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A value at its place (``line`` and ``column`` from 1).

    ``size`` counts the nodes in it with aliases expanded, and a long text once for every hundred characters.
    """

    line: int
    column: int
    content: Scalar | tuple[YamlNode, ...] | dict[str, tuple[YamlNode, YamlNode]]
    size: int = 1

    def plain(self) -> Any:
        """Return the value as dicts, lists and scalars."""
        if isinstance(self.content, dict):
            return {name: value.plain() for name, (_, value) in self.content.items()}
        if isinstance(self.content, tuple):
            return [item.plain() for item in self.content]
        return self.content


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One YAML document of a file; ``file`` is the name that messages show."""

    file: str
    root: YamlNode

    def plain(self) -> Any:
        """Return the value as dicts, lists and scalars."""
        return self.root.plain()

    def value(self, path: FieldPath) -> Any:
        node = self.root
        for step in path:
            content = node.content
            if isinstance(content, dict) and str(step) in content:
                node = content[str(step)][1]
            elif isinstance(content, tuple) and isinstance(step, int) and step < len(content):
                node = content[step]
            else:
                return None
        return node.plain()

    def where(self, path: FieldPath = (), *, key: bool = False) -> str:
        """Return ``file:line:column`` of the value at ``path``, or of the deepest part of it that is written.

        With ``key`` the place of the field's name instead of its value.
        """
        node = shown = self.root
        for step in path:
            content = node.content
            if isinstance(content, dict) and str(step) in content:
                name, node = content[str(step)]
                shown = name if key else node
            elif isinstance(content, tuple) and isinstance(step, int) and step < len(content):
                shown = node = content[step]
            else:
                break
        return f"{self.file}:{shown.line}:{shown.column}"


def read_documents(path: Path) -> tuple[YamlDocument, ...]:
    """Return the documents of a file that are not empty.

    InvalidInputError: as :func:`read_text`, not YAML, a key twice in one mapping, too deep, or over 100,000 nodes in
    all its documents once aliases are expanded.
    """
    return parse_documents(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Return a file's text. InvalidInputError: no such file, not text, or over 2 MB."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror or error}", where=file) from None
    if len(content) > MAX_BYTES:
        raise InvalidInputError.single(
            "is larger than 2 MB, which no file of jobs is",
            where=file,
            remedy="split it into several files, and check that it is the right one",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise InvalidInputError.single(
            "is not UTF-8 text", where=f"{file}:{line}:{column}", remedy="save the file as UTF-8"
        ) from None


def parse_documents(text: str, file: str) -> tuple[YamlDocument, ...]:
    """Parse text as :func:`read_documents` does; ``file`` is the name that messages show."""
    builder = _Builder(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise InvalidInputError([*builder.problems, _syntax_problem(error, file)]) from None
    except yaml.YAMLError as error:
        raise InvalidInputError([*builder.problems, _character_problem(error, text, file)]) from None
    if builder.problems:
        raise InvalidInputError(builder.problems)
    return tuple(YamlDocument(file, root) for root in builder.roots if root.content is not None)


def _syntax_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    where = file if mark is None else f"{file}:{mark.line + 1}:{mark.column + 1}"
    what = f"is not YAML: {error.problem or error.context or 'syntax error'}"
    if error.problem and error.context:
        beginning = error.context_mark
        what += f" {error.context}" + ("" if beginning is None else f" that begins in line {beginning.line + 1}")
    remedy = next((remedy for sign, remedy in _REMEDIES if sign in what), "")
    return Problem(where, "", what, remedy)


def _character_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    """Return the problem of a character that YAML does not allow; its own position counts bytes in C."""
    position = next((i for i, c in enumerate(text) if not (c.isprintable() or c.isspace())), None)
    if position is None:
        return Problem(file, "", f"is not YAML: {error}")
    where = f"{file}:{text.count(chr(10), 0, position) + 1}:{position - text.rfind(chr(10), 0, position)}"
    return Problem(where, "", f"has the character {text[position]!r}, which YAML does not allow", "remove it")


class _Open:
    def __init__(self, event: Any) -> None:
        self.line, self.column = event.start_mark.line + 1, event.start_mark.column + 1
        self.anchor: str | None = event.anchor
        self.is_mapping = isinstance(event, yaml.MappingStartEvent)
        self.items: list[YamlNode] = []

    def pairs(self) -> Iterator[tuple[YamlNode, YamlNode]]:
        return zip(self.items[::2], self.items[1::2], strict=True)


class _Builder:
    """Build nodes of parser events without recursion; an alias is the node of its anchor once more."""

    def __init__(self, file: str) -> None:
        self.roots: list[YamlNode] = []
        self.problems: list[Problem] = []
        self._file = file
        self._size = 0  # The size of the documents so far.
        self._open: list[_Open] = []
        self._anchors: dict[str, YamlNode] = {}

    def take(self, event: Any) -> None:
        """Process one event of the parser, in order."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._anchors = {}
        elif isinstance(event, yaml.ScalarEvent):
            self._add(self._scalar(event), event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._alias(event), None)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            opened = self._open.pop()
            self._add(self._collection(opened), opened.anchor)

    def _begin(self, event: Any) -> None:
        if event.tag and not event.implicit:
            self._complain(event.start_mark, f"the tag {event.tag} is not read", "remove the tag")
        if len(self._open) == MAX_DEPTH:
            raise InvalidInputError(
                [*self.problems, self._problem(event.start_mark, f"is nested over {MAX_DEPTH} deep")]
            )
        self._open.append(_Open(event))

    def _scalar(self, event: Any) -> YamlNode:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        content: Scalar = event.value
        if event.tag not in {None, "!", _TEXT_TAG}:
            self._complain(event.start_mark, f"the tag {event.tag} is not read", "remove the tag")
        elif event.implicit[0]:
            try:
                content = plain_scalar(event.value)
            except ValueError as error:
                self._complain(event.start_mark, str(error))
        in_key = bool(self._open) and self._open[-1].is_mapping and len(self._open[-1].items) % 2 == 0
        return YamlNode(line, column, event.value if in_key else content, 1 + len(event.value) // 100)

    def _alias(self, event: Any) -> YamlNode:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            within = any(opened.anchor == event.anchor for opened in self._open)
            what = f"*{event.anchor} lies inside itself" if within else f"there is no anchor &{event.anchor} above"
            raise InvalidInputError([*self.problems, self._problem(event.start_mark, what)])
        return anchored

    def _collection(self, opened: _Open) -> YamlNode:
        size = 1 + sum(item.size for item in opened.items)
        if self._size + size > MAX_NODES:
            what = f"brings the file over {MAX_NODES:,} values, aliases expanded"
            remedy = "split the file, and check where its anchors and aliases come from"
            where = f"{self._file}:{opened.line}:{opened.column}"
            raise InvalidInputError([*self.problems, Problem(where, "", what, remedy)])
        if not opened.is_mapping:
            return YamlNode(opened.line, opened.column, tuple(opened.items), size)
        return YamlNode(opened.line, opened.column, self._mapping(opened), size)

    def _mapping(self, opened: _Open) -> dict[str, tuple[YamlNode, YamlNode]]:
        fields: dict[str, tuple[YamlNode, YamlNode]] = {}
        merged: list[YamlNode] = []
        for name, value in opened.pairs():
            key = name.content
            if not isinstance(key, str):
                self.problems.append(Problem(self._at(name), "", "a field's name must be text, not a list or mapping"))
            elif key == "<<":
                merged += value.content if isinstance(value.content, tuple) else (value,)
            elif key in fields:
                first = fields[key][0]
                what = f"{key!r} is written twice, first in line {first.line}"
                self.problems.append(Problem(self._at(name), "", what, "keep one of the two"))
            else:
                fields[key] = (name, value)
        for source in merged:  # YAML's merge key: the mapping's own fields win, then the first source's.
            if isinstance(source.content, dict):
                fields = source.content | fields
            else:
                self.problems.append(Problem(self._at(source), "", "<< needs a mapping, e.g. <<: *name"))
        return fields

    def _add(self, node: YamlNode, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = node
        if self._open:
            self._open[-1].items.append(node)
        else:
            self.roots.append(node)
            self._size += node.size

    def _at(self, node: YamlNode) -> str:
        return f"{self._file}:{node.line}:{node.column}"

    def _problem(self, mark: Any, what: str, remedy: str = "") -> Problem:
        return Problem(f"{self._file}:{mark.line + 1}:{mark.column + 1}", "", what, remedy)

    def _complain(self, mark: Any, what: str, remedy: str = "") -> None:
        self.problems.append(self._problem(mark, what, remedy))


def plain_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar; ValueError for a number that is not finite or absurdly long."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    is_whole = _DECIMAL.fullmatch(text) or _OTHER_BASE.fullmatch(text)
    if not is_whole and not _FLOAT.fullmatch(text):
        return text
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters; put text in quotes")
    if is_whole:
        return int(text, 10 if _DECIMAL.fullmatch(text) else 0)
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is too large for a number")
    return number
