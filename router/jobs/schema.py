"""Build JSON Schemas of what a user writes, for editors and other programs: the YAML forms, not the parsed ones.

A file that breaks its schema is refused by the models too; the models know more (sums, dates, books). An editor checks
while typing when the file's first line is, with the path seen from the file, ``# yaml-language-server:
$schema=docs/schema/job.json``.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from pricing.money import Usd
from router.jobs.checkpoint_size import STATE_BYTES
from router.jobs.fields import Spec
from router.jobs.limits import Limits
from router.jobs.quantities import format_duration
from router.jobs.spec import Job

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# If a validator runs before the bound, pydantic leaves its own word for the bound in the schema.
_BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
_MARKUP = re.compile(r":\w+:`|``")
_NO_REAL_BOUND = 10**15
_TITLES: dict[str, tuple[type[Spec], str]] = {
    "job": (Job, "A stepfare job"),
    "limits": (Limits, "A stepfare limits file"),
}
KINDS = tuple(_TITLES)
_WITH_SIZE = {"not": {"type": "object"}}, {"required": ["size_gib"]}
# The size of a checkpoint may be left out where a transformer's shape gives it.
_SIZE_FROM_SHAPE: Final[Schema] = {
    "if": {"properties": {"workload": {"not": {"required": ["transformer"]}}}},
    "then": {"properties": {"checkpoint": {"anyOf": list(_WITH_SIZE)}}},
}


def schema_of(kind: str) -> Schema:
    """Return the schema of one YAML document of this kind (one of ``KINDS``); KeyError for another."""
    model, title = _TITLES[kind]
    schema = schema_for(model, kind, title)
    if model is Job:
        for change in (_gang, _points, _spot, _checkpoint, _data, _places, _parameters):
            change(schema["$defs"], schema["properties"])
        schema |= _SIZE_FROM_SHAPE
    else:
        allow_single_item(schema["properties"], "clouds")
        for name in ("Limit", "Maintenance"):
            allow_single_item(schema["$defs"][name]["properties"], "family")
    return schema


def schema_for(model: type[BaseModel], kind: str, title: str) -> Schema:
    """Return the model's own schema, tidied, with a comment on how an editor finds it."""
    hint = f"First line of a file: # yaml-language-server: $schema=docs/schema/{kind}.json"
    schema = _tidy(model.model_json_schema(schema_generator=_Generator))
    return {"$schema": _DIALECT, "$comment": hint, "title": title, **schema}


