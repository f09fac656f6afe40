"""Calls that build one region together, some of which may fail; a region built from the public files alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from pricing.places import Market, Region, RegionId, make_unknown_region
from providers.aws.parse import pricelist
from providers.aws.parse.advisor import SpotAdvice, read_advice
from providers.aws.parse.machines import parse_region_index
from providers.aws.parse.offers import build_estimated_spot_offers, build_on_demand_offers
from providers.aws.public import PublicFiles
from providers.caller import PartialCalls
from providers.errors import CredentialsError, NotReachedError, PermissionDeniedError, ProviderError, RegionOffError
from providers.protocol import FetchResult, PartialFailure
from providers.session import Session


class RegionCalls(PartialCalls):
    """Make calls one after the other for one region, and judge what their partial failures mean for it."""

    def __init__(self) -> None:
        super().__init__((CredentialsError, NotReachedError, RegionOffError))

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


WOULD_ADD = "spot prices per zone and their history, placement scores, quotas and reservations"


class PublicCatalogue:
    """The public files of one cloud."""

    def __init__(self, cloud: str, session: Session, files: PublicFiles) -> None:
        self._cloud = cloud
        self._session = session
        self._files = files

    def regions(self) -> Sequence[str]:
        """Return the regions that have a price list, sorted. Raises when that cannot be learnt."""
        return parse_region_index(self._cloud, self._files.index())

    def fetch(self, region: str, no_account: ProviderError) -> FetchResult:
        """Return on-demand prices of the region's list, and spot estimated from the advisor's savings on them.

        ``no_account`` is why no account is used, and becomes a partial failure. Raises when the price list cannot be
        obtained.
        """
        cloud, book, today = self._cloud, self._session.book, self._session.now.date()
        found = self._files.prices(region, lambda chunks: pricelist.read_list(cloud, region, chunks, book))
        listed, published = found.listed, min(found.published, today) if found.published else None
        offers = build_on_demand_offers(cloud, region, listed.prices, {}, pricelist.SOURCE, published)
        covered = {(region, Market.ON_DEMAND)} if not listed.lost else set()
        dropped = listed.dropped
        attempt = RegionCalls()
        advised = attempt(
            "estimated spot prices", lambda: fetch_advice(cloud, self._files, region, frozenset(listed.prices), today)
        )
        if advised is not None:
            advice, written = advised
            as_of = min(written, published or written, today) if written else None
            offers += build_estimated_spot_offers(cloud, region, listed.prices, advice, pricelist.SOURCE, as_of)
            dropped += advice.dropped
            if not advice.dropped and not listed.lost:
                covered.add((region, Market.SPOT))
        return FetchResult(
            offers=offers,
            covered=frozenset(covered),
            regions=find_new_region(cloud, self._session, region, pricelist.SOURCE),
            dropped=dropped,
            gaps=(PartialFailure("live prices", no_account, WOULD_ADD), *attempt.gaps),
            rows_read=listed.rows_read,
        )
