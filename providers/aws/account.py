"""A region as an account sees it: live prices per zone, with their history."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pricing.machines import Machine
from pricing.places import Market
from providers.aws.gather import Attempts, advise, new_region
from providers.aws.parse import listed, spot
from providers.aws.parse.advisor import Advice
from providers.aws.parse.listed import read_products
from providers.aws.parse.machines import read_types, sold_in_zones
from providers.aws.parse.offers import estimated_spot_offers, on_demand_offers, spot_offers
from providers.aws.parse.places import regions_by_status, zone_ids
from providers.aws.parse.prices import NOT_LISTED, Listed
from providers.aws.public import PublicFiles
from providers.errors import NotForSaleError, RegionOffError
from providers.protocol import Dropped, Harvest
from providers.session import Session

if TYPE_CHECKING:
    from providers.aws.client import Client

ZONES, OFFERINGS, TYPES = "zones", "where each type is sold", "new instance types"
ON_DEMAND, SPOT, HISTORY, BANDS = "on-demand prices", "spot prices", "spot price history", "interruption bands"
_ASKED_BY_NAME = 12
_REMEMBERED = timedelta(days=90)
_NO_ADVICE = Advice({}, {}, ())


class Account:
    """Thread-safe. Instance types that the book does not know are described once, by whichever region meets them
    first: they are the same everywhere."""

    def __init__(self, cloud: str, session: Session, client: Client, files: PublicFiles) -> None:
        self._cloud = cloud
        self._session = session
        self._client = client
        self._files = files
        self._lock = threading.Lock()
        self._enabled: frozenset[str] = frozenset()
        self._off: frozenset[str] = frozenset()
        self._described: dict[str, Machine | str | None] = {}  # why it cannot be used; None: no accelerator

    def regions(self) -> Sequence[str]:
        """Those that the account has switched on, sorted."""
        enabled, off = regions_by_status(self._client.regions())
        with self._lock:
            self._enabled, self._off = frozenset(enabled), off
        return enabled

    def families(self) -> frozenset[str]:
        """Families of machines with accelerators that are known by now."""
        with self._lock:
            new = [machine.family for machine in self._described.values() if isinstance(machine, Machine)]
        return frozenset(new) | {m.family for m in self._session.book.machines if m.cloud == self._cloud}

    def check(self, region: str) -> None:
        """RegionOffError for a region that is known to be switched off, NotForSaleError for one that is not there.

        Without this a region that is off would answer as if the credentials were wrong.
        """
        with self._lock:
            if region in self._off:
                remedy = "enable the region in the account's settings"
                raise RegionOffError(self._cloud, f"{region} for this account", remedy=remedy)
            if self._enabled and region not in self._enabled:
                raise NotForSaleError(self._cloud, f"there is no region {region}")

    def fetch(self, region: str, since: datetime | None) -> Harvest:
        """Offers per zone. Current spot prices are asked for by themselves, so that a history that breaks off
        loses history only. Raises when nothing of the region could be had."""
        self.check(region)
        attempt = Attempts()
        zones = attempt(ZONES, lambda: zone_ids(self._client.zones(region))) or {}
        sold = attempt(OFFERINGS, lambda: sold_in_zones(self._client.offerings(region)))
        new, unusable = self._new_types(region, sold or {}, attempt)
        # Where it cannot be learnt what is sold, prices can still be asked for by the names that the book has.
        known = self._book_names()
        names = known if sold is None else (known & sold.keys()) | {machine.instance_type for machine in new}
        current, history = self._spot_rows(region, names, since, attempt)
        listing = attempt(ON_DEMAND, lambda: self._listed(region, names, complete=sold is not None))
        advised = attempt(BANDS, lambda: advise(self._cloud, self._files, region, names), elsewhere=True)
        advice, written = advised or (_NO_ADVICE, None)

        now = spot.read_history(self._cloud, region, current, zones, names, self._session.now)
        past = spot.read_history(self._cloud, region, [*current, *history], zones, names, self._session.now)
        # A history that contradicts the current price leaves it unknown; a whole one can stand in for it.
        agreed = {key: price for key, price in now.current.items() if key in past.current}
        if attempt.failed(SPOT) and not attempt.failed(HISTORY):
            agreed = dict(past.current)
        today = self._session.now.date()
        prices = listing.prices if listing is not None else {}
        offers = on_demand_offers(self._cloud, region, prices, sold or {}, listed.SOURCE, today)
        offers += spot_offers(self._cloud, region, agreed, prices, advice.bands, today)
        if attempt.forbidden(SPOT):
            as_of = min(written, today) if written else None
            offers += estimated_spot_offers(self._cloud, region, prices, advice, listed.SOURCE, as_of)
        covered = set()
        if not attempt.failed(ZONES, OFFERINGS, TYPES, SPOT) and now.whole and len(agreed) == len(now.current):
            covered.add((region, Market.SPOT))
        if listing is not None and not attempt.failed(OFFERINGS, TYPES) and not listing.lost:
            covered.add((region, Market.ON_DEMAND))
        harvest = Harvest(
            offers=offers,
            covered=frozenset(covered),
            machines=new,
            regions=new_region(self._cloud, self._session, region, "AWS EC2 DescribeRegions"),
            points=past.points,
            dropped=(*unusable, *past.dropped, *(listing.dropped if listing else ()), *advice.dropped),
            gaps=tuple(attempt.gaps),
            rows_read=len(current) + len(history) + (listing.rows_read if listing else 0),
        )
        return attempt.refuse_nothing(harvest)

    def _book_names(self) -> frozenset[str]:
        return frozenset(m.instance_type for m in self._session.book.machines if m.cloud == self._cloud)

    def _new_types(
        self, region: str, sold: Collection[str], attempt: Attempts
    ) -> tuple[tuple[Machine, ...], tuple[Dropped, ...]]:
        """Of the types sold here that the book does not know: the machines, and those that cannot be used."""
        cloud, book = self._cloud, self._session.book
        unknown = sorted(name for name in sold if book.machine(cloud, name) is None)
        with self._lock:
            missing = [name for name in unknown if name not in self._described]
        rows = attempt(TYPES, lambda: self._client.instance_types(region, missing)) if missing else ()
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
        return machines, tuple(Dropped(f"{region} {name}", one) for name, one in mine if isinstance(one, str))

    def _spot_rows(
        self, region: str, names: Collection[str], since: datetime | None, attempt: Attempts
    ) -> tuple[list[spot.Row], list[spot.Row]]:
        """Rows in force now, and rows since then; of what breaks off, what came before."""
        current: list[spot.Row] = []
        history: list[spot.Row] = []
        if not names:
            return current, history
        asked = sorted(names)

        def gather(into: list[spot.Row], start: datetime) -> None:
            for page in self._client.spot_prices(region, asked, start):
                into.extend(page)

        attempt(SPOT, lambda: gather(current, self._session.now))
        if since is not None:
            attempt(HISTORY, lambda: gather(history, max(since, self._session.now - _REMEMBERED)))
        return current, history

    def _listed(self, region: str, names: frozenset[str], *, complete: bool) -> Listed:
        """On-demand prices of ``names``; where these are ``complete``ly what is sold, one without a price is told.

        A type that is not among the list's GPU instances is asked for by its name: the list files some elsewhere.
        """
        texts = list(self._client.products(region))
        found = read_products(self._cloud, region, texts, names)
        if not complete:
            return found
        silent = sorted(names - found.prices.keys() - found.lost)
        for name in silent[:_ASKED_BY_NAME]:
            texts += self._client.products(region, name)
        found = read_products(self._cloud, region, texts, names)
        untold = [name for name in silent if name not in found.prices and name not in found.lost]
        dropped = tuple(Dropped(f"{region} {name} on demand", NOT_LISTED) for name in untold)
        lost = found.lost | set(silent[_ASKED_BY_NAME:])
        return replace(found, dropped=(*found.dropped, *dropped), lost=lost)
