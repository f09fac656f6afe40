"""Settings of the deploy file: provisioning in each cloud, the coordinator's address, Terraform's state."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from pricing.places import NOTICE_QUEUE_CLOUDS, PROVISIONABLE_CLOUDS
from router.agent.protocol import LOOPBACK
from router.deploy.cloud_settings import OWN_TAGS_AT_MOST, CloudDeploy, Tags, check_own_tags
from router.deploy.console_settings import ConsoleEntry, WebhookEntry
from router.deploy.notify_settings import NotifyEntry, Reference, split_url
from router.jobs.fields import Count, Flag, Number, RefusedError, Spec, Text, as_many, show_value, suggest
from router.jobs.quantities import Duration
from router.jobs.standstill import Standstill
from router.spot.policies import QUOTED_RULE, Rule
from terraform.spec import Backend

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


def _refuse_password(value: str) -> str:
    if ":" in value.partition("://")[2].partition("/")[0].rpartition("@")[0]:
        raise RefusedError("holds a password", "leave it to PGPASSWORD or ~/.pgpass")
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
            parts = split_url(self.url, _URL, at=("url",))
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise RefusedError("is not the URL of a service", _URL, at=("url",))
            if parts.username is not None or parts.query or parts.fragment:
                raise RefusedError("holds more than address and path", _URL, at=("url",))
            if parts.scheme == "http" and parts.hostname not in LOOPBACK:
                raise RefusedError("would send tokens in the clear", "use https://", at=("url",))
        return self

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0]

    @property
    def port(self) -> int:
        """The port to listen on; 0: any."""
        return int(self.listen.rpartition(":")[2])


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
        description="A machine that waits for its agent, or whose training is over, ends when no coordinator answers "
        "it for so long.",
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
        description="Whether each machine is checked before its gang meets (GPUs, driver, containers, fabric, disk, "
        "clock, reach of checkpoint store and data), and a short all-reduce over the gang measured, which should give "
        "half of what the plan assumes: what is wrong is said, or (`require`) the gang is given back and tried "
        "elsewhere. In the sandbox only where it is stated.",
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
                check_own_tags(self.tags_of(team, cloud), beside=OWN_TAGS_AT_MOST)
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
