"""Settings of one cloud in the deploy file: networks, images, stores, reservations, hosts and tags."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, model_validator

from router.checkpoints.arrow_store import S3_WORDS
from router.jobs.fields import Count, RefusedError, Spec, Text
from terraform.spec import Host, ReadableSpec, check_tags

SCHEMES = ("s3", "gs", "abfs", "abfss", "file")
# Characters of the last part of a URI, and of its digest, in the name of its copy.
_NAME_CHARACTERS, _DIGEST_CHARACTERS = 40, 12
_WRITE = "write s3://BUCKET/PREFIX, gs://, abfs(s):// or file:///PATH"


def validate_store_url(value: str) -> str:
    """Return the URL without a slash at its end.

    RefusedError for a value that is no such URL, or holds credentials; it shows nothing of them.
    """
    try:
        parts = urlsplit(value)
    except ValueError:
        raise RefusedError("is no URL", _WRITE) from None
    if parts.scheme not in SCHEMES:
        raise RefusedError("is no place for checkpoints", _WRITE)
    # In Azure's, the container stands before the @.
    if parts.password is not None or (parts.username is not None and not parts.scheme.startswith("abfs")):
        raise RefusedError("holds credentials", "give them in the environment: a URL is shown to people")
    if parts.scheme == "file":
        if parts.netloc or not parts.path.strip("/"):
            raise RefusedError("is no folder of a machine", "write file:///PATH")
    elif not parts.netloc.rpartition("@")[2]:
        raise RefusedError("names no bucket", _WRITE)
    parameters = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if parts.fragment or parameters - (S3_WORDS if parts.scheme == "s3" else set()):
        raise RefusedError("holds more than a place", f"after ? only s3:// may say {', '.join(sorted(S3_WORDS))}")
    path, mark, query = value.partition("?")
    return f"{path.rstrip('/')}{mark}{query}"


def join_store_url(url: str, name: str) -> str:
    path, mark, query = url.partition("?")
    return f"{path}/{name}{mark}{query}"


def _check_folder(value: str) -> str:
    if not re.fullmatch(r"/[\w./-]+", value):
        raise RefusedError("is no absolute path of letters, digits and ._-", "write /mnt/scratch")
    return value


def _check_public_key(value: str) -> str:
    # The value is not shown: somebody may have given the private key.
    if not re.fullmatch(r"(?:ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+(?: .*)?", value):
        raise RefusedError("is not one line of a public key", "write it as in id_ed25519.pub: ssh-ed25519 AAAA... name")
    return value


def _check_queue_url(value: str) -> str:
    if not re.fullmatch(r"https?://[\w.:-]+(?:/[\w.-]+)*/\d{12}/[\w-]{1,80}", value):
        raise RefusedError(
            "is no URL of an SQS queue",
            "write https://sqs.REGION.amazonaws.com/ACCOUNT/NAME; FIFO queues take no events",
        )
    return value


PublicKey = Annotated[Text, AfterValidator(_check_public_key)]


StoreUrl = Annotated[Text, AfterValidator(validate_store_url)]


def _check_absolute_path(value: str) -> str:
    if not Path(value).is_absolute() and not value.startswith("~/"):
        raise RefusedError("is no absolute path", "begin it with / or ~/")
    return value


class NetworkEntry(Spec):
    """An existing network."""

    id: Text
    subnets: dict[str, Text] = Field(description='Subnets by zone, or "" for the whole region.', min_length=1)


class RegionEntry(Spec):
    """Settings that differ from region to region."""

    image: Text | None = None
    zone: Text | None = Field(default=None, description="Zone, for a cloud that needs one where no price names it.")
    network: NetworkEntry | None = None
    checkpoint_bucket: Text | None = None
    checkpoint_url: StoreUrl | None = None
    data_url: StoreUrl | None = None
    interruption_queue: Annotated[Text, AfterValidator(_check_queue_url)] | None = None


class ReservedEntry(Spec):
    """Reserved capacity, as the cloud calls it."""

    id: Text | None = Field(
        default=None,
        description="Left out: any matching reservation that machines take without naming it (Google: automatic; AWS: "
        "open). Azure has none.",
        examples=["cr-0123456789abcdef0", "capacity-block:cr-0123456789abcdef0"],
    )
    region: Text
    zone: Text | None = None
    instance_type: Text
    placement_group: Text | None = Field(
        default=None,
        description="The placement group (aws), or the placement policy (gcp), that it was made in. Left out: its "
        "machines are in none.",
    )


class ReadEntry(Spec):
    """A bucket or a registry that machines may read."""

    bucket: Text | None = Field(default=None, description="Its name; azure: the resource id of the container.")
    registry: Text | None = Field(
        default=None,
        description="aws: ARN of a repository; gcp: projects/P/locations/L/repositories/NAME; azure: resource id.",
        examples=["arn:aws:ecr:eu-west-1:123456789012:repository/train"],
    )
    team: Text | None = Field(default=None, description="Machines of this team alone; left out: of every team.")

    @model_validator(mode="after")
    def _check_one(self) -> ReadEntry:
        if (self.bucket is None) == (self.registry is None):
            raise RefusedError("needs either bucket or registry", "write one of them; several entries are a list")
        return self


class HostEntry(Spec):
    """Settings for logging in to one host of one's own."""

    port: Count = 22
    user: Text = "root"
    host_key: PublicKey | None = Field(default=None, description="Its public key; without one any key is accepted.")
    private_address: Text | None = Field(default=None, description="Address by which the other hosts reach it.")


# Tags of the program's own: an organisation's may not have these names (router/controller/workspace/workspaces.py).
_OWN_TAGS = ("team", "project", "cost_center")
OWN_TAGS_AT_MOST = 7


