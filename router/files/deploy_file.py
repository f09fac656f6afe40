"""The deploy file: how machines are made in each cloud, where they call home, where Terraform keeps its state. No
secret belongs into it: credentials come from each cloud's own chain."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from pricing.places import PROVISIONABLE_CLOUDS
from pricing.problems import InvalidInputError
from router.files.refusals import problems_of, suggestion
from router.files.yamlfile import read_documents
from router.jobs.fields import Count, Flag, RefusedError, Spec, Text, as_many
from router.jobs.quantities import Duration


class CoordinatorEntry(Spec):
    """Where the machines of a gang call home (docs/design/011-node-agent.md)."""

    listen: Text = Field(
        default="127.0.0.1:0",
        description="Address and port of this machine; port 0: a free one, the same each time.",
        examples=["0.0.0.0:7433"],
    )
    url: Text | None = Field(
        default=None,
        description="How machines reach it; left out: only those on this machine can.",
        examples=["https://stepfare.example.com:7433"],
    )
    certificate: Text | None = Field(default=None, description="PEM file; without one it speaks plain http.")
    key: Text | None = Field(default=None, description="PEM file of the certificate's key.")
    ca: Text | None = Field(default=None, description="PEM file of the authority that machines have to trust.")

    @field_validator("listen")
    @classmethod
    def _an_address(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise RefusedError("is no address with a port", "write 127.0.0.1:7433")
        return value

    @model_validator(mode="after")
    def _safe(self) -> CoordinatorEntry:
        if (self.certificate is None) != (self.key is None):
            raise RefusedError("a certificate and its key belong together", at=("certificate",))
        if self.url is not None and not self.url.startswith(("https://", "http://127.", "http://localhost")):
            raise RefusedError("would send tokens in the clear", "use https://", at=("url",))
        return self

    @property
    def host(self) -> str:
        """The address to listen on."""
        return self.listen.rpartition(":")[0]

    @property
    def port(self) -> int:
        """The port to listen on; 0: any."""
        return int(self.listen.rpartition(":")[2])


class NetworkEntry(Spec):
    """A network that is there already."""

    id: Text
    subnets: dict[Text, Text] = Field(description='By zone, or "" for the whole region.', min_length=1)


class RegionEntry(Spec):
    """What differs from region to region."""

    image: Text | None = None
    network: NetworkEntry | None = None
    checkpoint_bucket: Text | None = None


class ReservedEntry(Spec):
    """Capacity that was bought, as the cloud calls it."""

    id: Text = Field(examples=["cr-0123456789abcdef0", "capacity-block:cr-0123456789abcdef0"])
    region: Text
    zone: Text | None = None
    instance_type: Text


class HostEntry(Spec):
    """How to log in to one host of one's own."""

    port: Count = 22
    user: Text = "root"
    host_key: Text | None = Field(default=None, description="Its public key; without one any key is believed.")
    private_address: Text | None = Field(default=None, description="How the other hosts reach it.")


class CloudDeploy(Spec):
    """How machines are made in one cloud. What is left out is made, or the cloud's own default."""

    image: Text | None = Field(default=None, description="Machine image; left out: the cloud's current GPU image.")
    network: NetworkEntry | None = None
    disk_gib: Annotated[Count, Field(ge=10, le=2048)] = 200
    checkpoint_bucket: Text | None = Field(default=None, description="What the machines may read and write.")
    ssh_public_key: Text | None = None
    local_nvme: Text | None = Field(default=None, description="Where to mount the machine's own disks.")
    reservations: tuple[ReservedEntry, ...] = ()
    regions: dict[Text, RegionEntry] = Field(default_factory=dict)
    hosts: dict[Text, HostEntry] = Field(default_factory=dict, description="static: by address.")
    private_key_path: Text | None = Field(default=None, description="static: file of the key to log in with.")

    def in_region(self, region: str) -> CloudDeploy:
        """With what is written for that region in place of what is written for all."""
        special = self.regions.get(region)
        if special is None:
            return self
        return self.model_copy(
            update={name: value for name in RegionEntry.model_fields if (value := getattr(special, name)) is not None}
        )


class BackendEntry(Spec):
    """Where Terraform keeps its states; credentials by the environment only."""

    kind: Text = "local"
    settings: dict[Text, Text | Flag] = Field(default_factory=dict)


class Patience(Spec):
    """How long to wait for what."""

    apply: Duration = Field(default=timedelta(minutes=30), description="For Terraform to make a gang.")
    destroy: Duration = Field(default=timedelta(minutes=30), description="For Terraform to release one.")
    meet: Duration = Field(default=timedelta(minutes=15), description="For all ranks to call home.")
    lost: Duration = Field(default=timedelta(minutes=5), description="Without a word a machine is lost.")
    shortage: Duration = Field(default=timedelta(hours=1), description="For so long a pool is taken to be short.")
    early: Duration = Field(default=timedelta(minutes=10), description="So long before its start a gang is made.")


class Deploy(Spec):
    """The deploy file; everything is optional."""

    state: Text | None = Field(
        default=None, description="URL of the state database; left out: a file in STEPFARE_HOME.",
        examples=["postgresql://stepfare@db.example.com/stepfare"],
    )  # fmt: skip
    engine: Text | None = Field(default=None, description="Path of terraform or tofu; left out: see README.")
    backend: BackendEntry = BackendEntry()
    coordinator: CoordinatorEntry = CoordinatorEntry()
    parallel: Annotated[Count, Field(le=64)] = Field(default=4, description="Gangs that are made at the same time.")
    plugin_cache: Text | None = Field(default=None, description="Folder in which providers are kept.")
    plugin_mirror: Text | None = Field(default=None, description="The only folder to take providers from.")
    pass_environment: Annotated[tuple[Text, ...], BeforeValidator(as_many)] = Field(
        default=(), description="Variables that Terraform gets beside those that the clouds' own tools read."
    )
    patience: Patience = Patience()
    clouds: dict[str, CloudDeploy] = Field(default_factory=dict)

    @field_validator("clouds", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise RefusedError("is not a mapping of clouds", "write `clouds:` and below it `NAME: {}` lines")
        for name in value:
            if name not in PROVISIONABLE_CLOUDS:
                raise RefusedError(
                    "no machines can be made there", suggestion(name, PROVISIONABLE_CLOUDS), at=(str(name),)
                )
        return {name: entry if entry is not None else {} for name, entry in value.items()}

    def cloud(self, name: str, region: str) -> CloudDeploy:
        """What is written for a cloud and region; the defaults where nothing is."""
        return self.clouds.get(name, CloudDeploy()).in_region(region)


def deploy_path(given: Path | None, home: Path) -> tuple[Path, bool]:
    """The deploy file to read, and whether somebody named it: as given, ``STEPFARE_DEPLOY``, else in ``home``."""
    named = given or os.environ.get("STEPFARE_DEPLOY")  # noqa: TID251  this module is the edge
    return (Path(named).expanduser(), True) if named else (home / "deploy.yaml", False)


def load_deploy(path: Path, *, named: bool) -> Deploy:
    """The deploy file at ``path``; one that was not ``named`` may be missing. InvalidInputError for what is wrong."""
    if not named and not path.exists():
        return Deploy()
    documents = read_documents(path)
    if not documents:
        return Deploy()
    if len(documents) > 1:
        raise InvalidInputError.single("a deploy file is one document", where=documents[1].where())
    document = documents[0]
    fields: Any = document.plain()
    if not isinstance(fields, dict):
        raise InvalidInputError.single("a deploy file is a mapping of fields", where=document.where())
    try:
        return Deploy.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, document, Deploy)) from None
