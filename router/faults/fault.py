"""A fault: its kind, how far it holds, and what follows from both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class FaultKind(StrEnum):
    """What is wrong; the value is stored as an attempt's ``reason``."""

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
        return self not in _AFTER_THE_START


_AFTER_THE_START: Final = frozenset(
    {
        FaultKind.TRANSIENT,
        FaultKind.MACHINE_FAULT,
        FaultKind.JOB_FAULT,
        FaultKind.OURS,
        FaultKind.STOPPED,
        FaultKind.UNKNOWN,
    }
)


class Reach(StrEnum):
    """How far a fault holds; ``ACCOUNT`` is every place of its cloud under this account."""

    NONE = "none"
    MACHINE = "machine"
    PLACE = "place"
    REGION = "region"
    JOB = "job"
    ACCOUNT = "account"


class FaultAction(StrEnum):
    """What follows from a fault."""

    ELSEWHERE = "elsewhere"
    ELSEWHERE_OTHER_CLOUD = "elsewhere_other_cloud"
    RETRY_SAME = "retry_same"
    RETRY_LATER = "retry_later"
    STOP_WITH_REMEDY = "stop_with_remedy"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; ``remedy`` says what a person can do, "" if nothing is known."""

    kind: FaultKind
    reach: Reach
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
            case FaultKind.REFUSED_BY_POLICY if self.reach is Reach.ACCOUNT:
                # A rule of the organisation is not evaded in another cloud.
                return FaultAction.STOP_WITH_REMEDY
            case FaultKind.CREDENTIALS if self.reach is Reach.JOB:
                return FaultAction.STOP_WITH_REMEDY
            case _ if self.reach is Reach.ACCOUNT:
                return FaultAction.ELSEWHERE_OTHER_CLOUD
            case _:
                return FaultAction.ELSEWHERE

    @property
    def marks_pool(self) -> bool:
        """Return whether the pool is to be passed over for a while."""
        return self.action is FaultAction.ELSEWHERE


UNKNOWN_FAULT: Final = Fault(FaultKind.UNKNOWN, Reach.ACCOUNT)