def check_own_tags(value: dict[str, str], beside: int = 0) -> dict[str, str]:
    """Return an organisation's tags.

    RefusedError where a cloud refuses them, with ``beside`` others, or we write one of that name.
    """
    try:
        check_tags({**value, **{f"own{number}": "" for number in range(beside)}})
    except ValueError as error:
        raise RefusedError(str(error), "write e.g. `{owner: ml-platform}`") from None
    for name in value:
        if name in _OWN_TAGS or name.startswith("stepfare_"):
            raise RefusedError("is a tag that stepfare writes itself", "choose another name", at=(name,))
    return value


Tags = Annotated[dict[Text, Text], AfterValidator(lambda value: check_own_tags(value))]


class CloudDeploy(Spec):
    """Settings of machines in one cloud. What is left out is made, or the cloud's own default."""

    image: Text | None = Field(
        default=None,
        description="Own image with driver and Docker (azure: id or PUBLISHER:OFFER:SKU:VERSION); left out: the "
        "documented one.",
    )
    zone: Text | None = Field(default=None, description="As below `regions`, where it mostly belongs.")
    network: NetworkEntry | None = None
    disk_gib: Annotated[Count, Field(ge=10, le=2048)] = 200
    checkpoint_bucket: Text | None = Field(default=None, description="Bucket that the machines may read and write.")
    reads: tuple[ReadEntry, ...] = Field(
        default=(), description="Buckets with data and registries with images that the machines may read."
    )
    permissions_boundary: Text | None = Field(
        default=None, description="aws: ARN of the policy that bounds the role made for these (docs/accounts.md)."
    )
    instance_profile: Text | None = Field(
        default=None, description="aws: name of an existing instance profile; then no role is made."
    )
    end_role: Text | None = Field(
        default=None,
        description="azure: id of a role that may deallocate machines; without one, machines that end by themselves "
        "are switched off and billed on (docs/accounts.md).",
    )
    checkpoint_url: StoreUrl | None = Field(
        default=None,
        description="Where checkpoints are stored, each below its job's name; by region, so that they are near.",
        examples=["s3://example-checkpoints-us-east-1/stepfare"],
    )
    data_url: StoreUrl | None = Field(
        default=None,
        description="Where copies of data are stored, for jobs with `data.mode: copy`; by region, so that they are "
        "near. Left out: nothing is copied.",
        examples=["s3://example-data-us-east-1/stepfare"],
    )
    ssh_public_key: PublicKey | None = None
    tags: Tags = Field(default_factory=dict, description="Tags of what is made in this cloud, beside those for all.")
    local_nvme: Annotated[Text, AfterValidator(_check_folder)] | None = Field(
        default=None, description="Where to mount the machine's own disks.", examples=["/mnt/scratch"]
    )
    reservations: tuple[ReservedEntry, ...] = ()
    regions: dict[Text, RegionEntry] = Field(default_factory=dict)
    hosts: dict[Text, HostEntry] = Field(default_factory=dict, description="static: hosts by address.")
    interruption_queue: Annotated[Text, AfterValidator(_check_queue_url)] | None = Field(
        default=None,
        description="aws: URL of an SQS queue, for this state alone, that EventBridge feeds (docs/accounts.md).",
        examples=["https://sqs.us-east-1.amazonaws.com/123456789012/stepfare-notices"],
    )
    private_key_path: Annotated[Text, AfterValidator(_check_absolute_path)] | None = Field(
        default=None, description="static: file of the private key to log in with."
    )

    @model_validator(mode="after")
    def _check_hosts(self) -> CloudDeploy:
        for address, host in self.hosts.items():
            try:
                Host(address, host.port, host.user, host.host_key, host.private_address)
            except ValueError as error:
                raise RefusedError(str(error), "write ADDRESS: {port: 22, user: root}", at=("hosts", address)) from None
        return self

    @property
    def queues(self) -> dict[str, str]:
        """The URLs of queues of interruptions, by region; "" is for all."""
        urls = {
            "": self.interruption_queue,
            **{name: region.interruption_queue for name, region in self.regions.items()},
        }
        return {region: url for region, url in urls.items() if url is not None}

    def store_of(self, job: str) -> str | None:
        """Return the URL below which the checkpoints of a job are stored; None where the training says that itself."""
        return None if self.checkpoint_url is None else join_store_url(self.checkpoint_url, job)

    def readable(self, team: str) -> ReadableSpec:
        """Return the buckets and registries that machines of a team may read."""
        allowed = [entry for entry in self.reads if entry.team in (None, team)]
        buckets = dict.fromkeys(entry.bucket for entry in allowed if entry.bucket is not None)
        registries = dict.fromkeys(entry.registry for entry in allowed if entry.registry is not None)
        return ReadableSpec(tuple(buckets), tuple(registries))

    def data_store_of(self, uri: str) -> str | None:
        """Return the URL below which the data of that URI are copied; None where nothing is copied."""
        if self.data_url is None:
            return None
        last = re.sub(r"[^A-Za-z0-9._-]+", "-", uri.partition("?")[0].rstrip("/").rpartition("/")[2]).strip(".-")
        digest = hashlib.sha256(uri.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        return join_store_url(self.data_url, f"{last[:_NAME_CHARACTERS]}-{digest}".lstrip("-"))

    def in_region(self, region: str) -> CloudDeploy:
        """Return the settings with those of the region in place of those for all."""
        overrides = self.regions.get(region)
        if overrides is None:
            return self
        return self.model_copy(
            update={name: value for name in RegionEntry.model_fields if (value := getattr(overrides, name)) is not None}
        )
