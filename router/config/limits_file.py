"""The limits file: quotas, reservations, discounts, budgets, read with the place of everything that is wrong."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pricing.problems import InvalidInputError, Problem
from router.config.validation import problems_of
from router.config.yamlfile import Document, read_documents
from router.jobs.limits import Limits
from router.jobs.residency import nearest


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


def teams_without_jobs(loaded: LoadedLimits, teams: Collection[str]) -> tuple[Problem, ...]:
    """Report the budgets of teams of which no job is: they limit nothing, and a name may be misspelt.

    A team whose name is near to one of ``teams`` without a budget has a problem of its own; the others share one, since
    a file of limits may serve other nights.
    """
    document = loaded.document
    if document is None or not teams:
        return ()
    budgeted = {entry.team for entry in loaded.limits.teams}
    found: list[Problem] = []
    idle: list[tuple[int, str]] = []
    for index, entry in enumerate(loaded.limits.teams):
        if entry.team in teams:
            continue
        near = nearest(entry.team, set(teams) - budgeted)
        if near is None:
            idle.append((index, entry.team))
            continue
        what = f"no job here is of team {entry.team!r}: its budget limits nothing"
        found.append(
            Problem(document.where(("teams", index, "team")), f"teams[{index}].team", what, f"did you mean {near}?")
        )
    if idle:
        names = ", ".join(name for _, name in idle)
        what = f"no job here is of {'team' if len(idle) == 1 else 'the teams'} {names}: nothing is limited by that"
        found.append(Problem(document.where(("teams", idle[0][0], "team")), "teams", what, ""))
    return tuple(found)
