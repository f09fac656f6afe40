"""Name the labels of jobs in queries, and read those of jobs from their specifications in the state.

The word ``label:NAME`` stands for what jobs say under that name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from router.state.store import StateStore

LABEL: Final = "label:"
_LONGEST: Final = 200
Labels = Mapping[str, str]
NO_LABELS: Final[Labels] = MappingProxyType({})
NO_JOBS: Final[Mapping[str, Labels]] = MappingProxyType({})


def label_name(word: str) -> str | None:
    """Return the name of the label that a word stands for; None for any other word.

    A name has 1 to 200 printable characters and no comma, which separates words.
    """
    name = word.removeprefix(LABEL)
    if name == word or not 0 < len(name) <= _LONGEST or not name.isprintable() or "," in name:
        return None
    return name


def label_word(name: str) -> str:
    return f"{LABEL}{name}"


class JobLabels:
    """The labels of jobs by digest, each read once."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._known: dict[str, Labels] = {"": NO_LABELS}

    def of_jobs(self, digests: Collection[str]) -> Mapping[str, Labels]:
        """Return the labels of these jobs and of those asked for before; none for a job that the state does not know.

        Nor has a job labels whose specification nobody can read any more. StateError.
        """
        if unknown := set(digests) - self._known.keys():
            specs = self._store.plans.jobs(unknown)
            found = {digest: _read_labels(spec) for digest, spec in specs.items()}
            self._known |= {digest: found.get(digest, NO_LABELS) for digest in unknown}
        return self._known


def _read_labels(spec: str) -> Labels:
    # The specification is read as plain JSON: to check it takes longer than most reports.
    try:
        return json.loads(spec).get("labels") or NO_LABELS
    except (ValueError, AttributeError):
        return NO_LABELS
