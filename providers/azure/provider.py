"""Azure adapter.

Prices are public. With the option ``subscription`` and an identity in Azure's own chain, the subscription's SKUs say in
which zones it may start what, and which sizes the price book does not know yet, and
Azure Resource Graph how often spot machines are evicted. There are no stock hints (Spot
Placement Scores need an SDK package that this adapter does not use), and no notices: Azure sends them inside the
machine only, as Scheduled Events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

from pricing.machines import Machine
from providers.azure import client
from providers.azure.calls import AzureCalls, RetailPrices, Row
from providers.azure.client import parse_identity
from providers.azure.parse.allowances import family_key, place_of, read_quotas, read_reservations, region_of
from providers.azure.parse.evictions import EvictionRates, read_eviction_rates, set_bands
from providers.azure.parse.prices import read_prices
from providers.azure.parse.region import RegionContext, read_locations, read_points, read_region
from providers.azure.parse.skus import SkuList, build_machine, read_skus
from providers.caller import Once
from providers.errors import AccountNotUsedError, CredentialsError, ProviderError, RegionOffError
from providers.protocol import (
    AccountAllowances,
    CallCheck,
    CapacityReservation,
    Diagnosis,
    FetchResult,
    PartialFailure,
    Provider,
    Quota,
    Scope,
    check_call,
)
from providers.session import Session

_WITH_ACCOUNT = (
    "which zones and sizes the subscription may use, sizes that the price book does not know yet, and eviction rates"
)
_RATES = "eviction rates of spot machines"
_WITH_RATES = "how often Azure says that spot machines are evicted"
_ZONES = "zones, restrictions and new machine types"
_AT_ONCE = 8
_PUBLIC = "none: public"
_ONE_SIZE = "Standard_ND96isr_H100_v5"


class AzureProvider(Provider):
    """Fetch prices and limits of Azure; see :class:`providers.protocol.Provider`.

    ``credential`` replaces Azure's own chain.
    """

    def __init__(self, cloud: str, session: Session, credential: client.TokenSource | None = None) -> None:
        self.cloud = cloud
        self._session = session
        self._context = RegionContext(cloud, session.book, session.now)
        self._calls = AzureCalls(cloud, session)
        self._retail = RetailPrices(self._calls)
        self._account = client.AzureAccount(self._calls, credential)
        self._skus: dict[str, SkuList] = {}
        self._rates = Once(self._rate_rows)
        self._unseen_regions: tuple[PartialFailure, ...] = ()

    def scopes(self) -> Sequence[Scope]:
        """Return the regions asked for; else those of the price book and, with credentials, of the subscription."""
        regions = set(self._session.settings.regions) or self._known_regions()
        if self._account.subscription and not self._session.settings.regions:
            try:
                regions |= read_locations(self._account.locations())
                self._unseen_regions = ()
            except ProviderError as error:
                self._unseen_regions = (PartialFailure("regions newer than the price book", error, "offers there"),)
        return sorted(Scope(self.cloud, region) for region in regions)

    def fetch(self, scope: Scope, history_since: datetime | None) -> FetchResult:
        region = scope.region
        prices = read_prices(self._retail.prices(region), region, self._session.now)
        skus, gaps = self._try_skus(region)
        # Rows of the region must not replace older rows by zone only because the SKUs failed today.
        whole = skus is not None or not self._account.subscription
        result = read_region(self._context, region, prices, skus, whole=whole)
        rates, rate_gaps = self._try_rates(region)
        return replace(
            result,
            offers=set_bands(result.offers, rates, self._session.now.date()),
            points=() if history_since is None else read_points(self._context, region, prices, history_since),
            dropped=(*result.dropped, *rates.dropped),
            gaps=(*gaps, *rate_gaps, *self._unseen_regions),
            rows_read=result.rows_read + rates.rows_read,
        )

    def allowances(self, regions: Sequence[str]) -> AccountAllowances:
        if not self._account.subscription:
            return AccountAllowances(gaps=(self._no_account("quotas and capacity reservations"),))
        wanted = tuple(regions) or tuple(scope.region for scope in self.scopes())
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            parts = list(pool.map(self._quotas, wanted))
        reservations, gaps = self._reservations(frozenset(wanted))
        return AccountAllowances(
            quotas=tuple(quota for quotas, _ in parts for quota in quotas),
            held=reservations,
            gaps=(*(gap for _, gaps in parts for gap in gaps), *gaps),
        )

    def diagnose(self) -> Diagnosis:
        region = min(self._session.settings.regions or self._known_regions() or {"eastus"})
        checks = [check_call(_PUBLIC, "prices", lambda: self._retail.prices(region, _ONE_SIZE))]
        identity, identity_error = None, None
        if self._session.settings.credentials and not self._account.subscription:
            identity_error = self._no_account(_ZONES).error
        if self._account.subscription:
            try:
                identity = parse_identity(self._account.token(), self._account.subscription)
            except ProviderError as error:
                identity_error = error
            checks.extend(self._account_checks(region))
        fastest = self._calls.fastest_s
        return Diagnosis(
            identity=identity,
            identity_error=identity_error,
            checks=tuple(checks),
            clock_ahead=self._session.caller.clock_ahead(self._session.now),
            latency=None if fastest is None else timedelta(seconds=fastest),
            sources=self._sources(checks),
        )

    def _known_regions(self) -> set[str]:
        return {region.id.region for region in self._session.book.regions if region.id.cloud == self.cloud}

    def _try_skus(self, region: str) -> tuple[SkuList | None, tuple[PartialFailure, ...]]:
        """Return the region's SKUs, or why there are none. RegionOffError: nothing there is for this account."""
        if not self._account.subscription:
            return None, (self._no_account(_ZONES),)
        try:
            skus = read_skus(self._account.skus(region), region)
        except RegionOffError:
            raise
        except ProviderError as error:
            return None, (PartialFailure(_ZONES, error, _WITH_ACCOUNT),)
        self._skus[region] = skus
        return skus, ()

    def _try_rates(self, region: str) -> tuple[EvictionRates, tuple[PartialFailure, ...]]:
        """Return the region's eviction rates, or why there are none; that there is no account is said already."""
        try:
            return read_eviction_rates(self._rates.get() if self._account.subscription else (), region), ()
        except ProviderError as error:
            return read_eviction_rates((), region), (PartialFailure(_RATES, error, _WITH_RATES),)

    def _rate_rows(self) -> list[Row]:
        """Return the rates of all regions asked for: one query serves, and fails, for all of them."""
        rows = self._account.eviction_rates(self._session.settings.regions)
        if not rows:
            what = "the table SpotResources of Azure Resource Graph has no rows for this identity"
            remedy = f"grant {client.READ_GRAPH} on the subscription: providers/azure/role.json lists all"
            raise ProviderError(self.cloud, what, remedy=remedy)
        return rows

    def _no_account(self, subject: str) -> PartialFailure:
        error: ProviderError
        if self._session.settings.credentials:
            error = CredentialsError(
                self.cloud,
                "no subscription is configured",
                none_found=True,
                remedy="set the option `subscription`; `az account show --query id` prints it",
            )
        else:
            error = AccountNotUsedError(self.cloud, "the settings say to use public sources only")
        return PartialFailure(
            subject, error, _WITH_ACCOUNT if subject == _ZONES else "what the account may have at once"
        )

    def _quotas(self, region: str) -> tuple[tuple[Quota, ...], tuple[PartialFailure, ...]]:
        gaps: tuple[PartialFailure, ...] = ()
        try:
            if region not in self._skus:
                _, gaps = self._try_skus(region)
            usages = self._account.usages(region)
        except ProviderError as error:
            return (), (*gaps, PartialFailure(f"quotas of {region}", error, "what the account may have at once"))
        return read_quotas(self.cloud, region, usages, self._families(region)), gaps

    def _families(self, region: str) -> dict[str, list[Machine]]:
        """Return the machines of each family that the region has, by the key under which usages name it."""
        families: dict[str, list[Machine]] = {}
        book, today = self._session.book, self._session.now.date()
        for sku in self._skus[region].skus.values() if region in self._skus else ():
            machine = book.machine(self.cloud, sku.instance_type) or build_machine(sku, book, self.cloud, today)
            if machine is not None:
                families.setdefault(family_key(sku.family), []).append(machine)
        return families

    def _reservations(
        self, regions: frozenset[str]
    ) -> tuple[tuple[CapacityReservation, ...], tuple[PartialFailure, ...]]:
        reservations: list[CapacityReservation] = []
        try:
            for group in self._account.reservation_groups():
                if region_of(group) in regions:
                    place = place_of(group)
                    rows = self._account.reservations(*place)
                    view = self._account.group_view(*place) if rows else {}
                    reservations.extend(read_reservations(self.cloud, group, rows, view))
        except ProviderError as error:
            return tuple(reservations), (
                PartialFailure("capacity reservations", error, "capacity that is paid for already"),
            )
        return tuple(sorted(reservations, key=lambda reservation: (reservation.region, reservation.name))), ()

    def _account_checks(self, region: str) -> Iterable[CallCheck]:
        account = self._account
        yield check_call(client.READ_LOCATIONS, "regions newer than the price book", account.locations)
        yield check_call(client.READ_SKUS, _ZONES, lambda: account.skus(region))
        yield check_call(client.READ_GRAPH, _RATES, lambda: account.eviction_rates((region,)))
        yield check_call(client.READ_USAGES, "quotas", lambda: account.usages(region))
        groups: list[dict[str, object]] = []
        yield check_call(
            client.READ_GROUPS, "capacity reservations", lambda: groups.extend(account.reservation_groups())
        )
        if groups:
            place = place_of(groups[0])
            yield check_call(client.READ_RESERVATIONS, "machines in reservations", lambda: account.reservations(*place))

    def _sources(self, checks: Iterable[CallCheck]) -> tuple[str, ...]:
        works = {check.permission for check in checks if check.error is None}
        sources = []
        if _PUBLIC in works:
            sources.append("on-demand and spot prices by region from the public Retail Prices API")
        else:
            sources.append("nothing: the public Retail Prices API does not answer")
        if client.READ_SKUS in works:
            sources.append("zones, restrictions and new machine types from the subscription's SKUs")
        else:
            sources.append("no zones: machines that the price book knows, wherever a price is listed")
        if client.READ_GRAPH in works:
            sources.append("eviction rates by region and machine type from Azure Resource Graph")
        sources.append("no stock and no notices: Azure tells of interruptions inside the machine only")
        return tuple(sources)
