"""A fault: its kind, how far it holds, what follows from both, and which words mean it by the table of ``faults.csv``.

The most specific row that matches what a cloud, Terraform or a training printed decides, by its ``level``; of equal
ones the one with the wider reach. Wrappers (an HTTP status, a code that stands for many things) have level 1, codes 2,
sentences 3 and more. Evidence beside a crash (a kernel log, a notice, other ranks) outweighs what a crash can be the
consequence of, and not what the program itself said.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from typing import Final

from router.agent.xids import NOTED, find_events
from terraform.errors import (
    EngineMissingError,
    EngineTooOldError,
    InitFailedError,
    RunDirectoryError,
    RunError,
    StateLockedError,
    StateLostError,
    StoppedError,
    TerraformError,
    TimedOutError,
)


class FaultKind(StrEnum):
    """The kind of a fault; the value is stored as an attempt's ``reason``."""

    SHORT = "short"
    QUOTA = "quota"
    PRICE = "price"
    NOT_SOLD_HERE = "not_sold_here"
    NOT_ENABLED_HERE = "not_enabled_here"
    REFUSED_BY_POLICY = "refused_by_policy"
    SETUP = "setup"
    CREDENTIALS = "credentials"
    THROTTLED = "throttled"
    TRANSIENT = "transient"
    MACHINE_FAULT = "unhealthy"
    JOB_FAULT = "job"
    OURS = "here"
    STOPPED = "stopped"
    UNKNOWN = "failed"

    @property
    def is_refusal(self) -> bool:
        """Return whether the cloud refused before there was a machine."""
        return self in _REFUSALS


_REFUSALS: Final = frozenset(
    {
        FaultKind.SHORT,
        FaultKind.QUOTA,
        FaultKind.PRICE,
        FaultKind.NOT_SOLD_HERE,
        FaultKind.NOT_ENABLED_HERE,
        FaultKind.REFUSED_BY_POLICY,
        FaultKind.CREDENTIALS,
        FaultKind.THROTTLED,
    }
)
# Reasons of attempts that say a place could not be had, though it sells such machines.
REFUSED_PLACES: Final = frozenset({FaultKind.SHORT.value, FaultKind.QUOTA.value, FaultKind.PRICE.value})


class FaultReach(StrEnum):
    """How far a fault holds; ``ACCOUNT`` is every place of its cloud under this account."""

    NONE = "none"
    MACHINE = "machine"
    PLACE = "place"
    REGION = "region"
    JOB = "job"
    ACCOUNT = "account"


