"""Read the clouds file: which clouds a refresh queries, as whom, and when a price jump is held back.

No secret belongs into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from pricing.problems import InvalidInputError
from router.config.validation import problems_of
from router.config.yamlfile import read_documents
from router.prices.cloud_settings import Clouds, LoadedClouds

# Clouds whose offers come from a file that the user writes, and the function that reads it.
_READERS: Mapping[str, str] = MappingProxyType(
    {"static": "router.config.document_file:read_pool", "sandbox": "router.config.document_file:read_sandbox"}
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
