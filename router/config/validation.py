"""Turn what a model refuses into problems.

Each has file, line and column, the field as the user wrote it, and a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pricing.problems import InvalidInputError, Problem
from router.config.yamlfile import FieldPath, YamlDocument
from router.jobs.fields import FILL_IN, RefusedError, show_value, suggest

M = TypeVar("M", bound=BaseModel)
ProblemReader = Callable[[ValidationError, YamlDocument, type[BaseModel]], list[Problem]]
#: What a message adds where a second document begins that may not, and its remedy.
JOIN_LISTS = ("; here a second one begins", "remove the line --- and join the lists")

# Values below these fields may be secrets: they never appear in a message.
_SECRET = frozenset({"env"})
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_KINDS = {
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "decimal_type": "a number",
    "decimal_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}


def dotted_path(path: FieldPath) -> str:
    """Return the path as ``gang.accelerators.H100[1]``; entries of lists count from 0."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def problems_of(error: ValidationError, document: YamlDocument, model: type[BaseModel]) -> list[Problem]:
    """Return a problem for each thing that ``model`` refused in ``document``, in the order of the file's fields."""
    problems: list[Problem] = []
    for details in error.errors(include_url=False):
        # A model that refuses its input before reading the fields has not got to the misspelt ones, the likely cause.
        misspelt = list(_misspelt_problems(details, document, model))
        problems += misspelt or [_problem(details, document, model)]
    return problems


def validate_single(
    documents: Sequence[YamlDocument],
    model: type[M],
    kind: str,
    *,
    second: tuple[str, str] = ("", ""),
    shape: tuple[str, str] = ("", ""),
    read_problems: ProblemReader = problems_of,
) -> M | None:
    """Return the value in the only document of a file of this kind; None for an empty file.

    InvalidInputError for several documents, with ``second``; for one that is no mapping of fields, with ``shape``, in
    which VALUE stands for what it is instead; and for what the model refuses.
    """
    if not documents:
        return None
    if len(documents) > 1:
        what, remedy = second
        raise InvalidInputError.single(
            f"a {kind} file is one document{what}", where=documents[1].where(), remedy=remedy
        )
    (document,) = documents
    fields: Any = document.plain()
    if not isinstance(fields, dict):
        what, remedy = shape
        words = what.replace("VALUE", show_value(fields))
        raise InvalidInputError.single(
            f"a {kind} file is a mapping of fields{words}", where=document.where(), remedy=remedy
        )
    return validate_document(document, model, read_problems)


def validate_document(document: YamlDocument, model: type[M], read_problems: ProblemReader = problems_of) -> M:
    """Return the value in a document that is a mapping. InvalidInputError for what the model refuses."""
    try:
        return model.model_validate(document.plain())
    except ValidationError as error:
        raise InvalidInputError(read_problems(error, document, model)) from None


def _misspelt_problems(details: ErrorDetails, document: YamlDocument, model: type[BaseModel]) -> Iterator[Problem]:
    path, fields = details["loc"], details["input"]
    owner = model_at(model, path)
    if details["type"] != "value_error" or owner is None or not isinstance(fields, dict):
        return
    for name in fields:
        if name not in owner.model_fields and name not in _names_in(owner):
            yield _unknown_field((*path, str(name)), document, model)


def _names_in(model: type[BaseModel]) -> set[str]:
    written = {field.alias or name for name, field in model.model_fields.items()}
    return {*written, *getattr(model, "words", ())}


def _problem(details: ErrorDetails, document: YamlDocument, model: type[BaseModel]) -> Problem:
    path: tuple[str | int, ...] = tuple(step for step in details["loc"] if step != "[key]")
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, RefusedError):
        if cause.word:
            path = (*path[:-1], cause.word)
        path = (*path, *cause.at)
    if isinstance(hint := _hint_to_fill_in(document.value(path)), str):
        return Problem(document.where(path), dotted_path(path), "is still to be filled in", hint)
    if isinstance(cause, RefusedError):
        return Problem(document.where(path), dotted_path(path), cause.what, cause.remedy)
    if details["type"] == "extra_forbidden":
        return _unknown_field(path, document, model)
    if details["type"] == "missing":
        return Problem(document.where(path), dotted_path(path), "is missing", _example(path, model))
    what, remedy = _explain(details, secret=bool(_SECRET & set(path)))
    return Problem(document.where(path), dotted_path(path), what, remedy)


def _hint_to_fill_in(value: Any) -> object:
    """Return the hint that `stepfare import sky` left at ``value`` for the user to fill in, if any."""
    return value.get(FILL_IN) if isinstance(value, dict) and len(value) == 1 else None


def _unknown_field(path: tuple[str | int, ...], document: YamlDocument, model: type[BaseModel]) -> Problem:
    owner = model_at(model, path[:-1])
    names = set() if owner is None else _names_in(owner)
    kind = model.__name__.lower()
    what = f"{dotted_path(path[:-1])} has no such field" if path[:-1] else f"is no field of a {kind} file"
    remedy = suggest(path[-1], names) or f"`stepfare schema {kind}` lists the fields"
    return Problem(document.where(path, key=True), dotted_path(path), what, remedy)


def _explain(details: ErrorDetails, *, secret: bool) -> tuple[str, str]:
    kind, context, value = details["type"], details.get("ctx", {}), details["input"]
    shown_value = "the value" if secret else show_value(value)
    if kind in {"literal_error", "enum"}:
        known = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        return f"{shown_value} is not one of {', '.join(known)}", suggest(value, known, max_names=0)
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"must be {words} {context[key]}, not {shown_value}", ""
    if kind in _KINDS:
        remedy = "put it in quotes" if kind == "string_type" and isinstance(value, int | float) else ""
        return f"{shown_value} is not {_KINDS[kind]}", remedy
    if kind in {"string_too_short", "too_short"}:
        return "is empty", ""
    message = details["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:], ""


def _example(path: Sequence[str | int], model: type[BaseModel]) -> str:
    owner = model_at(model, path[:-1])
    field = owner.model_fields.get(str(path[-1])) if owner else None
    if field is None or not field.examples:
        return f"add `{path[-1]}: ...`"
    return f"add e.g. `{path[-1]}: {field.examples[0]}`"


def model_at(model: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel] | None:
    """Return the model of the value at ``path`` inside ``model``; None where there is no model."""
    owner: type[BaseModel] | None = model
    in_mapping = False
    for step in path:
        if isinstance(step, int):
            continue  # An entry of a list has the model that the list's field names.
        if in_mapping:
            in_mapping = False  # A key of a mapping: its value has the model that the mapping's field names.
            continue
        field = owner.model_fields.get(step) if owner else None
        owner = next(_models_in(field.annotation), None) if field else None
        in_mapping = field is not None and get_origin(field.annotation) is dict
    return None if in_mapping else owner


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from _models_in(part)
