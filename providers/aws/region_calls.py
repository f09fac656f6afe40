"""Calls that build one region together, some of which may fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import TypeVar

from pricing.places import Region, RegionId
from providers.aws.parse.advisor import SpotAdvice, read_advice
from providers.aws.public import PublicFiles
from providers.errors import CredentialsError, NotReachedError, PermissionDeniedError, ProviderError, RegionOffError
from providers.protocol import FetchResult, PartialFailure
from providers.session import Session
from providers.unknown_regions import make_unknown_region

T = TypeVar("T")

# After one of these the next call to the same cloud fails as well.
_FATAL = (CredentialsError, NotReachedError, RegionOffError)


class RegionCalls:
    """Make calls one after the other for one region; a failed call becomes a partial failure, earlier results stay."""

    def __init__(self) -> None:
        self.gaps: list[PartialFailure] = []
        self._fatal: ProviderError | None = None

    def __call__(self, subject: str, ask: Callable[[], T], *, elsewhere: bool = False) -> T | None:
        """Return what ``ask`` gives; None, and a partial failure, when it cannot be obtained.

        ``elsewhere``: the call needs no account and no region, so that it is made even when these fail.
        """
        if self._fatal is not None and not elsewhere:
            self.gaps.append(PartialFailure(subject, self._fatal))
            return None
        try:
            return ask()
        except ProviderError as error:
            if isinstance(error, _FATAL) and not elsewhere:
                self._fatal = error
            self.gaps.append(PartialFailure(subject, error))
            return None

    def failed(self, *subjects: str) -> bool:
        """Return whether any of ``subjects`` is a partial failure."""
        return any(gap.subject in subjects for gap in self.gaps)

    def forbidden(self, subject: str) -> bool:
        """Return whether ``subject`` is a partial failure because the account may not make that call."""
        return any(gap.subject == subject and isinstance(gap.error, PermissionDeniedError) for gap in self.gaps)

    def refuse_nothing(self, result: FetchResult) -> FetchResult:
        """Return the fetch result; raise the first call's error when the result is empty and a call failed."""
        if self.gaps and not (result.offers or result.points or result.covered):
            raise self.gaps[0].error
        return result


def fetch_advice(
    cloud: str, files: PublicFiles, region: str, instance_types: frozenset[str], today: date
) -> tuple[SpotAdvice, date | None]:
    """Return what the Spot Advisor says of the instance types in one region, and the day it was written.

    Its bands are dated that day, or ``today`` where it is not stated or later.
    """
    advised = files.advice()
    advice = read_advice(cloud, region, advised.document, instance_types)
    return replace(advice, as_of=min(advised.written or today, today)), advised.written


def find_new_region(cloud: str, session: Session, region: str, source: str) -> tuple[Region, ...]:
    """Return the region with everything unknown, if the session's book does not have it."""
    if session.book.region(RegionId(cloud, region)) is not None:
        return ()
    return (make_unknown_region(cloud, region, source, session.now.date()),)