class FaultAction(StrEnum):
    ELSEWHERE = "elsewhere"
    ELSEWHERE_OTHER_CLOUD = "elsewhere_other_cloud"
    RETRY_SAME = "retry_same"
    RETRY_LATER = "retry_later"
    STOP_WITH_REMEDY = "stop_with_remedy"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; ``remedy`` says what a person can do, "" if nothing is known."""

    kind: FaultKind
    reach: FaultReach
    remedy: str = ""

    @property
    def action(self) -> FaultAction:
        """Return what follows: other places, other clouds, the same again, or a stop."""
        match self.kind:
            case FaultKind.THROTTLED:
                return FaultAction.RETRY_LATER
            case FaultKind.TRANSIENT:
                return FaultAction.RETRY_SAME
            case FaultKind.SETUP | FaultKind.JOB_FAULT | FaultKind.OURS | FaultKind.STOPPED:
                return FaultAction.STOP_WITH_REMEDY
            case FaultKind.REFUSED_BY_POLICY if self.reach is FaultReach.ACCOUNT:
                # A rule of the organisation is not evaded in another cloud.
                return FaultAction.STOP_WITH_REMEDY
            case FaultKind.CREDENTIALS if self.reach is FaultReach.JOB:
                return FaultAction.STOP_WITH_REMEDY
            case _ if self.reach is FaultReach.ACCOUNT:
                return FaultAction.ELSEWHERE_OTHER_CLOUD
            case _:
                return FaultAction.ELSEWHERE

    @property
    def reason(self) -> str:
        """Return the word for an attempt that ended so; a region that a policy denies is not enabled there."""
        if self.kind is FaultKind.REFUSED_BY_POLICY and self.reach is FaultReach.REGION:
            return FaultKind.NOT_ENABLED_HERE.value
        return self.kind.value

    @property
    def holds_in_region(self) -> bool:
        """Return whether nothing of the region can be had: it is switched off for us, or a policy denies it."""
        return self.reason == FaultKind.NOT_ENABLED_HERE.value and self.reach is FaultReach.REGION

    @property
    def marks_pool(self) -> bool:
        """Return whether the pool is to be passed over for a while."""
        return self.action is FaultAction.ELSEWHERE


UNKNOWN_FAULT: Final = Fault(FaultKind.UNKNOWN, FaultReach.ACCOUNT)
NO_ZONE: Final = Fault(FaultKind.NOT_SOLD_HERE, FaultReach.PLACE)
SHORT: Final = Fault(FaultKind.SHORT, FaultReach.PLACE)
UNHEALTHY: Final = Fault(FaultKind.MACHINE_FAULT, FaultReach.MACHINE)
JOB_FAULT: Final = Fault(FaultKind.JOB_FAULT, FaultReach.JOB)
OURS: Final = Fault(FaultKind.OURS, FaultReach.NONE)
STOPPED: Final = Fault(FaultKind.STOPPED, FaultReach.JOB)

FAULT_WORDS: Final = {
    FaultKind.SHORT: "no capacity now",
    FaultKind.QUOTA: "over a quota",
    FaultKind.PRICE: "dearer than the price limit",
    FaultKind.NOT_SOLD_HERE: "not sold there",
    FaultKind.NOT_ENABLED_HERE: "not enabled for this account",
    FaultKind.REFUSED_BY_POLICY: "denied by a policy of your organisation",
    FaultKind.SETUP: "wrong settings",
    FaultKind.CREDENTIALS: "no valid credentials, or a right is missing",
    FaultKind.THROTTLED: "too many requests",
    FaultKind.TRANSIENT: "a passing failure",
    FaultKind.MACHINE_FAULT: "a machine is not healthy",
    FaultKind.JOB_FAULT: "the job itself fails",
    FaultKind.OURS: "a fault of the machine that runs stepfare",
    FaultKind.STOPPED: "stopped",
    FaultKind.UNKNOWN: "failed for a reason that is not known",
}


def describe_fault(fault: Fault, region: str = "") -> str:
    """Return the fault in words for a person, with the region where it holds there alone."""
    where = f" in {region}" if region and fault.reach is FaultReach.REGION else ""
    return f"{FAULT_WORDS[fault.kind]}{where}"


_NOT_ENABLED: Final = Fault(FaultKind.NOT_ENABLED_HERE, FaultReach.REGION, "enable the region for the account")
# A shell says 128 and more of a signal.
_BY_SIGNAL: Final = 128
# AWS encodes why a right is missing in kilobytes of letters without a space.
_ENCODED: Final = re.compile(r"\w{200,}")
# A command line breaks a sentence where the window ends.
_WRAPPED: Final = re.compile(r"\n[ \t│]*(?=[a-z])")
# Rows up to this level hold codes, which a cloud writes one way.
_CODES: Final = 2
# What was looked for and not there is no evidence; silence is.
_ABSENT: Final = re.compile(r"\b(?:[Nn]o|without(?: an?)?) (?!heartbeat|answer)[^\n;,.]*")
# The level of an event of the GPU in a log, as that of the table's rows of broken machines.
_EVIDENCE_LEVEL: Final = 5
# Regions of AWS that an account has to switch on: identities are not known there before.
# Source: AWS Account Management, "Enable or disable AWS Regions".
_OPT_IN_REGIONS: Final = frozenset(
    {
        "af-south-1",
        "ap-east-1",
        "ap-east-2",
        "ap-south-2",
        "ap-southeast-3",
        "ap-southeast-4",
        "ap-southeast-5",
        "ap-southeast-6",
        "ap-southeast-7",
        "ca-west-1",
        "eu-central-2",
        "eu-south-1",
        "eu-south-2",
        "il-central-1",
        "me-central-1",
        "me-south-1",
        "mx-central-1",
    }
)
_UNKNOWN_IDENTITY: Final = re.compile(r"AuthFailure|InvalidClientTokenId|UnrecognizedClient|security token .* invalid")


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One row of the table: where the pattern may match, its level, and the fault that it means."""

    stage: str
    cloud: str
    level: int
    pattern: re.Pattern[str]
    fault: Fault


@cache
def fault_rows() -> tuple[FaultRow, ...]:
    """Return the table, compiled once."""
    text = (resources.files("router.faults") / "faults.csv").read_text(encoding="utf-8")
    return tuple(_parse_row(row) for row in csv.DictReader(text.splitlines()))


