"""The JSON Schema of the output of ``stepfare quote -o json``: ``docs/schema/quote.json``.

A stored quote has the form of its ``quote``. Types are read off the frozen values, descriptions off the docstrings of
their classes.
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Any

from pricing.money import Usd
from router.jobs.run_policy import RunPolicy, run_policy_schema
from router.quotes import quote
from router.quotes.quote_json import SCHEMA_VERSION

Schema = dict[str, Any]
_PARTS: tuple[type, ...] = (
    quote.Quote,
    quote.BudgetQuote,
    quote.Refused,
    quote.Likely,
    quote.Point,
    quote.Driver,
    quote.Other,
    quote.Somewhere,
    quote.Leg,
    quote.Reach,
)
_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number"}
_SHARES = frozenset({"on_time", "on_time_low", "on_time_high", "confidence", "spot_share", "share"})


def quote_schema() -> Schema:
    """Return the schema (draft 2020-12); equal on every call."""
    version = {"const": SCHEMA_VERSION, "description": "Rises when a reader of the older form would misread the newer."}
    lists = {"quotes": quote.Quote, "budgets": quote.BudgetQuote, "refused": quote.Refused}
    properties = {name: {"type": "array", "items": _ref(kind)} for name, kind in lists.items()}
    definitions: Schema = {_name(kind): _part(kind) for kind in _PARTS}
    own = definitions["quote"]
    own["properties"] |= {
        "schema_version": version,
        "digest": {
            "type": "string",
            "pattern": "^[0-9a-f]{64}$",
            "description": "SHA-256 of the rest without quote_id, as JSON of sorted keys, no spaces.",
        },
        "quote_id": {"type": "string", "pattern": "^quote-[0-9a-f]{12}$"},
    }
    own["required"] += ["schema_version", "digest", "quote_id"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Answers of stepfare quote",
        "description": "Quotes, how far budgets go, and what could not be quoted. Money is a decimal string, times are "
        "UTC; null is an amount or a time without end.",
        **_object({"schema_version": version, **properties}),
        "$defs": {
            "usd": {"type": "string", "pattern": r"^-?(0|[1-9][0-9]*)\.[0-9]{2,9}$", "description": "US dollars."},
            "time": {"type": "string", "format": "date-time", "description": "An instant in UTC."},
            **definitions,
        },
    }


def quote_schema_text() -> str:
    """Return the text of the schema in ``docs/schema``."""
    return json.dumps(quote_schema(), indent=2, ensure_ascii=False) + "\n"


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _part(kind: type) -> Schema:
    hints = typing.get_type_hints(kind)
    properties = {f.name: _type(hints[f.name], bounded=f.name in _SHARES) for f in fields(kind)}
    described = {"description": " ".join((inspect.getdoc(kind) or "").split()).replace("``", "`")}
    required = [f.name for f in fields(kind) if f.default is MISSING]
    return {**described, **_object(properties), "required": required}


def _type(hint: Any, *, bounded: bool = False) -> Schema:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Usd:
        return {"$ref": "#/$defs/usd"}
    if hint is datetime:
        return {"$ref": "#/$defs/time"}
    if hint in _PARTS:
        return _ref(hint)
    if hint == RunPolicy | None:
        return run_policy_schema("The policy that runs the job where the quote is accepted.")
    if hint in _PLAIN:
        return {"type": _PLAIN[hint], **({"minimum": 0, "maximum": 1} if bounded else {})}
    if origin is tuple:
        return {"type": "array", "items": _type(inner[0])}
    if origin is types.UnionType:
        known = next(kind for kind in inner if kind is not type(None))
        return {"anyOf": [_type(known), {"type": "null"}]}
    raise TypeError(f"a quote holds no {hint}")


def _ref(kind: type) -> Schema:
    return {"$ref": f"#/$defs/{_name(kind)}"}


def _name(kind: type) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("_")
