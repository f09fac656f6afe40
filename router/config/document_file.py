"""Read files of one YAML document into models, and return the JSON Schema of every YAML file that a user writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ValidationError

from pricing.problems import InvalidInputError, Problem
from providers.sandbox.script import Script
from providers.static.pool import Pool
from providers.user_files import MisplacedError
from router.config.validation import JOIN_LISTS, M, dotted_path, problems_of, validate_single
from router.config.yamlfile import YamlDocument, read_documents
from router.deploy.deploy_settings import Deploy
from router.jobs.schema import KINDS as JOB_KINDS
from router.jobs.schema import Schema, allow_single_item, schema_for, schema_of
from router.prices.cloud_settings import Clouds
from router.showback.accounts import Showback


def read_single_document(path: Path, model: type[M]) -> M:
    """Read the value in the file.

    InvalidInputError: no such file, not YAML, no or several documents, what the model refuses; each problem with file,
    line and column.
    """
    kind = model.__name__.lower()
    content = validate_single(read_documents(path), model, kind, second=JOIN_LISTS, read_problems=_problems)
    if content is None:
        raise InvalidInputError.single(f"a {kind} file is empty", where=str(path))
    return content


def _problems(error: ValidationError, document: YamlDocument, model: type[BaseModel]) -> list[Problem]:
    details = error.errors(include_url=False)
    causes = [(entry["loc"], entry.get("ctx", {}).get("error")) for entry in details]
    misplaced = [((*loc, *cause.at), cause) for loc, cause in causes if isinstance(cause, MisplacedError)]
    if len(misplaced) < len(causes):
        return problems_of(error, document, model)
    return [Problem(document.where(place), dotted_path(place), str(cause)) for place, cause in misplaced]


_MODELS: Mapping[str, tuple[type[BaseModel], str]] = MappingProxyType(
    {
        "clouds": (Clouds, "A stepfare clouds file"),
        "deploy": (Deploy, "How stepfare makes machines"),
        "pool": (Pool, "A pool of hosts of one's own"),
        "sandbox": (Script, "A script for the sandbox cloud"),
        "showback": (Showback, "Whose accounts the clouds bill"),
    }
)
KINDS = (*JOB_KINDS, *_MODELS)


def build_file_schema(kind: str) -> Schema:
    """Return the schema of a file of this kind (one of ``KINDS``); KeyError for another."""
    if kind in JOB_KINDS:
        return schema_of(kind)
    model, title = _MODELS[kind]
    schema = schema_for(model, kind, title)
    if model is Clouds:
        allow_single_item(schema["$defs"]["CloudEntry"]["properties"], "regions")
    if model is Deploy:
        allow_single_item(schema["properties"], "pass_environment")
        for name in ("urls", "events"):
            allow_single_item(schema["$defs"]["NotifyEntry"]["properties"], name)
        allow_single_item(schema["$defs"]["WebhookEntry"]["properties"], "events")
        for name in ("hosts", "trusted_proxies"):
            allow_single_item(schema["$defs"]["ConsoleEntry"]["properties"], name)
        for name in ("hosts", "scopes"):
            allow_single_item(schema["$defs"]["OidcEntry"]["properties"], name)
        allow_single_item(schema["$defs"]["OidcEntry"]["properties"]["grants"], "additionalProperties")
    return schema
