"""Read files of one YAML document into models: the static pool, the sandbox, showback."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pricing.problems import InvalidInputError, Problem
from providers.sandbox.script import Script
from providers.static.pool import Pool
from providers.user_files import MisplacedError
from router.config.validation import dotted_path, problems_of
from router.config.yamlfile import YamlDocument, read_documents
from router.showback.accounts import Showback

M = TypeVar("M", bound=BaseModel)


def read_single_document(path: Path, model: type[M]) -> M:
    """Read the value in the file.

    InvalidInputError: no such file, not YAML, no or several documents, what the model refuses; each problem with file,
    line and column.
    """
    kind = model.__name__.lower()
    documents = read_documents(path)
    if not documents:
        raise InvalidInputError.single(f"a {kind} file is empty", where=str(path))
    if len(documents) > 1:
        raise InvalidInputError.single(
            f"a {kind} file is one document; here a second one begins",
            where=documents[1].where(),
            remedy="remove the line --- and join the lists",
        )
    fields: Any = documents[0].plain()
    if not isinstance(fields, dict):
        raise InvalidInputError.single(f"a {kind} file is a mapping of fields", where=documents[0].where())
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError(_problems(error, documents[0], model)) from None


def _problems(error: ValidationError, document: YamlDocument, model: type[BaseModel]) -> list[Problem]:
    details = error.errors(include_url=False)
    causes = [(entry["loc"], entry.get("ctx", {}).get("error")) for entry in details]
    misplaced = [((*loc, *cause.at), cause) for loc, cause in causes if isinstance(cause, MisplacedError)]
    if len(misplaced) < len(causes):
        return problems_of(error, document, model)
    return [Problem(document.where(place), dotted_path(place), str(cause)) for place, cause in misplaced]


def read_pool(path: Path) -> Pool:
    """Return the pool in a YAML file. InvalidInputError carries everything that is wrong, each with file and line."""
    return read_single_document(path, Pool)


def read_sandbox(path: Path) -> Script:
    """Return the script in a YAML file. InvalidInputError carries everything that is wrong, each with file and line."""
    return read_single_document(path, Script)


def read_showback(path: Path) -> Showback:
    """Read the file. InvalidInputError carries everything that is wrong, each with file and line."""
    return read_single_document(path, Showback)
