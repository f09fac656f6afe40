"""The AWS account: whether there is one to ask, and regions fetched with it: live prices per zone, with history."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pricing.machines import Machine
from pricing.places import Market
from providers.aws.errors import FIND_CREDENTIALS
from providers.aws.parse import spot
from providers.aws.parse.advisor import SpotAdvice
from providers.aws.parse.machines import find_zones_by_type, read_types, split_regions_by_status, zone_ids
from providers.aws.parse.offers import build_estimated_spot_offers, build_on_demand_offers, build_spot_offers
from providers.aws.parse.prices import NOT_LISTED, SOURCE, OnDemandPrices, read_products
from providers.aws.public import PublicFiles
from providers.aws.region_calls import RegionCalls, fetch_advice, find_new_region
from providers.errors import (
    AccountNotUsedError,
    CredentialsError,
    NotForSaleError,
    ProviderError,
    RegionOffError,
    SdkMissingError,
)
from providers.protocol import DroppedRow, FetchResult
from providers.session import Session

if TYPE_CHECKING:
    from providers.aws.client import AwsClient

ZONES, OFFERINGS, TYPES = "zones", "where each type is sold", "new instance types"
ON_DEMAND, SPOT, HISTORY, BANDS = "on-demand prices", "spot prices", "spot price history", "interruption bands"
_ASKED_BY_NAME = 12
_HISTORY_KEPT = timedelta(days=90)
_NO_ADVICE = SpotAdvice({}, {}, ())


class AwsAccount:
    """Fetch regions with an account that has credentials; the first call shows whether they are accepted.

    Instance types that the book does not know are described once, by whichever region meets them first: they are the
    same everywhere. Safe for threads.
    """

    def __init__(self, cloud: str, session: Session, client: AwsClient, files: PublicFiles) -> None:
        self._cloud = cloud
        self._session = session
        self.client = client
        self._files = files
        self._lock = threading.Lock()
        self._enabled: frozenset[str] = frozenset()
        self._off: frozenset[str] = frozenset()
        # A text is why the type cannot be used; None is a type without accelerator.
        self._described: dict[str, Machine | str | None] = {}

    def regions(self) -> Sequence[str]:
        """Return the regions that the account has enabled, sorted."""
        enabled, off = split_regions_by_status(self.client.regions())
        with self._lock:
            self._enabled, self._off = frozenset(enabled), off
        return enabled

    def families(self) -> frozenset[str]:
        """Return the families of machines with accelerators that are known so far."""
        with self._lock:
            new = [machine.family for machine in self._described.values() if isinstance(machine, Machine)]
        return frozenset(new) | {m.family for m in self._session.book.machines if m.cloud == self._cloud}

    def check(self, region: str) -> None:
        """Raise RegionOffError for a region known to be disabled, NotForSaleError for one that does not exist.

        Without this check a disabled region would answer as if the credentials were wrong.
        """
        with self._lock:
            if region in self._off:
                remedy = "enable the region in the account's settings"
                raise RegionOffError(self._cloud, f"{region} for this account", remedy=remedy)
            if self._enabled and region not in self._enabled:
                raise NotForSaleError(self._cloud, f"there is no region {region}")

    def fetch(self, region: str, since: datetime | None) -> FetchResult:
        """Return offers per zone. Raises when nothing of the region could be obtained.

        Current spot prices are asked for by themselves, so that a history that breaks off loses history only.
        """
        self.check(region)
        attempt = RegionCalls()
        zones = attempt(ZONES, lambda: zone_ids(self.client.zones(region))) or {}
        sold = attempt(OFFERINGS, lambda: find_zones_by_type(self.client.offerings(region)))
        new, unusable = self._new_types(region, sold or {}, attempt)
        # Where the types on sale cannot be listed, prices can still be asked for by the names that the book has.
        known = self._book_names()
        names = known if sold is None else (known & sold.keys()) | {machine.instance_type for machine in new}
        current, history = self._spot_rows(region, names, since, attempt)
        listing = attempt(ON_DEMAND, lambda: self._on_demand_prices(region, names, complete=sold is not None))
        today = self._session.now.date()
        advised = attempt(BANDS, lambda: fetch_advice(self._cloud, self._files, region, names, today), elsewhere=True)
        advice, written = advised or (_NO_ADVICE, None)

        now = spot.read_history(self._cloud, region, current, zones, names, self._session.now)
        past = spot.read_history(self._cloud, region, [*current, *history], zones, names, self._session.now)
        # A history that contradicts the current price leaves it unknown; a whole history can replace it.
        agreed = {key: price for key, price in now.current.items() if key in past.current}
        if attempt.failed(SPOT) and not attempt.failed(HISTORY):
            agreed = dict(past.current)
        prices = listing.prices if listing is not None else {}
        offers = build_on_demand_offers(self._cloud, region, prices, sold or {}, SOURCE, today)
        offers += build_spot_offers(self._cloud, region, agreed, prices, advice, today)
        if attempt.forbidden(SPOT):
            as_of = min(written, today) if written else None
            offers += build_estimated_spot_offers(self._cloud, region, prices, advice, SOURCE, as_of)
        covered = set()
        if not attempt.failed(ZONES, OFFERINGS, TYPES, SPOT) and now.whole and len(agreed) == len(now.current):
            covered.add((region, Market.SPOT))
        if listing is not None and not attempt.failed(OFFERINGS, TYPES) and not listing.lost:
            covered.add((region, Market.ON_DEMAND))
        result = FetchResult(
            offers=offers,
            covered=frozenset(covered),
            machines=new,
            regions=find_new_region(self._cloud, self._session, region, "AWS EC2 DescribeRegions"),
            points=past.points,
            dropped=(*unusable, *past.dropped, *(listing.dropped if listing else ()), *advice.dropped),
            gaps=tuple(attempt.gaps),
            rows_read=len(current) + len(history) + (listing.rows_read if listing else 0),
        )
        return attempt.refuse_nothing(result)

    def _book_names(self) -> frozenset[str]:
        return frozenset(m.instance_type for m in self._session.book.machines if m.cloud == self._cloud)

    def _new_types(
        self, region: str, sold: Collection[str], attempt: RegionCalls
    ) -> tuple[tuple[Machine, ...], tuple[DroppedRow, ...]]:
        """Return the machines sold here that the book does not know, and rows for those that cannot be used."""
        cloud, book = self._cloud, self._session.book
        unknown = sorted(name for name in sold if book.machine(cloud, name) is None)
        with self._lock:
            missing = [name for name in unknown if name not in self._described]
        rows = attempt(TYPES, lambda: self.client.instance_types(region, missing)) if missing else ()
        if rows:
            read = read_types(cloud, rows, book, self._session.now.date())
            found: dict[str, Machine | str | None] = dict.fromkeys(missing)
            found.update((machine.instance_type, machine) for machine in read.machines)
            found.update((drop.row, drop.why) for drop in read.dropped)
            with self._lock:
                self._described.update(found)
        with self._lock:
            mine = [(name, self._described.get(name)) for name in unknown]
        machines = tuple(one for _, one in mine if isinstance(one, Machine))
        return machines, tuple(DroppedRow(f"{region} {name}", one) for name, one in mine if isinstance(one, str))

    def _spot_rows(
        self, region: str, names: Collection[str], since: datetime | None, attempt: RegionCalls
    ) -> tuple[list[spot.Row], list[spot.Row]]:
        """Return the rows in force now, and rows since then; where pages break off, those that came before."""
        current: list[spot.Row] = []
        history: list[spot.Row] = []
        if not names:
            return current, history
        asked = sorted(names)

        def gather(into: list[spot.Row], start: datetime) -> None:
            for page in self.client.spot_prices(region, asked, start):
                into.extend(page)

        attempt(SPOT, lambda: gather(current, self._session.now))
        if since is not None:
            attempt(HISTORY, lambda: gather(history, max(since, self._session.now - _HISTORY_KEPT)))
        return current, history

    def _on_demand_prices(self, region: str, names: frozenset[str], *, complete: bool) -> OnDemandPrices:
        """Return on-demand prices of ``names``.

        Where the names are ``complete``, one without a price is reported as dropped. A type that is not among the
        list's GPU instances is asked for by its name: the list files some elsewhere.
        """
        texts = list(self.client.products(region))
        prices = read_products(self._cloud, region, texts, names)
        if not complete:
            return prices
        missing = sorted(names - prices.prices.keys() - prices.lost)
        for name in missing[:_ASKED_BY_NAME]:
            texts += self.client.products(region, name)
        prices = read_products(self._cloud, region, texts, names)
        unlisted = [name for name in missing if name not in prices.prices and name not in prices.lost]
        dropped = tuple(DroppedRow(f"{region} {name} on demand", NOT_LISTED) for name in unlisted)
        lost = prices.lost | set(missing[_ASKED_BY_NAME:])
        return replace(prices, dropped=(*prices.dropped, *dropped), lost=lost)


def find_account(cloud: str, session: Session, files: PublicFiles) -> AwsAccount | ProviderError:
    """Return the account, or the error that says why there is none. Loads the SDK.

    Raises CredentialsError when the credentials that were found cannot be used.
    """
    if not session.settings.credentials:
        return AccountNotUsedError(cloud, "the settings say to use public sources only")
    try:
        from providers.aws.client import AwsClient
    except ModuleNotFoundError as error:
        remedy = "pip install 'stepfare[aws]'"
        return SdkMissingError(cloud, str(error.name), remedy=remedy)
    client = AwsClient(cloud, session)
    if not client.has_credentials():
        return CredentialsError(cloud, "none were found", none_found=True, remedy=FIND_CREDENTIALS)
    return AwsAccount(cloud, session, client, files)
