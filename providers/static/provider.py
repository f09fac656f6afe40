"""Static pool adapter: its offers are the groups of hosts in the pool file. No network is involved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

from pricing.egress import CROSS_CONTINENT, INTERNET, SAME_CONTINENT, Tariff, Tier
from pricing.history import price_point
from pricing.money import UsdPerGb
from pricing.offers import Offer
from pricing.places import Market
from providers.errors import ProviderError
from providers.protocol import (
    CallCheck,
    Diagnosis,
    DroppedRow,
    FetchResult,
    GangQuery,
    Provider,
    Scope,
    StockHint,
)
from providers.session import Session
from providers.static.pool import Hosts, Pool

SOURCE = "pool.yaml"
UNKNOWN_ACCELERATOR = "the accelerator is not in the book"
_COVERED = (Market.ON_DEMAND, Market.SPOT)


class StaticProvider(Provider):
    """Offer the hosts of a pool file.

    Which of them are busy is not known here: ``machines_cap`` is how many there are, which is the only limit.
    """

    def __init__(self, cloud: str, session: Session) -> None:
        self.cloud = cloud
        self._session = session

    def scopes(self) -> Sequence[Scope]:
        """Return one scope for each site."""
        wanted = self._session.settings.regions
        sites = [site.name for site in self._pool().sites if not wanted or site.name in wanted]
        if not sites:
            raise ProviderError(self.cloud, f"the pool has no site called {' or '.join(wanted)}")
        return tuple(Scope(self.cloud, name) for name in sorted(sites))

    def fetch(self, scope: Scope, history_since: datetime | None) -> FetchResult:
        """Return the site's hosts at their price, dated as the file is; all of the site is covered.

        The site and its machine types are included unless the book has exactly the same: the file may have been
        corrected.
        """
        pool = self._pool()
        day = self._day(pool)
        book = self._session.book
        site = next((site for site in pool.sites if site.name == scope.region), None)
        if site is None:
            raise ProviderError(self.cloud, f"the pool has no site called {scope.region}")
        groups = [group for group in pool.hosts if group.site == site.name]
        types = {machine.type: machine for machine in pool.machines}
        offers, machines, dropped = [], [], []
        for group in sorted(groups, key=lambda group: group.machine):
            accelerator = book.accelerator(types[group.machine].accelerator)
            if accelerator is None:
                dropped.append(DroppedRow(f"{group.name} ({types[group.machine].accelerator})", UNKNOWN_ACCELERATOR))
                continue
            offers.append(self._offer(group, day))
            machine = types[group.machine].machine(self.cloud, accelerator, SOURCE, day)
            if book.machine(self.cloud, group.machine) != machine:
                machines.append(machine)
        region = site.region(self.cloud, SOURCE, day)
        return FetchResult(
            offers=tuple(offers),
            covered=frozenset((site.name, market) for market in _COVERED),
            machines=tuple(machines),
            regions=() if book.region(region.id) == region else (region,),
            tariffs=self._tariffs(pool, day),
            points=tuple(price_point(offer, datetime.combine(day, time(), UTC)) for offer in offers)
            if history_since is not None and history_since.date() <= day
            else (),
            dropped=tuple(dropped),
            rows_read=len(groups),
        )

    def _tariffs(self, pool: Pool, day: date) -> tuple[Tariff, ...]:
        if pool.egress_usd_per_gb is None:
            return ()
        tiers = (Tier(0, None, UsdPerGb.parse(pool.egress_usd_per_gb)),)
        scopes = (INTERNET, SAME_CONTINENT, CROSS_CONTINENT)
        return tuple(Tariff(self.cloud, scope, "any", "any", tiers, SOURCE, day.isoformat(), "") for scope in scopes)

    def stock(self, queries: Sequence[GangQuery]) -> Sequence[StockHint]:
        """Return how many hosts there are, free or not."""
        pool = self._pool()
        hints = []
        for group in sorted(pool.hosts, key=lambda group: (group.site, group.machine)):
            asked = [w for w in queries if w.instance_type == group.machine and w.market is Market.ON_DEMAND]
            if any(not w.regions or group.site in w.regions for w in asked):
                hints.append(StockHint(group.site, None, group.machine, Market.ON_DEMAND, None, group.count, SOURCE))
        return tuple(hints)

    def diagnose(self) -> Diagnosis:
        """Return what the pool file holds, or what it lacks."""
        try:
            pool = self._pool()
            self._day(pool)
        except ProviderError as error:
            return Diagnosis(None, None, (CallCheck("", "hosts", error),), None, None, ("no hosts",))
        hosts = sum(group.count for group in pool.hosts)
        what = f"{hosts} hosts in {len(pool.hosts)} groups at {len(pool.sites)} sites, at their amortised price"
        return Diagnosis(None, None, (CallCheck("", "hosts", None),), None, timedelta(0), (what,))

    def _pool(self) -> Pool:
        document = self._session.settings.document
        if isinstance(document, Pool):
            return document
        remedy = f"name it in the clouds file: clouds.{self.cloud}.file"
        raise ProviderError(self.cloud, "there is no pool file", remedy=remedy)

    def _day(self, pool: Pool) -> date:
        today = self._session.now.date()
        if pool.as_of is not None and pool.as_of > today:
            raise ProviderError(self.cloud, f"the pool file is dated {pool.as_of}, and today is {today}")
        return pool.as_of or today

    def _offer(self, group: Hosts, day: date) -> Offer:
        return Offer(
            cloud=self.cloud,
            region=group.site,
            zone=None,
            instance_type=group.machine,
            market=Market.ON_DEMAND,
            usd_per_hour=group.price(),
            source=SOURCE,
            as_of=day,
            machines_cap=group.count,
            price_basis="amortised" if group.amortised else "list",
        )
