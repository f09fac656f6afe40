"""Read the clouds file, which clouds a refresh queries and as whom, and the deploy file, how machines are made.

No secret belongs into either: credentials come from each cloud's own chain.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from pricing.problems import InvalidInputError
from router.config.validation import validate_single
from router.config.yamlfile import YamlDocument, read_documents
from router.deploy.deploy_settings import Deploy
from router.prices.cloud_settings import Clouds, LoadedClouds

# Clouds whose offers come from a file that the user writes, and its model.
_FILES = MappingProxyType(
    {"static": ("providers.static.pool", "Pool"), "sandbox": ("providers.sandbox.script", "Script")}
)


def load_clouds(path: Path, *, named: bool) -> LoadedClouds:
    """Load the clouds file at ``path``; one that was not ``named`` may be missing.

    InvalidInputError for what is wrong.
    """
    documents = _read_if_there(path, named=named)
    clouds = validate_single(documents, Clouds, "clouds") or Clouds()
    contents: dict[str, object] = {}
    for name, entry in clouds.clouds.items():
        if entry.file is None:
            continue
        if name not in _FILES:
            where = documents[0].where(("clouds", name, "file"))
            raise InvalidInputError.single(
                "only static and sandbox have a file", where=where, field=f"clouds.{name}.file"
            )
        # What is read from other files is loaded only where one is named.
        from router.config.document_file import read_single_document

        module, model = _FILES[name]
        contents[name] = read_single_document(path.parent / entry.file, getattr(import_module(module), model))
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
    second = ("", "remove the line `---`")
    shape = (", not VALUE", "see `stepfare schema deploy`")
    return validate_single(_read_if_there(path, named=named), Deploy, "deploy", second=second, shape=shape) or Deploy()


def _read_if_there(path: Path, *, named: bool) -> tuple[YamlDocument, ...]:
    return read_documents(path) if named or path.exists() else ()
