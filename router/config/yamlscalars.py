"""Parse plain YAML scalars by the core schema of YAML 1.2: ``NO`` is text, ``7e9`` a number, a date stays text."""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST_NUMBER = 40


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
