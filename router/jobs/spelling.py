"""Find the word that was probably meant, for messages about words that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, None when none is near.

    Case does not matter; words with the same letters in another order are the nearest.
    """
    by_lower = {candidate.lower(): candidate for candidate in sorted(known, reverse=True)}
    found = difflib.get_close_matches(word.lower(), sorted(by_lower), n=5)
    swapped = [candidate for candidate in found if sorted(candidate) == sorted(word.lower())]
    return by_lower[(swapped or found)[0]] if found else None


def suggest(word: object, known: Iterable[str], *, most: int = 12) -> str:
    """Return ``did you mean X?``; else the known words, when there are few; else nothing."""
    names = sorted(known)
    if near := nearest_word(str(word), names):
        return f"did you mean {near}?"
    return f"known: {', '.join(names)}" if 0 < len(names) <= most else ""
