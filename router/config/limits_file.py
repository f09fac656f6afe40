"""Read the limits file: quotas, reservations, discounts, budgets, with the place of everything that is wrong."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pricing.problems import Problem
from router.config.validation import JOIN_LISTS, validate_single
from router.config.yamlfile import YamlDocument, parse_documents, read_documents
from router.jobs.fields import nearest_word
from router.jobs.limits import Limits


@dataclass(frozen=True)
class LoadedLimits:
    """Limits and where they were written; ``document`` is None for an empty file."""

    limits: Limits
    document: YamlDocument | None


def read_limits(path: Path) -> Limits:
    """Return the limits of a file; :func:`load_limits` without the places."""
    return load_limits(path).limits


def load_limits(path: Path) -> LoadedLimits:
    """Load the limits of a file of one document; an empty file limits nothing.

    InvalidInputError carries everything that is wrong: no such file, not YAML, a second document, what the model
    refuses.
    """
    return _limits_of(read_documents(path))


def parse_limits(text: str, file: str = "limits.yaml") -> LoadedLimits:
    """Load limits of text as :func:`load_limits` does; ``file`` is the name that messages show."""
    return _limits_of(parse_documents(text, file))


def _limits_of(documents: Sequence[YamlDocument]) -> LoadedLimits:
    shape = (", not a list", "put the list under `limits:`")
    limits = validate_single(documents, Limits, "limits", second=JOIN_LISTS, shape=shape)
    return LoadedLimits(Limits.none(), None) if limits is None else LoadedLimits(limits, documents[0])


def teams_without_jobs(loaded: LoadedLimits, teams: Collection[str]) -> tuple[Problem, ...]:
    """Return problems for the budgets of teams without a job: they limit nothing, and a name may be misspelt.

    A team whose name is near to one of ``teams`` without a budget has a problem of its own; the others share one, since
    a file of limits may serve other nights.
    """
    document = loaded.document
    if document is None or not teams:
        return ()
    budgeted = {entry.team for entry in loaded.limits.teams}
    problems: list[Problem] = []
    unknown: list[tuple[int, str]] = []
    for index, entry in enumerate(loaded.limits.teams):
        if entry.team in teams:
            continue
        near = nearest_word(entry.team, set(teams) - budgeted)
        if near is None:
            unknown.append((index, entry.team))
            continue
        what = f"no job here is of team {entry.team!r}: its budget limits nothing"
        problems.append(
            Problem(document.where(("teams", index, "team")), f"teams[{index}].team", what, f"did you mean {near}?")
        )
    if unknown:
        names = ", ".join(name for _, name in unknown)
        what = f"no job here is of {'team' if len(unknown) == 1 else 'the teams'} {names}: nothing is limited by that"
        problems.append(Problem(document.where(("teams", unknown[0][0], "team")), "teams", what, ""))
    return tuple(problems)
