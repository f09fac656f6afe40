"""Define the base of everything that a user writes, and the error that refuses a value.

The error says what is wrong, and what to write.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

#: The only key of a value that an import of another tool's file leaves to the user.
FILL_IN = "FILL IN"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def nearest_word(word: str, valid_words: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, None when none is near.

    Case does not matter; words with the same letters in another order are the nearest.
    """
    by_lower = {candidate.lower(): candidate for candidate in sorted(valid_words, reverse=True)}
    found = difflib.get_close_matches(word.lower(), sorted(by_lower), n=5)
    swapped = [candidate for candidate in found if sorted(candidate) == sorted(word.lower())]
    return by_lower[(swapped or found)[0]] if found else None


def suggest(word: object, valid_words: Iterable[str], *, max_names: int = 12) -> str:
    """Return ``did you mean X?``; else the known words, when there are few; else nothing."""
    names = sorted(valid_words)
    if near := nearest_word(str(word), names):
        return f"did you mean {near}?"
    return f"known: {', '.join(names)}" if 0 < len(names) <= max_names else ""


Path = tuple[str | int, ...]


class RefusedError(ValueError):
    """A value that is not allowed.

    ``at`` is where inside the value, and ``word`` the field that the user wrote where it is not the field's own name
    (``accelerators`` for ``options``).
    """

    def __init__(self, what: str, remedy: str = "", *, at: Path = (), word: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.at = at
        self.word = word


class Spec(BaseModel):
    """A frozen value that a user writes in YAML; unknown fields are refused.

    ``words`` are the names that may be written besides the fields' own names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    words: ClassVar[frozenset[str]] = frozenset()


def show_value(value: object) -> str:
    """Return a value as an error message shows it: short, on one line."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return repr(text) if isinstance(value, str) else text


def as_number(value: object) -> float:
    """Return a finite number; RefusedError for text, true, NaN and the like."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RefusedError(
            f"{show_value(value)} is not a number", "write digits without quotes or unit, e.g. 12 or 0.5"
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RefusedError(f"{show_value(value)} is not a finite number")
    return number


def as_whole(value: object) -> int:
    """Return a whole number (``1e6`` counts); RefusedError otherwise."""
    number = as_number(value)
    if number != int(number):
        raise RefusedError(f"{show_value(value)} is not a whole number")
    return value if isinstance(value, int) else int(number)


def as_text(value: object) -> str:
    """Return one line of text, without spaces around it; RefusedError for a number, an empty or a longer text."""
    if not isinstance(value, str):
        raise RefusedError(f"{show_value(value)} is not text", "put it in quotes" if value is not None else "")
    text = value.strip()
    if not text:
        raise RefusedError("is empty")
    if len(text) > 500:
        raise RefusedError(f"is {len(text)} characters long; 500 are the most")
    if not text.isprintable():
        raise RefusedError("holds a line break or a character that cannot be printed")
    return text


def parse_name(value: object) -> str:
    """Return a DNS label, because machines and buckets are named after it.

    RefusedError names one that would do.
    """
    text = as_text(value)
    if not _NAME.fullmatch(text):
        slug = re.sub(r"[^a-z0-9]+", "-", text.lower())[:63].strip("-")
        raise RefusedError(f"{show_value(text)} is no name", f"lower-case letters, digits and -: {slug or 'my-job'}")
    return text


def as_flag(value: object) -> bool:
    """Return true or false; RefusedError for words such as ``yes``, which are text in YAML 1.2."""
    if not isinstance(value, bool):
        raise RefusedError(f"{show_value(value)} is neither true nor false", "write true or false")
    return value


def as_pairs(value: object) -> object:
    """Return a mapping of text to text as sorted pairs; RefusedError otherwise, without showing the values."""
    if isinstance(value, tuple):
        return value
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise RefusedError(f"{show_value(value)} is not a mapping", "write it as `KEY: value` lines")
    for key, item in value.items():
        if not isinstance(item, str):
            kind = "empty" if item is None else "not text"
            raise RefusedError(f"the value is {kind}", "put it in quotes", at=(str(key),))
    return tuple(sorted((str(key), item) for key, item in value.items()))


def as_many(value: object) -> object:
    """Return a list; one value alone becomes a list of one."""
    if value is None:
        return ()
    return (value,) if isinstance(value, (str, dict)) else value


Number = Annotated[float, BeforeValidator(as_number)]
Positive = Annotated[float, BeforeValidator(as_number), Field(gt=0)]
Share = Annotated[float, BeforeValidator(as_number), Field(ge=0, le=1)]
NotNegative = Annotated[float, BeforeValidator(as_number), Field(ge=0)]
Whole = Annotated[int, BeforeValidator(as_whole)]
Count = Annotated[int, BeforeValidator(as_whole), Field(gt=0, le=10**15)]
Tally = Annotated[int, BeforeValidator(as_whole), Field(ge=0, le=10**15)]
Text = Annotated[str, BeforeValidator(as_text)]
Flag = Annotated[bool, BeforeValidator(as_flag)]


Pairs = Annotated[
    tuple[tuple[str, str], ...],
    BeforeValidator(as_pairs),
    PlainSerializer(dict, return_type=dict[str, str]),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]
