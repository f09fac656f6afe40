"""Settings of a price refresh: which clouds it queries, as whom, and when a price jump is held back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from providers.registry import CLOUDS
from providers.session import Settings
from router.jobs.fields import Flag, Positive, RefusedError, Spec, Text, as_many, suggest
from router.jobs.quantities import Duration


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