def schema_text(schema: Schema) -> str:
    """Return the schema as it lies in ``docs/schema``: the same bytes every time, with a newline at the end."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


class _Generator(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, timedelta):
            return format_duration(dft)
        if isinstance(dft, Usd):
            return f"${dft}"
        return dft.model_dump(mode="json") if isinstance(dft, Spec) else super().encode_default(dft)


def _tidy(node: Any) -> Any:
    """Return the schema without titles and null defaults, which are noise in an editor.

    Bounds are put in JSON Schema's words, descriptions as plain prose.
    """
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidied: Schema = {}
    for key, value in node.items():
        if (key == "title" and isinstance(value, str)) or (key == "default" and value in (None, [], {})):
            continue
        if key in _BOUNDS and not isinstance(value, dict):
            if value != _NO_REAL_BOUND:
                tidied[_BOUNDS[key]] = value
        elif key == "description" and isinstance(value, str):
            tidied[key] = " ".join(_MARKUP.sub("`", value).split())
        else:
            tidied[key] = _tidy(value)
    return tidied


def allow_single_item(properties: Schema, *names: str) -> None:
    """Allow a list of one to be written without its dash."""
    for name in names:
        found = properties[name]
        many = next((one for one in found.get("anyOf", ()) if one.get("type") == "array"), found)
        kept = {key: found[key] for key in ("description", "examples") if key in found}
        bare = {key: value for key, value in many.items() if key not in kept}
        properties[name] = {**kept, "anyOf": [bare, many["items"]]}


def _gang(parts: Schema, _: Schema) -> None:
    gang = parts["Gang"]
    count = {"type": "integer", "minimum": 1}
    accelerators = {
        "description": "Allowed gangs: accelerators in total, alternatives of which one is chosen.",
        "anyOf": [
            {"type": "string", "pattern": r"^[^+]+$"},
            {"type": "array", "items": {"type": "string", "pattern": r"^[^+]+$"}, "minItems": 1},
            {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {
                    "anyOf": [count, {"type": "array", "items": count, "minItems": 1}, {"type": "null"}]
                },
            },
        ],
        "examples": ["H100:8", {"H100": [8, 16], "A100-80GB": 16}, ["H100:8", "A100-80GB:16"]],
    }
    alternative = {
        "type": "object",
        "properties": {"accelerators": accelerators},
        "required": ["accelerators"],
        "additionalProperties": False,
    }
    any_of = {
        "description": "The same as a list, as SkyPilot writes it.",
        "type": "array",
        "items": alternative,
        "minItems": 1,
    }
    gang["properties"] = {"accelerators": accelerators, "any_of": any_of, **gang["properties"]}
    gang["oneOf"] = [{"required": [word]} for word in ("accelerators", "any_of", "options")]
    gang["required"].remove("options")
    if not gang["required"]:
        del gang["required"]


def _points(parts: Schema, _: Schema) -> None:
    point, positive = parts["ProfilePoint"], {"type": "number", "exclusiveMinimum": 0}
    point["properties"] |= {
        "accelerators": {
            "description": "accelerator and count in one.",
            "type": "string",
            "pattern": "^[^:]+:[0-9]+$",
            "examples": ["H100:8"],
        },
        "seconds_per_step": {"description": "In place of steps_per_hour.", **positive},
        "tokens_per_second": {
            "description": "In place of steps_per_hour, with tokens_per_step here or in the transformer.",
            **positive,
        },
        "tokens_per_step": {"description": "Tokens of the global batch.", **positive},
        "batch_per_accelerator": {"description": "In place of batch: the samples of each accelerator.", **positive},
    }
    point["allOf"] = [
        {"oneOf": [{"required": ["accelerator", "count"]}, {"required": ["accelerators"]}]},
        {"oneOf": [{"required": [w]} for w in ("steps_per_hour", "seconds_per_step", "tokens_per_second")]},
    ]
    del point["required"]
    workload = parts["Workload"]
    allow_single_item(workload["properties"], "profile")
    workload["anyOf"] = [{"required": ["profile"]}, {"required": ["transformer"]}]


def _spot(parts: Schema, job: Schema) -> None:
    use_spot = {
        "description": "SkyPilot's word: true is spot machines only, false is never. Not beside `market`.",
        "type": "boolean",
    }
    job["use_spot"] = use_spot
    rule = parts["MarketRule"]
    rule["properties"]["use_spot"] = use_spot | {"description": "true is `only`, false is `never`."}


def _checkpoint(parts: Schema, job: Schema) -> None:
    checkpoint = parts["Checkpoint"]
    checkpoint["properties"]["size_gib"]["description"] += " Left out: estimated, if a `transformer` is stated."
    checkpoint["properties"]["optimizer"] = {
        "description": "In place of size_gib, for its estimate; `adamw` unless said.",
        "enum": sorted(STATE_BYTES),
    }
    del checkpoint["required"]
    job["checkpoint"] = {
        "description": "What is saved and how fast. Left out or `none`: the job cannot resume.",
        "anyOf": [{"const": "none"}, *job["checkpoint"]["anyOf"]],
    }


def _data(parts: Schema, _: Schema) -> None:
    data = parts["Data"]["properties"]
    data["egress_cap"] = {"anyOf": [{"type": "string", "examples": ["$40", "500 GB"]}, *data["egress_cap"]["anyOf"]]}
    cap = parts["EgressCap"]
    cap["anyOf"] = [{"required": ["gib"]}, {"required": ["usd"]}]


def _places(parts: Schema, _: Schema) -> None:
    allow_single_item(parts["Residency"]["properties"], "allow", "deny")
    allow_single_item(parts["Status"]["properties"], "data_in")


def _parameters(parts: Schema, _: Schema) -> None:
    written = {
        "anyOf": [
            {"type": "number", "minimum": 10_000},
            {"type": "string", "pattern": r"^[0-9.]+([eE]\+?[0-9]+)?\s*[KMBT]?$"},
        ]
    }
    fields = parts["Transformer"]["properties"]
    for name in ("parameters", "active_parameters"):
        kept = {key: fields[name][key] for key in ("description", "examples") if key in fields[name]}
        fields[name] = kept | written
