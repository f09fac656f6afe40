"""Retire a word of a file, a command or a JSON document: it is read until a version, with a warning on stderr.

``docs/compatibility.md`` says for how long. Whoever retires a word adds it to :data:`RETIRED_WORDS`, and reads it with
:func:`replace_retired_words` (a key of a file: in a validator before the fields; a key of JSON: in its reader) or with
:func:`choose_option`. A test fails once the version has come in which a word ends.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetiredWord:
    """A word ``old`` that ``new`` replaces; the version ``ends`` is the first that does not read it.

    ``where`` names what it is a word of, such as "the deploy file" or "stepfare plan".
    """

    old: str
    new: str
    where: str
    ends: str

    def __str__(self) -> str:
        return f"`{self.old}` of {self.where} is now `{self.new}`: write that; {self.ends} no longer reads the old word"


class RetiredWordWarning(FutureWarning):
    """The warning that a retired word was read; the command line prints each once."""


RETIRED_WORDS: tuple[RetiredWord, ...] = ()


def replace_retired_words(content: Any, where: str, words: Iterable[RetiredWord] = RETIRED_WORDS) -> Any:
    """Return a mapping with the new key in place of each key that is retired there, and warn of those.

    Anything else is returned as it is. ValueError where the same is given by both words.
    """
    if not isinstance(content, Mapping):
        return content
    new = dict(content)
    for word in words:
        if word.where == where and word.old in new:
            if word.new in new:
                raise ValueError(f"{word.new} and {word.old} are both given: keep {word.new}")
            new[word.new] = new.pop(word.old)
            _warn(word)
    return new


def choose_option(new: T | None, old: T | None, word: RetiredWord) -> T | None:
    """Return the value of an option, given by its word or by a retired one, of which it warns; None for neither.

    ValueError where both are given.
    """
    if old is None:
        return new
    if new is not None:
        raise ValueError(f"{word.new} and {word.old} are both given: keep {word.new}")
    _warn(word)
    return old


def print_each_once() -> None:
    """Let this process print each warning of a retired word once, as a line for a person."""
    warnings.filterwarnings("once", category=RetiredWordWarning)
    other = warnings.formatwarning

    def describe(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
        retired = issubclass(category, RetiredWordWarning)
        return f"warning: {message}\n" if retired else other(message, category, *place, **more)

    warnings.formatwarning = describe


def _warn(word: RetiredWord) -> None:
    warnings.warn(RetiredWordWarning(str(word)), stacklevel=3)