def fault_of_error(error: TerraformError, *, cloud: str = "any", region: str = "") -> Fault:
    """Return the fault of an error of the Terraform runner; :data:`UNKNOWN_FAULT` where no row knows its words."""
    if isinstance(error, StoppedError):
        return STOPPED
    if isinstance(
        error,
        EngineMissingError
        | EngineTooOldError
        | RunDirectoryError
        | StateLostError
        | InitFailedError
        | StateLockedError,
    ):
        return OURS
    fault = UNKNOWN_FAULT
    if isinstance(error, RunError):
        text = "\n".join(f"{d.summary}\n{d.detail}" for d in error.diagnostics if d.is_error)
        fault = fault_of_refusal(text, cloud=cloud, region=region)
    return UNHEALTHY if fault is UNKNOWN_FAULT and isinstance(error, TimedOutError) else fault


def fault_of_refusal(text: str, *, cloud: str = "any", region: str = "") -> Fault:
    """Return the fault that a cloud's or Terraform's words mean; :data:`UNKNOWN_FAULT` where no row knows them.

    ``cloud`` "any" looks at the rows of all clouds.
    """
    fault = _strongest([*_matches("provision", cloud, text)])
    if fault is None:
        return UNKNOWN_FAULT
    if fault.kind is FaultKind.CREDENTIALS and region in _OPT_IN_REGIONS and _UNKNOWN_IDENTITY.search(text):
        return _NOT_ENABLED
    return fault


def stated_fault(texts: Iterable[str], *, evidence: str = "") -> Fault | None:
    """Return the fault that the last lines of crashed ranks or the evidence beside them state; None without one.

    ``texts`` are in the order in which the ranks ended: a rank that only lost its peers does not decide.
    """
    faults = [fault for text in texts if (fault := _stated_fault(text, evidence)) is not None]
    causes = [fault for fault in faults if fault.kind is not FaultKind.TRANSIENT]
    return next(iter(causes + faults), None) or _stated_fault("", evidence)


def is_by_signal(exit_code: int | None) -> bool:
    """Return whether a training was ended by a signal; a shell reports that as 128 plus the signal's number."""
    return exit_code is None or exit_code < 0 or exit_code > _BY_SIGNAL


def find_telling_line(text: str) -> str:
    """Return the line of a training's output that says most about its end: else the last one that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    levels = [max((level for level, _ in _matches("training", "any", line)), default=0) for line in lines]
    best = max(levels, default=0)
    return "" if not lines else lines[levels.index(best)] if best else lines[-1]


@lru_cache(maxsize=1024)  # a job that waits to resume is looked at again and again
def _stated_fault(text: str, evidence: str) -> Fault | None:
    rows = [*_matches("training", "any", text), *_matches("evidence", "any", evidence)]
    if any(event.severity != NOTED for event in find_events(f"{text}\n{evidence}")):
        rows.append((_EVIDENCE_LEVEL, UNHEALTHY))
    return _strongest(rows)


def _matches(stage: str, cloud: str, text: str) -> Iterator[tuple[int, Fault]]:
    # A sandbox and one's own hosts have no rows of their own and may use the words of any cloud.
    has_rows = any(row.cloud == cloud for row in fault_rows())
    text = _ENCODED.sub("", text)
    if stage == "provision":
        text = _WRAPPED.sub(" ", text)
    elif stage == "evidence":
        text = _ABSENT.sub("", text)
    for row in fault_rows():
        if (
            row.stage == stage
            and (row.cloud in (cloud, "any") or not has_rows or cloud == "any")
            and row.pattern.search(text)
        ):
            yield row.level, row.fault


def _strongest(rows: list[tuple[int, Fault]]) -> Fault | None:
    order = list(FaultReach)
    return max(
        rows,
        key=lambda row: (row[0], order.index(row[1].reach), row[1].kind is not FaultKind.THROTTLED),
        default=(0, None),
    )[1]


def _parse_row(row: dict[str, str]) -> FaultRow:
    words = row["pattern"]
    if row["stage"] == "provision":
        # Whole words only: a job may be named no-capacity-not-available or stockout.
        words = rf"(?<![\w-])(?:\w*(?:{words}))(?!-[a-z0-9])"
    fault = Fault(FaultKind(_KINDS.get(row["kind"], row["kind"])), FaultReach(row["reach"]), row["remedy"])
    # Versions of a provider write sentences in other cases; a code of level 1 or 2 in small letters may be a name.
    sentences = row["stage"] == "provision" and int(row["level"]) > _CODES
    pattern = re.compile(words, re.IGNORECASE if sentences else re.NOFLAG)
    return FaultRow(row["stage"], row["cloud"], int(row["level"]), pattern, fault)


# The table uses the words of the field, attempts the reasons that they have always had.
_KINDS: Final = {"machine_fault": "unhealthy", "job_fault": "job", "ours": "here"}
