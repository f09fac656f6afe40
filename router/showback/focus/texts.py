"""Write amounts, moments and JSON objects as FOCUS does in text, one text a value, and read JSON objects. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

Json = Mapping[str, Any]

# FOCUS NumericFormat: no plus sign, no separators, an exponent only as mEn.
NUMBER = r"-?\d+(\.\d+)?(E-?\d+)?"
# FOCUS DateTimeFormat: UTC, and saying so.
MOMENT = r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z"


def decimal_text(value: Decimal) -> str:
    """Return the text without exponent or zeros at the end: 1E+2 is ``100``, 0.50 ``0.5``, minus zero ``0``."""
    if value == 0:
        return "0"
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def moment_text(value: datetime) -> str:
    """Return ``2026-11-01T00:00:00Z``; a fraction of a second only where there is one."""
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{text.rstrip('0') if value.microsecond else text}Z"


def json_text(value: Any) -> str:
    """Return one line, keys sorted, amounts as exact numbers.

    ValueError for a value that JSON has no word for, floats among them.
    """
    if value is None or isinstance(value, str | bool | int):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(key), ensure_ascii=False)}:{json_text(value[key])}" for key in sorted(value))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(json_text(entry) for entry in value) + "]"
    raise ValueError(f"{type(value).__name__} has no place in JSON of a charge")


def read_json(text: str) -> dict[str, Any]:
    """Read one JSON object without a key given twice; numbers with a point are Decimal."""
    content = _load_json(text)
    if not isinstance(content, dict):
        raise ValueError("is JSON, but not an object")
    return content


def join_key_values(text: str) -> str | None:
    """Return JSON of keys and values as the object that FOCUS wants; None for any other text.

    Such are ``[{"key": "team", "value": "speech"}]``, which Google's view has, the same as Parquet of BigQuery nests
    it (``{"list": [{"element": ...}]}``), and an object within a JSON text. A key given twice is another text.
    """
    try:
        content = _load_json(text)
        inner = _load_json(content) if isinstance(content, str) else _plain_lists(content)
        if isinstance(inner, list):
            inner = _unique_keys([(each["key"], each.get("value")) for each in inner])
        return json_text(inner) if isinstance(inner, dict) and inner != content else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _plain_lists(content: Any) -> Any:
    if isinstance(content, dict):
        if content.keys() == {"list"}:
            return [_plain_lists(each["element"]) for each in content["list"]]
        return {key: _plain_lists(value) for key, value in content.items()}
    return [_plain_lists(each) for each in content] if isinstance(content, list) else content


def _load_json(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key is given twice")
    return fields
