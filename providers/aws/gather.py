"""Putting a region together from several calls, of which some may fail."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TypeVar

from pricing.places import Region, RegionId
from providers.aws.parse.advisor import Advice, read_advice
from providers.aws.public import PublicFiles
from providers.errors import CredentialsError, NotReachedError, PermissionDeniedError, ProviderError, RegionOffError
from providers.protocol import Gap, Harvest
from providers.session import Session
from providers.unknown import unknown_region

T = TypeVar("T")

# After one of these the next call to the same cloud fares no better.
_HOPELESS = (CredentialsError, NotReachedError, RegionOffError)


class Attempts:
    """Calls one after the other, for one region; what fails becomes a gap, and what was had before stays."""

    def __init__(self) -> None:
        self.gaps: list[Gap] = []
        self._hopeless: ProviderError | None = None

    def __call__(self, subject: str, ask: Callable[[], T], *, elsewhere: bool = False) -> T | None:
        """What ``ask`` gives; None, and a gap, when it cannot be had. ``elsewhere``: it needs no account and no region,
        so that it is asked for though these fail."""
        if self._hopeless is not None and not elsewhere:
            self.gaps.append(Gap(subject, self._hopeless))
            return None
        try:
            return ask()
        except ProviderError as error:
            if isinstance(error, _HOPELESS) and not elsewhere:
                self._hopeless = error
            self.gaps.append(Gap(subject, error))
            return None

    def failed(self, *subjects: str) -> bool:
        """Whether any of ``subjects`` is a gap."""
        return any(gap.subject in subjects for gap in self.gaps)

    def forbidden(self, subject: str) -> bool:
        """Whether ``subject`` is a gap because the account may not make that call."""
        return any(gap.subject == subject and isinstance(gap.error, PermissionDeniedError) for gap in self.gaps)

    def refuse_nothing(self, harvest: Harvest) -> Harvest:
        """The harvest, unless there is nothing in it and a call failed: then that call's error is raised."""
        if self.gaps and not (harvest.offers or harvest.points or harvest.covered):
            raise self.gaps[0].error
        return harvest


def advise(cloud: str, files: PublicFiles, region: str, wanted: frozenset[str]) -> tuple[Advice, date | None]:
    """What the Spot Advisor says of ``wanted`` in one region, and the day it was written."""
    advised = files.advice()
    return read_advice(cloud, region, advised.document, wanted), advised.written


def new_region(cloud: str, session: Session, region: str, source: str) -> tuple[Region, ...]:
    """The region with everything unknown, if the session's book does not have it."""
    if session.book.region(RegionId(cloud, region)) is not None:
        return ()
    return (unknown_region(cloud, region, source, session.now.date()),)
