"""Write measured points into the text of a job file; comments and layout stay as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pricing.problems import InvalidInputError
from router.config.yamlfile import YamlDocument, YamlNode, parse_documents

PointFields = Mapping[str, str | int | float]

_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_PART = re.compile(r'[^,="]*=\s*"[^"]*"\s*(?=,|$)|[^,]*')
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


def parse_point(text: str) -> dict[str, str | int | float]:
    """Return the fields of ``accelerators=H100:8,placement=1x8,seconds_per_step=2.1``; InvalidInputError otherwise.

    A value in double quotes may hold commas: ``source="measured on H100, 2026-11-25"``.
    """
    fields: dict[str, str | int | float] = {}
    for part in _split(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value) or name in fields:
            raise InvalidInputError.single(
                f"{part.strip()!r} is not FIELD=VALUE, or its field is given twice",
                field="--add",
                remedy="write e.g. accelerators=H100:8,placement=1x8,batch=256,seconds_per_step=2.1",
            )
        if len(value) > 2 and value[0] == value[-1] == '"':
            fields[name] = value[1:-1]
        elif _NUMBER.fullmatch(value):
            fields[name] = int(value) if value.lstrip("+-").isdecimal() else float(value)
        else:
            fields[name] = value
    return fields


def _split(text: str) -> list[str]:
    parts, at = [], 0
    while at <= len(text):
        found = _PART.match(text, at)
        assert found is not None  # the second form matches anything, and nothing
        parts.append(found[0])
        at = found.end() + 1
    return parts


def point_argument(fields: PointFields) -> str:
    """Return the fields as :func:`parse_point` reads them; texts with a comma or a space are quoted."""
    written = (
        f'{name}="{value}"' if isinstance(value, str) and re.search(r"[,\s]", value) else f"{name}={value}"
        for name, value in fields.items()
    )
    return ",".join(written)


def point_block(points: tuple[PointFields, ...]) -> str:
    """Return the points as YAML to paste under ``workload``."""
    return "\n".join(["  profile:", *(f"    - {_flow(point)}" for point in points)])


def insert_points(text: str, document: YamlDocument, points: tuple[PointFields, ...]) -> str | None:
    """Return the text with the points first in the job's profile; None where its layout does not let it be edited.

    ``document`` is the job's in that text. Block style is edited: a ``profile:`` with items of its own lines, or a
    ``workload:`` without a profile. The result is read again, and differs from the text by these points alone.
    """
    lines = text.splitlines(keepends=True)
    place = _insertion(document, lines)
    if place is None:
        return None
    after, indent, heading = place
    added = [f"{indent}{heading}\n"] if heading else []
    inside = indent + "  " if heading else indent
    added += [f"{inside}- {_flow(point)}\n" for point in points]
    if not lines[after - 1].endswith("\n"):
        lines[after - 1] += "\n"
    edited = "".join([*lines[:after], *added, *lines[after:]])
    return edited if _is_only_addition(text, edited, document, points) else None


def _insertion(document: YamlDocument, lines: list[str]) -> tuple[int, str, str] | None:
    """Return after which line to write, with which indentation, and a heading that is still missing."""
    root = document.root.content
    if not isinstance(root, dict) or "workload" not in root:
        return None
    key, workload = root["workload"]
    if not isinstance(workload.content, dict) or workload.line == key.line:
        return None
    if "profile" not in workload.content:
        return key.line, " " * (workload.column - 1), "profile:"
    name, profile = workload.content["profile"]
    if not isinstance(profile.content, tuple) or not profile.content:
        return None
    dash = lines[profile.content[0].line - 1]
    indent = dash[: len(dash) - len(dash.lstrip(" "))]
    if profile.content[0].line <= name.line or not dash.lstrip(" ").startswith("- "):
        return None
    return name.line, indent, ""


def _is_only_addition(text: str, edited: str, document: YamlDocument, points: tuple[PointFields, ...]) -> bool:
    try:
        before, after = parse_documents(text, document.file), parse_documents(edited, document.file)
    except InvalidInputError:
        return False
    expected: list[Any] = [one.plain() for one in before]
    position = next((i for i, one in enumerate(before) if _start(one.root) == _start(document.root)), None)
    if position is None:
        return False
    workload = expected[position]["workload"]
    workload["profile"] = [*(dict(point) for point in points), *workload.get("profile", [])]
    return [one.plain() for one in after] == expected


def _start(node: YamlNode) -> tuple[int, int]:
    return node.line, node.column


def _flow(point: PointFields) -> str:
    return "{" + ", ".join(f"{name}: {_scalar(value)}" for name, value in point.items()) + "}"


def _scalar(value: str | int | float) -> str:
    if not isinstance(value, str):
        return repr(value)
    if _PLAIN.fullmatch(value) and value.lower() not in {"null", "true", "false"}:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
