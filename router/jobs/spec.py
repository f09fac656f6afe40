"""Define the job: what a team wants trained, by when, with which machines, and where it may run. Frozen."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pricing.money import UsdPerHour
from pricing.places import Market, RegionId
from router.jobs.checkpoint_size import with_estimated_size
from router.jobs.fields import (
    Count,
    Flag,
    Number,
    Pairs,
    Positive,
    RefusedError,
    Spec,
    Tally,
    Text,
    Whole,
    as_many,
    as_number,
    parse_name,
    show_value,
)
from router.jobs.gang import Gang
from router.jobs.quantities import (
    Dollars,
    DollarsPerHour,
    Duration,
    Gib,
    GibPerSecond,
    Instant,
    Moment,
    RegionName,
    UtcTime,
    format_duration,
    parse_duration,
    parse_gib,
    parse_usd,
)
from router.jobs.residency import Residency
from router.jobs.standstill import Standstill
from router.jobs.workload import Workload


class MixedPart(Spec):
    """The machines of the second type in a gang of two types, by their accelerators."""

    instance_type: Text
    accelerators: Count


class Placement(Spec):
    """The place where a job runs at this moment, on how many accelerators in all."""

    cloud: Text
    region: Text
    zone: Text | None = None
    instance_type: Text
    market: Market
    accelerators: Count
    since: UtcTime | None = None
    mixed_with: MixedPart | None = Field(
        default=None,
        description="Of a gang of two machine types: the other type, and how many of the `accelerators` it has.",
    )

    @model_validator(mode="after")
    def _two_types(self) -> Placement:
        other = self.mixed_with
        if other is not None and other.instance_type == self.instance_type:
            raise RefusedError(
                f"{other.instance_type} is the type that it is mixed with",
                "name the other type, or leave mixed_with out",
                at=("mixed_with", "instance_type"),
            )
        if other is not None and other.accelerators >= self.accelerators:
            raise RefusedError(
                f"{other.accelerators} accelerators of {self.accelerators} leave none of {self.instance_type}",
                "`accelerators` above counts those of both types",
                at=("mixed_with", "accelerators"),
            )
        return self

    @property
    def accelerators_by_type(self) -> Mapping[str, int]:
        """Return the accelerators of each machine type, the first one first."""
        other = self.mixed_with
        if other is None:
            return {self.instance_type: self.accelerators}
        return {self.instance_type: self.accelerators - other.accelerators, other.instance_type: other.accelerators}

    @property
    def region_id(self) -> RegionId:
        return RegionId(self.cloud, self.region)


class Status(Spec):
    """The progress of a job: steps done, where it runs, and where its checkpoint and data lie."""

    steps_done: Tally = 0
    running: Placement | None = None
    checkpoint_in: RegionName | None = None
    data_in: Annotated[tuple[RegionName, ...], BeforeValidator(as_many)] = ()


class MarketRule(Spec):
    """The rule on spot machines. SkyPilot's ``use_spot: true`` is ``only``, false is ``never``."""

    words: ClassVar[frozenset[str]] = frozenset({"use_spot"})
    spot: Literal["allowed", "never", "only"] = "allowed"

    @model_validator(mode="before")
    @classmethod
    def _from_use_spot(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "use_spot" not in value:
            return value
        value = dict(value)
        use_spot = value.pop("use_spot")
        if "spot" in value:
            raise RefusedError("spot and use_spot are both given", "keep `spot: allowed|never|only`", at=("use_spot",))
        return {**value, "spot": _spot_of(use_spot)}


def _spot_of(use_spot: object) -> str:
    if not isinstance(use_spot, bool):
        raise RefusedError(f"{show_value(use_spot)} is neither true nor false", "write true or false", at=("use_spot",))
    return "only" if use_spot else "never"


_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
#: The bounds of a job's ``confidence``.
LEAST_CONFIDENCE: Final = 0.5
MOST_CONFIDENCE: Final = 0.999
_SHOWN: Final = 5e-4  # half of the last digit shown: what reads as the confidence that a job asks is as sure
_MOST_AN_HOUR: Final = 60
_MOST_RETRIES: Final = 1000
_MOST_LOST: Final = 0.9  # share of the running time that interruptions may repeat


def is_less_sure(probability: float | None, confidence: float) -> bool:
    """Return whether a job's probability to be on time is below its confidence; not where it has no deadline."""
    return probability is not None and probability < confidence - _SHOWN


def _most(longest: timedelta) -> Callable[[timedelta | None], timedelta | None]:
    def check(value: timedelta | None) -> timedelta | None:
        if value is not None and value > longest:
            raise RefusedError(
                f"{format_duration(value)} is too long", f"write at most {format_duration(longest)}, as measured"
            )
        return value

    return check


def _interval(value: object) -> timedelta | None:
    if value is None or value == "auto":
        return None
    interval = parse_duration(value)
    if not interval:
        raise RefusedError("an interval of zero saves without end", "write a duration such as 30m, or auto")
    return interval


class Checkpoint(Spec):
    """The size, speed and interval of checkpoints. ``interval`` None is the best one for each candidate.

    A job with a ``transformer`` may leave out ``size_gib``: it is estimated from the parameters, the sharding and
    ``optimizer``, and enters the job as a number.
    """

    words: ClassVar[frozenset[str]] = frozenset({"optimizer"})
    size_gib: Annotated[Gib, Field(ge=0)]
    write_gib_per_s: Annotated[GibPerSecond, Field(gt=0)] = 1.0
    interval: Annotated[Duration | None, BeforeValidator(_interval)] = Field(
        default=None, description="`auto`, or fixed.", examples=["auto", "30m"]
    )
    asynchronous: Flag = Field(default=False, description="Whether training goes on while it is written.")
    stall: Annotated[Duration | None, AfterValidator(_most(_HOUR))] = Field(
        default=None,
        description="How long the training stands still at an asynchronous one; else not at all. At most an hour.",
        examples=["40s"],
    )

    @model_validator(mode="after")
    def _stalls_beside_the_training(self) -> Checkpoint:
        if self.stall is not None and not self.asynchronous:
            raise RefusedError(
                "a synchronous checkpoint stops the training while it is written, size_gib / write_gib_per_s",
                "state write_gib_per_s as measured, or add `asynchronous: true`",
                at=("stall",),
            )
        return self


def _rate(value: object) -> float:
    rate = as_number(value)
    if not 0 < rate <= _MOST_AN_HOUR:
        raise RefusedError(
            f"{show_value(value)} is no rate of interruptions",
            f"write how often in an hour, above 0 and at most {_MOST_AN_HOUR}, e.g. 0.02",
        )
    return rate


class Interruptions(Spec):
    """The interruptions of a job as its owner knows them. What is left out is modelled."""

    per_hour: Annotated[float, BeforeValidator(_rate)] | None = Field(
        default=None,
        description="How often a gang with spot machines is interrupted in an hour; else by its pool.",
        examples=[0.02],
    )
    lost_work: Annotated[Duration | None, AfterValidator(_most(_DAY))] = Field(
        default=None,
        description="Training lost at each, as where one is saved on notice; else by the interval. At most a day.",
        examples=["5m"],
    )
    restart: Annotated[Duration | None, AfterValidator(_most(_DAY))] = Field(
        default=None,
        description="Billed after each, until it trains again; else `startup`. At most a day, the usual horizon.",
        examples=["12m"],
    )

    @model_validator(mode="after")
    def _leaves_progress(self) -> Interruptions:
        if self.per_hour is None and self.lost_work is None and self.restart is None:
            raise RefusedError("states nothing", "give per_hour, lost_work or restart, or leave it out")
        if self.per_hour is not None and self.lost_work is not None:
            lost = self.per_hour * (self.lost_work / timedelta(hours=1))
            if lost > _MOST_LOST:
                each = format_duration(self.lost_work)
                raise RefusedError(
                    f"losing {each} {self.per_hour:g} times an hour repeats {lost:.0%} of the work",
                    f"at most {_MOST_LOST:.0%}: check both figures",
                    at=("lost_work",),
                )
        return self


class EgressCap(Spec):
    """The most that moving the data may take."""

    gib: Annotated[Gib, Field(ge=0)] | None = None
    usd: Dollars | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_one_value(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"usd": parse_usd(value)} if value.strip().startswith("$") else {"gib": parse_gib(value)}
        if isinstance(value, (int, float)):
            raise RefusedError(f"{show_value(value)} has no unit", f"write {value} GiB, ${value}, or {{gib: {value}}}")
        return value

    @model_validator(mode="after")
    def _something(self) -> EgressCap:
        if self.gib is None and self.usd is None:
            raise RefusedError("caps nothing", "give gib, usd or both")
        return self


class Data(Spec):
    """The training data: where they lie, how much, and whether they are copied first or streamed."""

    uri: Text = Field(examples=["s3://corpus/tokens"])
    at: RegionName = Field(description="The region in which they lie.")
    gib: Annotated[Gib, Field(ge=0)]
    mode: Literal["copy", "stream"] = "copy"
    passes: Positive = Field(default=1.0, description="When streamed: how often they are read over all steps.")
    egress_cap: EgressCap | None = None


class Code(Spec):
    """The source of the job's code.

    It is a git repository at a commit, tag or branch, or an archive with its digest.
    """

    git: Text | None = Field(default=None, examples=["https://git.example.com/team/train.git"])
    ref: Text | None = Field(default=None, description="git: commit, tag or branch.")
    archive: Text | None = Field(default=None, description="https or file URL of a tar or zip file.")
    sha256: Text | None = Field(default=None, description="archive: its digest, in hex.")

    @model_validator(mode="after")
    def _one_source(self) -> Code:
        if (self.git is None) == (self.archive is None):
            raise RefusedError("needs either git or archive", "write `git:` with `ref:`, or `archive:` with `sha256:`")
        if (self.git is None) != (self.ref is None):
            raise RefusedError("git and ref belong together", "add `ref:`, best a commit", at=("ref",))
        if (self.archive is None) != (self.sha256 is None):
            raise RefusedError("archive and sha256 belong together", "see `sha256sum FILE`", at=("sha256",))
        if self.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise RefusedError("is no SHA-256 in lower-case hex", "see `sha256sum FILE`", at=("sha256",))
        if self.archive is not None and not re.match(r"(?:https?|file)://", self.archive):
            raise RefusedError("is no https or file URL", "write https://HOST/FILE.tar.gz", at=("archive",))
        for name in ("git", "archive"):
            if not re.fullmatch(r"(?!-)(?:[^\s\[\]]|\[[0-9A-Fa-f:.]+\])+", getattr(self, name) or "x"):
                raise RefusedError("is no address", "write https://HOST/PATH, without spaces", at=(name,))
        if self.git is not None and re.match(r"(?:[^/]*:)?//[^/]*:[^/]*@", self.git):
            raise RefusedError("holds a password", "give git a credential through `run.env`", at=("git",))
        if self.ref is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", self.ref):
            raise RefusedError("is no commit, tag or branch", "write a name such as v1.2, or a commit", at=("ref",))
        return self


# Values of ``run.env`` with these prefixes refer to secrets of the user who applies the plan.
SECRET_FROM_ENVIRONMENT, SECRET_FROM_FILE = "secret:env:", "secret:file:"
_REFERENCES = (SECRET_FROM_ENVIRONMENT, SECRET_FROM_FILE)


class Run(Spec):
    """The command that is started on the machines.

    Values of ``env`` never enter a plan or a digest; a secret one is written ``secret:env:NAME`` or
    ``secret:file:PATH`` and read when the plan is applied. Such a reference is no value: it enters the digest, and
    ``apply`` shows it.
    """

    image: Text | None = Field(
        default=None,
        description="Container image. A private one is pulled as the machine's own identity, or with the secrets "
        "STEPFARE_REGISTRY_USERNAME and STEPFARE_REGISTRY_PASSWORD of `env`.",
        examples=["nvcr.io/nvidia/pytorch:26.03-py3"],
    )
    code: Code | None = None
    workdir: str | None = Field(default=None, description="Folder of the command, seen from the code's.")
    command: str = Field(min_length=1)
    env: Pairs = Field(default=(), repr=False)
    engine: Literal["torchrun", "ray", "slurm", "command"] = "torchrun"

    @model_validator(mode="after")
    def _names_of_variables(self) -> Run:
        for name, _ in self.env:
            if not re.fullmatch(r"[^\s=\0]+", name):
                raise RefusedError(
                    f"{show_value(name)} is no name of a variable", "write NAME: value", at=("env", name)
                )
        return self

    @property
    def references(self) -> tuple[tuple[str, str], ...]:
        """Return the variables whose values are secrets, each with the job's reference to its secret."""
        return tuple((name, value) for name, value in self.env if value.startswith(_REFERENCES))


# Words of names that hold secrets, and nothing else after them: TOKENIZERS_PARALLELISM and MAX_TOKENS are none.
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)$", re.IGNORECASE
)
_SECRET_SHAPE = re.compile(
    r"(?:AKIA|ASIA)[0-9A-Z]{16}\b"  # AWS
    r"|AIza[\w-]{35}|ya29\.[\w-]{20}"  # Google
    r"|gh[pousr]_\w{30}|github_pat_\w{30}|glpat-[\w-]{20}"  # GitHub, GitLab
    r"|hf_[A-Za-z0-9]{30}|sk-[\w-]{20}|xox[abprs]-[\w-]{10}"  # Hugging Face, OpenAI and others, Slack
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|\w+://[^/\s:@]+:[^/\s@]+@"  # a key in PEM, a password in a URL
)


