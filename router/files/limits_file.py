"""The limits file: quotas, reservations, discounts, budgets, read with the place of everything that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pricing.problems import InvalidInputError
from router.files.refusals import problems_of
from router.files.yamlfile import Document, read_documents
from router.jobs.limits import Limits


@dataclass(frozen=True)
class LoadedLimits:
    """Limits and where they were written; ``document`` is None for an empty file."""

    limits: Limits
    document: Document | None


def read_limits(path: Path) -> Limits:
    """The limits of a file; :func:`load_limits` without the places."""
    return load_limits(path).limits


def load_limits(path: Path) -> LoadedLimits:
    """The limits of a file of one document; an empty file limits nothing. InvalidInputError carries everything that is
    wrong: no such file, not YAML, a second document, what the model refuses."""
    documents = read_documents(path)
    if not documents:
        return LoadedLimits(Limits.none(), None)
    if len(documents) > 1:
        raise InvalidInputError.single(
            "a limits file is one document; here a second one begins",
            where=documents[1].where(),
            remedy="remove the line --- and join the lists",
        )
    document = documents[0]
    fields: Any = document.plain()
    if not isinstance(fields, dict):
        raise InvalidInputError.single(
            "a limits file is a mapping of fields, not a list",
            where=document.where(),
            remedy="put the list under `limits:`",
        )
    try:
        return LoadedLimits(Limits.model_validate(fields), document)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, document, Limits)) from None
