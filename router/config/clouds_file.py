"""Read the clouds file: which clouds a refresh queries, as whom, and when a price jump is held back.

No secret belongs into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from pricing.problems import InvalidInputError
from providers.registry import CLOUDS
from providers.session import Settings
from router.config.validation import problems_of, suggest
from router.config.yamlfile import read_documents
from router.jobs.fields import Flag, Positive, RefusedError, Spec, Text, as_many
from router.jobs.quantities import Duration

# Clouds whose offers come from a file that the user writes, and the function that reads it.
_READERS: Mapping[str, str] = MappingProxyType(
    {"static": "router.config.pool_file:read_pool", "sandbox": "router.config.sandbox_file:read_sandbox"}
)


class CloudEntry(Spec):
    """Settings for querying one cloud."""

    enabled: Flag = Field(default=True, description="false: never query it, not even by default.")
    credentials: Flag = Field(default=True, description="false: use public sources only, not the account.")
    regions: Annotated[tuple[Text, ...], BeforeValidator(as_many)] = Field(
        default=(), description="Query only these; left out: all.", examples=[["us-east-1", "eu-west-1"]]
    )
    options: dict[Text, Text] = Field(
        default_factory=dict, description="What the cloud needs besides its own settings: profile, project, ..."
    )
    endpoints: dict[Text, Text] = Field(
        default_factory=dict, description="Other addresses of its services, for a proxy or a test."
    )
    file: Text | None = Field(default=None, description="Path of the pool or the script, relative to this file.")


class Refresh(Spec):
    """Settings of a refresh."""

    time_limit: Duration = Field(default=timedelta(minutes=5), description="After it, what was fetched by then counts.")
    price_jump: Annotated[Positive, Field(gt=1)] = Field(
        default=3.0, description="Hold back a price that moves by more than this factor."
    )


class Clouds(Spec):
    """The clouds file; everything is optional."""

    clouds: dict[str, CloudEntry] = Field(default_factory=dict, description="By name; these must answer.")
    refresh: Refresh = Refresh()

    @field_validator("clouds", mode="before")
    @classmethod
    def _check_clouds(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise RefusedError("is not a mapping of clouds", "write `clouds:` and below it `NAME: {}` lines")
        for name in value:
            if name not in CLOUDS:
                raise RefusedError("is no cloud that this program knows", suggest(name, CLOUDS), at=(str(name),))
        return {name: entry if entry is not None else {} for name, entry in value.items()}


@dataclass(frozen=True)
class LoadedClouds:
    """The file's content, and the contents of the files that it names, by cloud."""

    clouds: Clouds
    documents: Mapping[str, object]

    def settings(self, cloud: str) -> Settings:
        """Return the settings of the adapter of ``cloud``."""
        entry = self.clouds.clouds.get(cloud, CloudEntry())
        return Settings(
            endpoints=entry.endpoints,
            options=entry.options,
            regions=entry.regions,
            credentials=entry.credentials,
            document=self.documents.get(cloud),
        )

    def asked(self, named: tuple[str, ...]) -> dict[str, bool]:
        """Return the clouds to query, and whether each must answer.

        They are those ``named``, else those of the file, which must answer, and those that are queried by default,
        which need not.
        """
        if named:
            return dict.fromkeys(named, True)
        written = {name: True for name, entry in self.clouds.clouds.items() if entry.enabled}
        disabled = {name for name, entry in self.clouds.clouds.items() if not entry.enabled}
        by_default = {name: False for name, entry in CLOUDS.items() if entry.by_default and name not in disabled}
        return {**by_default, **written}


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
