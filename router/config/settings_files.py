"""Read files of settings into models: clouds, deploy, static pool, sandbox, showback."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pricing.problems import InvalidInputError, Problem
from providers.sandbox.script import Script
from providers.static.pool import Pool
from providers.user_files import MisplacedError
from router.config.validation import dotted_path, problems_of
from router.config.yamlfile import YamlDocument, read_documents
from router.controller.deploy_settings import Deploy
from router.jobs.fields import show_value
from router.prices.cloud_settings import Clouds, LoadedClouds
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


# Clouds whose offers come from a file that the user writes, and the function that reads it.
_READERS: Mapping[str, str] = MappingProxyType(
    {"static": "router.config.settings_files:read_pool", "sandbox": "router.config.settings_files:read_sandbox"}
)


def load_clouds(path: Path, *, named: bool) -> LoadedClouds:
    """Load the clouds file at ``path``; one that was not ``named`` may be missing.

    InvalidInputError for what is wrong.
    """
    if not named and not path.exists():
        return LoadedClouds(Clouds(), {})
    documents = read_documents(path)
    if not documents:
        return LoadedClouds(Clouds(), {})
    if len(documents) > 1:
        raise InvalidInputError.single("a clouds file is one document", where=documents[1].where())
    document = documents[0]
    fields: Any = document.plain()
    if not isinstance(fields, dict):
        raise InvalidInputError.single("a clouds file is a mapping of fields", where=document.where())
    try:
        clouds = Clouds.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, document, Clouds)) from None
    contents: dict[str, object] = {}
    for name, entry in clouds.clouds.items():
        if entry.file is None:
            continue
        if name not in _READERS:
            where = document.where(("clouds", name, "file"))
            raise InvalidInputError.single(
                "only static and sandbox have a file", where=where, field=f"clouds.{name}.file"
            )
        module, _, function = _READERS[name].partition(":")
        contents[name] = getattr(import_module(module), function)(path.parent / entry.file)
    return LoadedClouds(clouds, contents)


def deploy_path(given: Path | None, home: Path) -> tuple[Path, bool]:
    """Return the path of the deploy file, and whether somebody named it.

    The path is as given, ``STEPFARE_DEPLOY``, else in ``home``.
    """
    named = given or os.environ.get("STEPFARE_DEPLOY")  # noqa: TID251  this module is the edge
    return (Path(named).expanduser(), True) if named else (home / "deploy.yaml", False)


def load_deploy(path: Path, *, named: bool) -> Deploy:
    """Load the deploy file at ``path``; one that was not ``named`` may be missing.

    InvalidInputError for what is wrong.
    """
    if not named and not path.exists():
        return Deploy()
    documents = read_documents(path)
    if not documents:
        return Deploy()
    if len(documents) > 1:
        raise InvalidInputError.single(
            "a deploy file is one document", where=documents[1].where(), remedy="remove the line `---`"
        )
    document = documents[0]
    fields: Any = document.plain()
    if not isinstance(fields, dict):
        raise InvalidInputError.single(
            f"a deploy file is a mapping of fields, not {show_value(fields)}",
            where=document.where(),
            remedy="see `stepfare schema deploy`",
        )
    try:
        return Deploy.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, document, Deploy)) from None
