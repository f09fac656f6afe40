"""Settings of the deploy file: provisioning in each cloud, the coordinator's address, Terraform's state."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from pricing.places import NOTICE_QUEUE_CLOUDS, PROVISIONABLE_CLOUDS
from router.agent.protocol import LOOPBACK
from router.checkpoints.arrow_store import S3_WORDS
from router.deploy.console_settings import ConsoleEntry, WebhookEntry
from router.deploy.notify_settings import NotifyEntry, Reference
from router.jobs.fields import Count, Flag, Number, RefusedError, Spec, Text, as_many, show_value, suggest
from router.jobs.quantities import Duration
from router.jobs.standstill import Standstill
from router.spot.policies.rules import QUOTED_RULE, Rule
from terraform.spec import Backend, Host, ReadableSpec, check_tags

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
    """Return the URL of that name below another URL."""
    path, mark, query = url.partition("?")
    return f"{path}/{name}{mark}{query}"


# Every team may name these variables: whoever applies exported them for jobs.
JOB_VARIABLE_PREFIX = "STEPFARE_JOB_"

_LONGEST = timedelta(days=30)
# The limit that a cloud itself puts to a machine's life: a day at least, and no more than any cloud takes.
_LEAST_LIMIT_S, _MOST_LIMIT_S = timedelta(days=1).total_seconds(), timedelta(days=120).total_seconds()


class SecretsEntry(Spec):
    """Secrets that job files of one team may refer to, beside variables that begin with ``STEPFARE_JOB_``."""

    env: Annotated[tuple[Annotated[Text, AfterValidator(_check_variable)], ...], BeforeValidator(as_many)] = Field(
        default=(), description="Variables; a * at the end stands for any rest.", examples=[["HF_TOKEN", "RESEARCH_*"]]
    )
    files: Annotated[tuple[Annotated[Text, AfterValidator(_check_path)], ...], BeforeValidator(as_many)] = Field(
        default=(),
        description="Files, and folders with all that is below them.",
        examples=[["/etc/stepfare/secrets/research"]],
    )

    def allows_variable(self, name: str) -> bool:
        """Return whether a job may refer to the variable."""
        if name.startswith(JOB_VARIABLE_PREFIX):
            return True
        return any(
            name.startswith(known.removesuffix("*")) if known.endswith("*") else name == known for known in self.env
        )


def _check_wait(value: timedelta) -> timedelta:
    if not timedelta(0) < value <= _LONGEST:
        raise RefusedError("is no time to wait: more than 0, at most 30 days", "write a duration such as 15m")
    return value


Wait = Annotated[Duration, AfterValidator(_check_wait)]


def _check_folder(value: str) -> str:
    if not re.fullmatch(r"/[\w./-]+", value):
        raise RefusedError("is no absolute path of letters, digits and ._-", "write /mnt/scratch")
    return value


def _check_public_key(value: str) -> str:
    # The value is not shown: somebody may have given the private key.
    if not re.fullmatch(r"(?:ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+(?: .*)?", value):
        raise RefusedError("is not one line of a public key", "write it as in id_ed25519.pub: ssh-ed25519 AAAA... name")
    return value


def _refuse_password(value: str) -> str:
    if ":" in value.partition("://")[2].partition("/")[0].rpartition("@")[0]:
        raise RefusedError("holds a password", "leave it to PGPASSWORD or ~/.pgpass")
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


_URL = "write https://stepfare.example.com:7433"


class CoordinatorEntry(Spec):
    """The address where the machines of a gang call home (docs/design/agent-and-coordinator.md)."""

    listen: Text = Field(
        default="127.0.0.1:0",
        description="Address and port to listen on; port 0: a free one, the same each time.",
        examples=["0.0.0.0:7433"],
    )
    url: Text | None = Field(
        default=None,
        description="URL by which machines reach it; left out: only those on this machine can.",
        examples=["https://stepfare.example.com:7433"],
    )
    certificate: Text | None = Field(default=None, description="PEM file; without one the service speaks plain http.")
    key: Text | None = Field(default=None, description="PEM file of the certificate's key.")
    ca: Text | None = Field(default=None, description="PEM file of the authority that machines must trust.")
    metrics_token: Reference | None = Field(
        default=None,
        description="Token that a Prometheus server must send; left out: only one on this machine is answered.",
        examples=["env:STEPFARE_METRICS_TOKEN"],
    )

    @field_validator("listen")
    @classmethod
    def _check_address(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
            raise RefusedError("is no address with a port", "write 127.0.0.1:7433")
        return value

    @model_validator(mode="after")
    def _check_transport(self) -> CoordinatorEntry:
        if (self.certificate is None) != (self.key is None):
            raise RefusedError("a certificate and its key belong together", "give both, or none", at=("certificate",))
        if self.url is not None:
            try:
                parts = urlsplit(self.url)
                _ = parts.port
            except ValueError:
                raise RefusedError("is no URL", _URL, at=("url",)) from None
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise RefusedError("is not the URL of a service", _URL, at=("url",))
            if parts.username is not None or parts.query or parts.fragment:
                raise RefusedError("holds more than address and path", _URL, at=("url",))
            if parts.scheme == "http" and parts.hostname not in LOOPBACK:
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
_OWN_TAGS_AT_MOST = 7


def _check_tags(value: dict[str, str], beside: int = 0) -> dict[str, str]:
    try:
        check_tags({**value, **{f"own{number}": "" for number in range(beside)}})
    except ValueError as error:
        raise RefusedError(str(error), "write e.g. `{owner: ml-platform}`") from None
    for name in value:
        if name in _OWN_TAGS or name.startswith("stepfare_"):
            raise RefusedError("is a tag that stepfare writes itself", "choose another name", at=(name,))
    return value


Tags = Annotated[dict[Text, Text], AfterValidator(lambda value: _check_tags(value))]


class CloudDeploy(Spec):
    """Settings of machines in one cloud. What is left out is made, or the cloud's own default."""

    image: Text | None = Field(
        default=None,
        description="Machine image of one's own, with driver, Docker and toolkit; left out: the documented one of each "
        "machine type.",
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


class BackendEntry(Spec):
    """The place where Terraform keeps its states; credentials by the environment only."""

    kind: Text = Field(default="local", examples=["s3"])
    settings: dict[Text, Text | Flag] = Field(
        default_factory=dict, examples=[{"bucket": "states", "key": "stepfare/{attempt}", "use_lockfile": True}]
    )

    @model_validator(mode="after")
    def _check_backend(self) -> BackendEntry:
        try:
            Backend(self.kind, self.settings)
        except ValueError as error:
            what = str(error).removeprefix("backend ")
            raise RefusedError(what, "see https://developer.hashicorp.com/terraform/language/backend") from None
        return self


class Timeouts(Spec):
    """Timeouts of the controller."""

    apply: Wait = Field(default=timedelta(minutes=30), description="How long Terraform may take to make a gang.")
    destroy: Wait = Field(default=timedelta(minutes=30), description="How long Terraform may take to release a gang.")
    rendezvous: Wait = Field(
        default=timedelta(minutes=15),
        description="How long to wait for all ranks to call home.",
    )
    checkpoint_copy: Wait = Field(
        default=timedelta(minutes=15),
        description="How long to copy a checkpoint to where its job resumes; then it is read across regions.",
    )
    data_copy: Wait = Field(
        default=timedelta(hours=6),
        description="How long to copy a job's data to `data_url` before its machines are made; then they are read "
        "where they lie.",
    )
    lost: Wait = Field(
        default=timedelta(minutes=5), description="A machine that does not report for this long is lost."
    )
    shortage: Duration = Field(
        default=timedelta(hours=1), description="How long a pool counts as short after a refusal."
    )
    quarantine: Duration = Field(
        default=timedelta(minutes=10),
        description="How long a pool is avoided after an interruption or a loss; doubles with each repeat. "
        "Under policy foresight it never doubles, and replaces `shortage` too.",
    )
    retry_for: Duration = Field(
        default=timedelta(days=1),
        description="How long to retry a job that lost its machines.",
    )
    tries: Count = Field(default=20, description="Give up a job after this many gangs in a row that saved nothing.")
    max_crashes: Count = Field(
        default=3,
        description="Give up a job after this many crashes of the training in a row that saved nothing.",
    )
    start_early: Duration = Field(
        default=timedelta(0),
        description="Make a gang this long before its start; costs more than was planned.",
    )


class Lifetime(Spec):
    """How long machines last that nobody looks after any more."""

    unheard: Wait = Field(
        default=timedelta(minutes=30),
        description="A machine ends so long after its training did, unless the coordinator answers it meanwhile.",
    )
    plan_times: Annotated[Number, Field(ge=1, le=100)] = Field(
        default=2.0,
        description="A training that no coordinator answers for `unheard` saves and ends, and its machine with it, "
        "once it took so many times the planned time.",
    )

    def seconds(self, planned: timedelta) -> float:
        """Return how long a machine lasts whose gang was planned for so long, in seconds, unless it is heard."""
        return max(self.plan_times * planned, self.unheard).total_seconds()

    def most_seconds(self, planned: timedelta) -> int:
        """Return how long the cloud itself lets it last, heard or not: a watched gang is moved before."""
        return round(min(max(2 * self.seconds(planned), _LEAST_LIMIT_S), _MOST_LIMIT_S))


class Deploy(Spec):
    """The deploy file; everything is optional."""

    state: Annotated[Text, AfterValidator(_refuse_password)] | None = Field(
        default=None,
        description="URL of the state database; left out: a file in STEPFARE_HOME.",
        examples=["postgresql://stepfare@db.example.com/stepfare"],
    )
    engine: Text | None = Field(
        default=None,
        description="Path of terraform or tofu; left out: the one on the PATH, else the one installed by pip.",
    )
    backend: BackendEntry = BackendEntry()
    coordinator: CoordinatorEntry = CoordinatorEntry()
    preflight: Literal["off", "warn", "require"] = Field(
        default="warn",
        description="Whether each machine is checked before its gang meets (GPUs, driver, containers, disk, clock, the "
        "checkpoint store): what is wrong is said, or (`require`) the gang is given back and tried elsewhere.",
    )
    heed_hints: Flag = Field(
        default=True, description="Whether gangs move when a cloud only hints that it may preempt a machine."
    )
    policy: Rule = Field(
        default=QUOTED_RULE,
        description="Policy that chooses spot, on-demand or waiting for jobs with a deadline: docs/policies.md. Left "
        "out: the policy that quotes are made for. A job keeps the policy that it was started with.",
    )
    parallel: Annotated[Count, Field(le=64)] = Field(
        default=4, description="The most gangs that are made at the same time."
    )
    plugin_cache: Text | None = Field(
        default=None, description="Folder in which providers are cached; left out: `plugins` in STEPFARE_HOME."
    )
    plugin_mirror: Text | None = Field(default=None, description="The only folder to take providers from.")
    data_keep: Duration = Field(
        default=timedelta(days=30),
        description="How long a copy of data counts after the planned end of the last gang that used it "
        "(`stepfare data list`).",
    )
    pass_environment: Annotated[tuple[Text, ...], BeforeValidator(as_many)] = Field(
        default=(), description="Variables that Terraform gets in addition to those that the clouds' own tools read."
    )
    tags: Tags = Field(
        default_factory=dict,
        description="Tags of the organisation, on everything that can carry them. A cloud's go before a team's.",
        examples=[{"owner": "ml-platform"}],
    )
    team_tags: dict[Text, Tags] = Field(
        default_factory=dict,
        description="By team: tags of what its jobs use.",
        examples=[{"research": {"billing-code": "R-42"}}],
    )
    secrets: dict[Text, SecretsEntry] = Field(
        default_factory=dict,
        description="By team: secrets that its job files may refer to with secret:env:NAME and secret:file:PATH.",
        examples=[{"research": {"env": ["HF_TOKEN"], "files": ["/etc/stepfare/secrets/research"]}}],
    )
    approval_rules: Text | None = Field(
        default=None,
        description="Absolute path of the rules of approvals where the state has none (docs/guides/platform-team.md). "
        "Whoever applies must not be able to change that file, or this one.",
        examples=["/etc/stepfare/approval.yaml"],
    )
    timeouts: Timeouts = Timeouts()
    standstill: Standstill = Standstill()
    lifetime: Lifetime = Lifetime()
    notify: NotifyEntry = NotifyEntry()
    console: ConsoleEntry = ConsoleEntry()
    webhooks: tuple[WebhookEntry, ...] = Field(
        default=(), description="Programs that `stepfare serve` tells of events, by signed requests (docs/console.md)."
    )
    clouds: dict[str, CloudDeploy] = Field(default_factory=dict)

    @field_validator("approval_rules")
    @classmethod
    def _check_approval_rules(cls, value: str | None) -> str | None:
        if value is not None and not Path(value).is_absolute():
            raise RefusedError("is no absolute path", "write e.g. /etc/stepfare/approval.yaml")
        return value

    @field_validator("policy", mode="before")
    @classmethod
    def _check_policy(cls, value: Any) -> Any:
        names = [rule.value for rule in Rule]
        if isinstance(value, str) and value not in names:
            raise RefusedError("is no policy", suggest(value, names))
        return value

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_sections(cls, value: Any) -> Any:
        """Drop empty sections: ``coordinator:`` with nothing after it is the same as not writing it."""
        if not isinstance(value, dict):
            return value
        return {k: item for k, item in value.items() if item is not None}

    @field_validator("clouds", mode="before")
    @classmethod
    def _check_clouds(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise RefusedError(f"{show_value(value)} is not a mapping of clouds", "write e.g. `clouds: {aws: {}}`")
        for name in value:
            if name not in PROVISIONABLE_CLOUDS:
                raise RefusedError(
                    "no machines can be made there", suggest(name, PROVISIONABLE_CLOUDS), at=(str(name),)
                )
        return {name: entry if entry is not None else {} for name, entry in value.items()}

    @model_validator(mode="after")
    def _check_queues(self) -> Deploy:
        for name, entry in self.clouds.items():
            if entry.queues and name not in NOTICE_QUEUE_CLOUDS:
                those = ", ".join(sorted(NOTICE_QUEUE_CLOUDS))
                raise RefusedError(f"only {those} has queues of interruptions", "remove it", at=("clouds", name))
        return self

    @model_validator(mode="after")
    def _check_all_tags(self) -> Deploy:
        for team in ("", *self.team_tags):
            for cloud in ("", *self.clouds):
                _check_tags(self.tags_of(team, cloud), beside=_OWN_TAGS_AT_MOST)
        return self

    @property
    def names_policy(self) -> bool:
        """True if the file names a policy; else the default stands."""
        return "policy" in self.model_fields_set

    def stores_of(self, job: str) -> set[str]:
        """Return where the checkpoints of a job are stored, in whatever cloud and region."""
        entries = [entry for cloud in self.clouds.values() for entry in map(cloud.in_region, ("", *cloud.regions))]
        return {store for entry in entries if (store := entry.store_of(job)) is not None}

    def secrets_of(self, team: str) -> SecretsEntry:
        """Return the secrets that job files of the team may refer to."""
        return self.secrets.get(team, SecretsEntry())

    def tags_of(self, team: str, cloud: str) -> dict[str, str]:
        """Return the organisation's tags for the jobs of a team in a cloud."""
        own = self.clouds[cloud].tags if cloud in self.clouds else {}
        return {**self.tags, **self.team_tags.get(team, {}), **own}

    def cloud(self, name: str, region: str) -> CloudDeploy:
        """Return the settings of a cloud and region; the defaults where nothing is written."""
        return self.clouds.get(name, CloudDeploy()).in_region(region)


def _check_variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", value):
        raise RefusedError("is no name of a variable", "write HF_TOKEN, or RESEARCH_* for all that begin so")
    return value


def _check_path(value: str) -> str:
    if not re.match(r"(?:~?/)[^\0]*[^/\0]", value):
        raise RefusedError("is no absolute path below the root", "write a file or folder: /etc/stepfare/secrets")
    return value
