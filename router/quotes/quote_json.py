"""JSON of quotes, canonical, with a digest that tells whether one was edited; schema: ``docs/schema/quote.json``.

Money is a decimal string, times are UTC with ``Z``, shares and rates are numbers, null is an amount without end. A
field that has a default is left out where there is nothing to say.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import types
import typing
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from pricing.money import Usd
from pricing.problems import InvalidInputError
from pricing.units import format_utc
from router.jobs.run_policy import RunPolicy, run_policy_schema
from router.quotes.quote import BudgetQuote, Quote, Refused

SCHEMA_VERSION = 1
_OWN = ("digest", "quote_id")


def quote_content(quote: Quote) -> dict[str, Any]:
    """Return the quote as plain data, with ``schema_version``, ``digest`` and ``quote_id``."""
    content = {"schema_version": SCHEMA_VERSION, **_to_plain(quote)}
    digest = _digest(content)
    return {**content, "digest": digest, "quote_id": f"quote-{digest[:12]}"}


def quote_to_json(quote: Quote) -> str:
    """Return the quote as JSON; equal quotes give equal bytes."""
    return _to_text(quote_content(quote))


def answers_to_json(answers: Sequence[Quote | BudgetQuote | Refused]) -> str:
    """Return the answers of a command as JSON: quotes, budgets and refusals, each in order."""
    found: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "quotes": [], "budgets": [], "refused": []}
    for answer in answers:
        if isinstance(answer, Quote):
            found["quotes"].append(quote_content(answer))
        else:
            found["budgets" if isinstance(answer, BudgetQuote) else "refused"].append(_to_plain(answer))
    return _to_text(found)


def quote_from_json(text: str, where: str = "") -> Quote:
    """Return the quote of this JSON.

    Raise InvalidInputError where it is none, is of a later schema, or does not match its digest.
    """
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        at = f"{where}:{error.lineno}:{error.colno}"
        raise InvalidInputError.single(
            f"is not JSON: {error.msg}", where=at, remedy="ask for the quote again"
        ) from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        what = "is no quote" if version is None else f"schema_version {version} is not {SCHEMA_VERSION}"
        raise InvalidInputError.single(what, where=where, remedy="ask for the quote again")
    if content.get("digest") != _digest(content):
        what = "was changed after it was made: its digest does not fit"
        raise InvalidInputError.single(what, where=where, field="digest", remedy="ask for the quote again")
    try:
        quote: Quote = _parse(Quote, content)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError.single(f"is no quote: {error!r}", where=where) from None
    return quote


def _digest(content: dict[str, Any]) -> str:
    bare = {key: value for key, value in content.items() if key not in _OWN}
    return hashlib.sha256(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _to_text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _to_plain(value: Any) -> Any:
    if isinstance(value, Usd):
        return str(value)
    if isinstance(value, datetime):
        return format_utc(value)
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, RunPolicy):
        return value.content
    if is_dataclass(value):
        shown = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: _to_plain(each) for field, each in shown if each is not None or field.default is MISSING}
    return value


def _parse(hint: Any, value: Any) -> Any:
    if typing.get_origin(hint) is types.UnionType:
        known = next(kind for kind in typing.get_args(hint) if kind is not type(None))
        return None if value is None else _parse(known, value)
    if typing.get_origin(hint) is tuple:
        return tuple(_parse(typing.get_args(hint)[0], item) for item in value)
    if hint is Usd:
        return Usd.parse(value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    if hint is RunPolicy:
        return RunPolicy.read(value)
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        known = [f for f in fields(hint) if f.name in value or f.default is MISSING]
        return typing.cast("type[Any]", hint)(**{f.name: _parse(hints[f.name], value[f.name]) for f in known})
    if hint is float:
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise TypeError(f"{value!r} is no {hint.__name__}")
    return value


Schema = dict[str, Any]
_POLICY = "The policy that runs the job where the quote is accepted."
_SHARES = frozenset({"on_time", "on_time_low", "on_time_high", "confidence", "spot_share", "share"})


@dataclass(frozen=True)
class _Answers:
    quotes: tuple[Quote, ...]
    budgets: tuple[BudgetQuote, ...]
    refused: tuple[Refused, ...]


def quote_schema() -> Schema:
    """Return the schema (draft 2020-12); equal on every call."""
    version = {"const": SCHEMA_VERSION, "description": "Rises when a reader of the older form would misread the newer."}
    schema = TypeAdapter(_Answers).json_schema(schema_generator=_Generator)
    definitions = schema.pop("$defs")
    own = definitions["Quote"]
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
        **schema,
        "title": "Answers of stepfare quote",
        "description": "Quotes, how far budgets go, and what could not be quoted. Money is a decimal string, times are "
        "UTC; null is an amount or a time without end.",
        "properties": {"schema_version": version, **schema["properties"]},
        "required": ["schema_version", *schema["required"]],
        "$defs": definitions,
    }


def quote_schema_text() -> str:
    """Return the text of the schema in ``docs/schema``."""
    return json.dumps(quote_schema(), indent=2, ensure_ascii=False) + "\n"


class _Generator(GenerateJsonSchema):
    """Write the schema of what :func:`_to_plain` returns: money and instants are text."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        kind = schema["cls"]
        if kind is Usd:
            return {"type": "string", "pattern": r"^-?(0|[1-9][0-9]*)\.[0-9]{2,9}$", "description": "US dollars."}
        found, hints = super().dataclass_schema(schema), typing.get_type_hints(kind)
        for name, field in found["properties"].items():
            for noise in ("title", "default"):
                field.pop(noise, None)
            if name in _SHARES and field.get("type") == "number":
                field |= {"minimum": 0, "maximum": 1}
            if hints[name] is RunPolicy:
                found["properties"][name] = run_policy_schema(_POLICY)
        text = " ".join((inspect.getdoc(kind) or "").split()).replace("``", "`")
        del found["title"]
        return {**found, "description": text, "additionalProperties": False}

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:  # noqa: ARG002  pydantic's form
        return {"type": "string", "format": "date-time", "description": "An instant in UTC."}
