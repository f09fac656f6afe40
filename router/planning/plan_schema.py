"""Build the JSON Schema of what :mod:`router.planning.plan_json` writes: ``docs/schema/plan.json``.

Types are read off the frozen values, so that a field cannot be added to a plan without a description (KeyError).
"""

from __future__ import annotations

import json
import types
import typing
from dataclasses import fields
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal

from pricing.money import Usd, UsdPerHour
from router.jobs.run_policy import run_policy_schema
from router.planning import plan
from router.planning.plan_json import SCHEMA_VERSION, optional_fields
from router.planning.plan_schema_words import FIELD_DESCRIPTIONS, PLAN_DESCRIPTIONS

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MONEY: Schema = {
    "type": "string",
    "pattern": r"^-?(0|[1-9][0-9]*)\.[0-9]{2,9}$",
    "examples": ["912.60", "0.006182354"],
    "description": "US dollars as an exact decimal string, to the nano-dollar.",
}
_TIME: Schema = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?Z$",
    "description": "An instant in UTC.",
}
_DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_DEFINITIONS = {"usd": _MONEY, "time": _TIME}
# The classes with their names under `$defs`, which are published and stay when a class is renamed.
_PARTS: dict[type, str] = {
    plan.Line: "line",
    plan.PlannedMove: "move",
    plan.Unplaced: "unplaced",
    plan.Relaxation: "relaxation",
    plan.ShadowPrice: "shadow_price",
    plan.JobSummary: "job_summary",
    plan.Alternative: "alternative",
    plan.ConstraintCost: "constraint_cost",
    plan.DroppedOffers: "dropped_offers",
    plan.Cut: "cut",
}
# Fields are named as plan_json writes them: a move has `from`; book and horizon are objects.
_RENAMED: dict[tuple[type, str], str] = {(plan.PlannedMove, "source"): "from"}
_NESTED = frozenset({"book_digest", "book_as_of", "horizon_start", "horizon_end"})
_OPTIONAL = frozenset({"cuts"})
_BOUNDS: dict[str, Schema] = {
    "accelerators": {"minimum": 1},
    "billed_share": {"minimum": 0, "maximum": 1},
    "confidence": {"minimum": 0, "maximum": 1},
    "gap": {"minimum": 0, "maximum": 1},
    "gap_asked": {"minimum": 0},
    "gib": {"minimum": 0},
    "hours": {"minimum": 0},
    "machines": {"minimum": 1},
    "month": {"pattern": "^[0-9]{4}-[0-9]{2}$"},
    "market": {"enum": ["on_demand", "spot", "reserved"]},
    "on_time_probability": {"minimum": 0, "maximum": 1},
    "share": {"minimum": 0, "maximum": 1},
    "steps": {"minimum": 0},
    "what": {"enum": ["data", "stream", "checkpoint"]},
}


def plan_schema() -> Schema:
    """Return the schema (draft 2020-12) of one plan; equal on every call."""
    own = _properties(plan.Plan)
    properties: Schema = {
        "schema_version": {"const": SCHEMA_VERSION, "description": PLAN_DESCRIPTIONS["schema_version"]},
        "plan_id": {"type": "string", "pattern": "^plan-[0-9a-f]{12}$", "description": PLAN_DESCRIPTIONS["plan_id"]},
        "digest": {**_DIGEST, "description": PLAN_DESCRIPTIONS["digest"]},
        "book": _object(
            {"digest": {**_DIGEST, "description": PLAN_DESCRIPTIONS["book_digest"]}, "as_of": _at("book_as_of")}
        )
        | {"description": PLAN_DESCRIPTIONS["book"]},
        "horizon": _object({"start": _at("horizon_start"), "end": _at("horizon_end")})
        | {"description": PLAN_DESCRIPTIONS["horizon"]},
        **own,
    }
    return {
        "$schema": _DIALECT,
        "title": "A stepfare plan",
        "description": PLAN_DESCRIPTIONS["plan"],
        **_object(properties),
        "$defs": {**_DEFINITIONS, **{name: _part(part) for part, name in _PARTS.items()}},
    }


def plan_schema_text() -> str:
    """Return the schema as it lies in ``docs/schema``: the same bytes every time, with a newline at the end."""
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"


def _object(properties: Schema) -> Schema:
    """Return an object schema with every field required but the optional ones, and no other field."""
    required = [name for name in properties if name not in _OPTIONAL]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _at(name: str) -> Schema:
    return {"$ref": "#/$defs/time", "description": PLAN_DESCRIPTIONS[name]}


def _part(kind: type) -> Schema:
    properties = _properties(kind)
    if kind is plan.Line:
        words = FIELD_DESCRIPTIONS[kind]["billed_microseconds"]
        properties["billed_microseconds"] = {"type": "integer", "minimum": 0, "description": words}
    optional = optional_fields(kind)
    schema = _object(properties)
    schema["required"] = [name for name in schema["required"] if name not in optional]
    if kind is plan.Line:
        # The field is absent where no quote was accepted.
        schema["properties"]["policy"] = run_policy_schema(FIELD_DESCRIPTIONS[kind]["policy"])
    return {"description": FIELD_DESCRIPTIONS[kind][""], **schema}


def _properties(kind: type) -> Schema:
    """Return the schemas of the fields by JSON name, in the order of the fields."""
    words = PLAN_DESCRIPTIONS if kind is plan.Plan else FIELD_DESCRIPTIONS[kind]
    hints = typing.get_type_hints(kind)
    properties: Schema = {}
    for field in fields(kind):
        if (kind is plan.Plan and field.name in _NESTED) or (kind is plan.Line and field.name == "policy"):
            continue
        name = _RENAMED.get((kind, field.name), field.name)
        properties[name] = {**_type(hints[field.name], _BOUNDS.get(field.name, {})), "description": words[field.name]}
    return properties


_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", Fraction: "number"}


def _type(hint: Any, bounds: Schema) -> Schema:
    """Return a Python type as JSON Schema.

    Raises TypeError for one that a plan does not use.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Usd, UsdPerHour):
        return {"$ref": "#/$defs/usd"}
    if hint is datetime:
        return {"$ref": "#/$defs/time"}
    if hint in _PARTS:
        return {"$ref": f"#/$defs/{_PARTS[hint]}"}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint], **bounds}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _type(inner[0], {})}
    if origin is types.UnionType:
        known = next(kind for kind in inner if kind is not type(None))
        return {"anyOf": [_type(known, bounds), {"type": "null"}]}
    raise TypeError(f"a plan holds no {hint}")
