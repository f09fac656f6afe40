"""Return the JSON Schema of every YAML file that a user writes, by the word that `stepfare schema` takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import BaseModel

from providers.sandbox.script import Script
from providers.static.pool import Pool
from router.deploy.deploy_settings import Deploy
from router.jobs.schema import KINDS as JOB_KINDS
from router.jobs.schema import Schema, allow_single_item, schema_for, schema_of
from router.prices.cloud_settings import Clouds
from router.showback.accounts import Showback

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
