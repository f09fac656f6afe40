"""A fault: its kind, how far it holds, and what follows from both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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
    """The action that follows from a fault."""

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
