"""Places that are still worth a try for one order, by the faults met so far. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from router.faults.fault import UNKNOWN_FAULT, Fault, FaultAction, describe_fault

# A place is asked again once after a fault that passes, and twice after these pauses where a cloud limits the rate.
_RETRIES: Final = 1
_PAUSES_S: Final = (20.0, 60.0)


@dataclass(slots=True)
class PlaceSearch:
    """The faults that one order met: what they exclude, and whether the search is over.

    A fault of a region excludes the region, one of the account its cloud. Words that nobody knows are tried once more,
    in another cloud.
    """

    _regions: dict[tuple[str, str], Fault] = field(default_factory=dict)
    _clouds: dict[str, Fault] = field(default_factory=dict)
    _unknown: int = 0
    _retries: Counter[FaultAction] = field(default_factory=Counter)
    is_over: bool = False

    def note(self, cloud: str, region: str, fault: Fault) -> None:
        """Take in the fault that ended the tries in one place."""
        self._retries.clear()
        if fault.holds_in_region:
            self._regions[cloud, region] = fault
        if fault.action in (FaultAction.ELSEWHERE_OTHER_CLOUD, FaultAction.RETRY_LATER):
            self._clouds[cloud] = fault
        if fault == UNKNOWN_FAULT:
            self._unknown += 1
        self.is_over = fault.action is FaultAction.STOP_WITH_REMEDY or self._unknown > 1

    def excludes(self, cloud: str, region: str) -> str | None:
        """Return why a place is not worth a try; None if it is."""
        fault = self._clouds.get(cloud) or self._regions.get((cloud, region))
        return None if fault is None else describe_fault(fault, region)

    def pause_before_retry(self, fault: Fault) -> float | None:
        """Return the seconds until the same place is asked again; None if it is not."""
        pauses = {FaultAction.RETRY_SAME: (0.0,) * _RETRIES, FaultAction.RETRY_LATER: _PAUSES_S}.get(fault.action, ())
        tried = self._retries[fault.action]
        self._retries[fault.action] += 1
        return pauses[tried] if tried < len(pauses) else None
