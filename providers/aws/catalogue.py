"""Fetching of a region from the public files alone, for a refresh without an account."""

from __future__ import annotations

from collections.abc import Sequence

from pricing.places import Market
from providers.aws.parse import pricelist
from providers.aws.parse.offers import build_estimated_spot_offers, build_on_demand_offers
from providers.aws.parse.places import parse_region_index
from providers.aws.public import PublicFiles
from providers.aws.region_calls import RegionCalls, fetch_advice, find_new_region
from providers.errors import ProviderError
from providers.protocol import FetchResult, PartialFailure
from providers.session import Session

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