def find_literal_secrets(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the names of the variables whose value looks like a secret, and is no reference to one.

    The list is short on purpose, and the help of `stepfare validate` names it: it warns, and proves nothing.
    """
    for name, value in pairs:
        # A path is where a secret lies, not the secret.
        is_named = _SECRET_NAME.search(name) and not value.startswith(("/", "~"))
        if value and not value.startswith(_REFERENCES) and (is_named or _SECRET_SHAPE.search(value)):
            yield name


def _above_zero(value: UsdPerHour | None) -> UsdPerHour | None:
    if value is not None and not value.nanos:
        raise RefusedError("no machine costs nothing", "write dollars an accelerator-hour, e.g. 2.50, or leave it out")
    return value


# What limits a job's speed; it rules out where the job would be slow (design note costs-and-estimates).
PlacementRule = Literal["communication", "memory", "data", "compute", "none"]


def _always_after(start: Moment | None, end: Moment | None) -> bool:
    """Return whether the start is not before the end whenever planning happens; False where that depends on it."""
    if start is None or end is None:
        return False
    if start.relative is not None and end.relative is not None:
        return start.relative >= end.relative
    return start.absolute is not None and end.absolute is not None and start.absolute >= end.absolute


class Job(Spec):
    """One job. Times relative to planning are stored as relative until it is planned.

    Without ``checkpoint`` it cannot resume: it runs in one piece or starts over. Without ``deadline`` it must start
    within ``max_wait``. ``startup`` is billed: boot, restore, warm-up.
    """

    words: ClassVar[frozenset[str]] = frozenset({"use_spot"})
    name: Annotated[str, BeforeValidator(parse_name)] = Field(
        description="Lower-case letters, digits and -; unique among the jobs of a plan.",
        examples=["llama2-7b-sft-chat"],
    )
    team: Text = Field(description="Who pays.")
    project: Text | None = None
    owner: Text | None = None
    cost_center: Text | None = None
    labels: Pairs = ()
    group: Annotated[str, BeforeValidator(parse_name)] | None = Field(
        default=None, description="Placed jobs of one group are all in one region.", examples=["rlhf"]
    )
    steps: Count = Field(description="Steps in total, those already done included.")
    status: Status | None = None
    earliest_start: Instant | None = Field(default=None, description="At most 366 days after planning.")
    deadline: Instant | None = Field(default=None, description="At most 366 days after planning.")
    confidence: Annotated[Number, Field(ge=LEAST_CONFIDENCE, le=MOST_CONFIDENCE)] = Field(
        default=0.95, description="How sure the deadline must hold."
    )
    late: Literal["never", "allowed"] = Field(
        default="never",
        description="`allowed`: where nothing holds the deadline, it is placed late, after all jobs that are in time.",
        examples=["allowed"],
    )
    budget: Dollars | None = None
    max_price: Annotated[DollarsPerHour | None, AfterValidator(_above_zero)] = Field(
        default=None,
        description="The most that an accelerator may cost an hour, after discounts, in each market and as a fallback; "
        "of a reservation its amortised price.",
        examples=["2.50"],
    )
    priority: Annotated[Whole, Field(ge=-1000, le=1000)] = Field(
        default=0, description="Higher first; strict: no number of lower ones outweighs a higher one."
    )
    workload: Workload
    gang: Gang
    max_wait: Duration = Field(
        default=timedelta(days=7), description="Without a deadline: start within this; at most 366 days."
    )
    market: MarketRule = MarketRule()
    checkpoint: Annotated[Checkpoint | None, BeforeValidator(lambda value: None if value == "none" else value)] = None
    startup: Duration = Field(default=timedelta(minutes=10), description="Billed: boot, restore, warm-up.")
    idle: Annotated[Duration | None, AfterValidator(_most(_DAY))] = Field(
        default=None,
        description="Billed at each start beside `startup`: machines wait for the last of their gang. At most a day.",
        examples=["2m"],
    )
    interruptions: Interruptions | None = None
    retries: Annotated[Tally, Field(le=_MOST_RETRIES)] | None = Field(
        default=None,
        description="How often in a row the training may crash without a new checkpoint and is started again; 0: never "
        "again. Left out: `max_crashes` of the deploy file, and not where its last lines blame the job itself.",
        examples=[2],
    )
    data: Data | None = None
    residency: Residency = Residency()
    placement: PlacementRule | None = Field(
        default=None,
        description="What limits its speed, so where it may run. Left out: by the `transformer`; `none`: anywhere.",
        examples=["communication"],
    )
    standstill: Standstill | None = Field(
        default=None, description="In place of the deploy file's: when it counts as standing still, and what then."
    )
    run: Run | None = None

    @model_validator(mode="before")
    @classmethod
    def _market_from_use_spot(cls, value: Any) -> Any:
        """Read ``use_spot`` at the top, where SkyPilot's users look for it, as under ``market``."""
        if not isinstance(value, dict) or "use_spot" not in value:
            return value
        value = dict(value)
        use_spot = value.pop("use_spot")
        if "market" in value:
            raise RefusedError("market and use_spot are both given", "keep `market: {spot: ...}`", at=("use_spot",))
        return {**value, "market": {"spot": _spot_of(use_spot)}}

    @model_validator(mode="before")
    @classmethod
    def _with_checkpoint_size(cls, value: Any) -> Any:
        """Fill in the size of a checkpoint that states none, from the shape of the transformer."""
        if not isinstance(value, dict) or not isinstance(value.get("checkpoint"), dict):
            return value
        try:
            return {**value, "checkpoint": with_estimated_size(value["checkpoint"], value.get("workload"))}
        except RefusedError as error:
            raise RefusedError(error.what, error.remedy, at=("checkpoint", *error.at)) from None

    @model_validator(mode="after")
    def _one_way_to_the_code(self) -> Job:
        if self.run is not None and self.run.image is not None and self.run.code is not None:
            raise RefusedError("an image brings the code along", "leave out image or code", at=("run", "code"))
        if self.run is not None and self.run.image is not None and self.run.engine == "slurm":
            what = "slurm starts processes on the machines, not in an image"
            raise RefusedError(what, "give the code with `code:`", at=("run", "image"))
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Job:
        if self.status is not None and self.status.steps_done > self.steps:
            raise RefusedError(
                f"{self.status.steps_done} steps are done of {self.steps}",
                "`steps` is the total, those already done included",
                at=("status", "steps_done"),
            )
        if self.gang.on_demand_share > 0 and self.market.spot == "only":
            raise RefusedError(
                "an on-demand share contradicts spot machines only",
                "use `spot: allowed`",
                at=("gang", "on_demand_share"),
            )
        if self.group is not None and self.gang.regions > 1:
            raise RefusedError(
                f"a job of group {self.group} may not use {self.gang.regions} regions",
                "leave out `gang.regions` or `group`: a group is in one region",
                at=("group",),
            )
        stated = self.interruptions
        if stated is not None and stated.per_hour is not None and self.market.spot == "never":
            raise RefusedError(
                "no spot machines are allowed, and only theirs is stated",
                "leave per_hour out: failures of hardware are counted as published",
                at=("interruptions", "per_hour"),
            )
        if stated is not None and stated.lost_work is not None and self.checkpoint is None:
            raise RefusedError(
                "without a checkpoint all work is lost", "add `checkpoint:`", at=("interruptions", "lost_work")
            )
        if self.placement == "data" and self.data is None:
            raise RefusedError(
                "placement is by data, and the job has none", "add `data:`, or leave placement out", at=("placement",)
            )
        if self.may_be_late and self.deadline is None:
            raise RefusedError(
                "no deadline is given to be late for", "add `deadline:`, or leave late out", at=("late",)
            )
        if _always_after(self.earliest_start, self.deadline):
            raise RefusedError(f"lies before the earliest start {self.earliest_start}", at=("deadline",))
        return self

    @property
    def may_be_late(self) -> bool:
        return self.late == "allowed"

    @property
    def start_time(self) -> timedelta:
        """Return what each start bills before the first step: waiting for the whole gang, then start-up."""
        return self.startup + (self.idle or timedelta(0))

    @property
    def restart_time(self) -> timedelta:
        """Return what each restart after an interruption bills, as :attr:`start_time`."""
        stated = None if self.interruptions is None else self.interruptions.restart
        return self.start_time if stated is None else stated + (self.idle or timedelta(0))

    @property
    def steps_left(self) -> int:
        return self.steps - (self.status.steps_done if self.status else 0)

    @property
    def digest(self) -> str:
        """Return SHA-256 (hex) of the canonical JSON, without fields at their default.

        A field that a later version adds therefore changes no digest. Of environment values only the names count, and
        references to secrets.
        """
        content = self.model_dump(mode="json", exclude_defaults=True)
        if self.run is not None and self.run.env:
            references = dict(self.run.references)
            # A name holds no "=", so no name reads like a reference.
            content["run"]["env"] = [f"{n}={references[n]}" if n in references else n for n, _ in self.run.env]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()
