"""Name the labels of jobs in queries: the word ``label:NAME`` stands for what jobs say under that name. Pure."""

from __future__ import annotations

from typing import Final

LABEL: Final = "label:"
_LONGEST: Final = 200


def label_name(word: str) -> str | None:
    """Return the name of the label that a word stands for; None for any other word.

    A name has 1 to 200 printable characters and no comma, which separates words.
    """
    name = word.removeprefix(LABEL)
    if name == word or not 0 < len(name) <= _LONGEST or not name.isprintable() or "," in name:
        return None
    return name


def label_word(name: str) -> str:
    """Return the word of the label of that name."""
    return f"{LABEL}{name}"
