"""Google Cloud adapter: a scope is a region, prices are those of the Cloud Billing catalogue.

Options of the clouds file: ``project`` (else that of the credentials) and ``quota_project``. Endpoints: ``compute`` and
``billing``; plain ``http://`` is taken for this machine only, and calls there carry no identity. There is no API key
option: a key is a secret, and Google's own credentials chain has places for those.

Not covered: N1 machines with attached accelerators (named in ``dropped``), TPUs, Flex-start, calendar mode,
commitments.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pricing.history import PricePoint
from pricing.offers import Offer
from pricing.places import Market, RegionId, make_unknown_region
from providers.caller import Once, PartialCalls
from providers.errors import (
    CredentialsError,
    NotForSaleError,
    NotReachedError,
    PermissionDeniedError,
    ProviderError,
    RegionOffError,
    RetryableError,
)
from providers.gcp import allowances, parse, permissions, signals
from providers.gcp.permissions import ApiCall
from providers.gcp.skus import SkuTable
from providers.protocol import (
    AccountAllowances,
    Diagnosis,
    DroppedRow,
    FetchResult,
    GangQuery,
    PartialFailure,
    Provider,
    Quota,
    Scope,
    StockHint,
    check_call,
)
from providers.session import Session

if TYPE_CHECKING:
    from providers.gcp.client import GcpClient, GoogleIdentity

K = TypeVar("K")
_LASTING = (CredentialsError, PermissionDeniedError, NotReachedError, RetryableError)


def make(cloud: str, session: Session) -> Provider:
    """Return the adapter; touches no network. ProviderError when Google's SDK is not installed."""
    try:
        missing = importlib.util.find_spec("google.cloud.compute_v1") is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise ProviderError(cloud, "google-cloud-compute is not installed", remedy="pip install 'stepfare[gcp]'")
    return GcpProvider(cloud, session)


class GcpProvider(Provider):
    """Fetch prices and limits of Google Cloud; see :class:`providers.protocol.Provider`.

    The SDK is imported by the first call that needs it.
    """

    def __init__(self, cloud: str, session: Session) -> None:
        self.cloud = cloud
        self._session = session
        self._client: Once[GcpClient] = Once(self._open)
        self._regions = Once(self._list_regions)
        self._accelerators = Once(lambda: self._client.get().accelerator_types())
        self._table = Once(self._read_catalogue)
        self._no_history: PermissionDeniedError | None = None

    def scopes(self) -> Sequence[Scope]:
        """Return regions of the project, or those that the settings name.

        CredentialsError without an account: Google publishes no price list that can be read without one.
        """
        regions = sorted(self._session.settings.regions or self._regions.get())
        return tuple(Scope(self.cloud, region) for region in regions)

    def fetch(self, scope: Scope, history_since: datetime | None) -> FetchResult:
        """Return offers of a region, one for each zone that lists the machine type, at the region's price.

        Google prices Spot and on-demand machines by region. Spot prices of the past, and the share of preempted among
        stopped Spot machines of a zone, come from advice.capacityHistory.
        """
        region = scope.region
        zones = self._zones(region)
        table = self._table.get()
        listed, gaps, rows_read = self._machine_types(zones)
        today = self._session.now.date()
        book = self._session.book
        found, doubtful = parse.find_offers(self.cloud, region, listed, table, book, today)
        points, history_gaps = self._history(region, found.offers, history_since)
        offers, odd_shares, share_gaps = self._with_shares(region, found.offers)
        others = PartialCalls()
        left_out = self._left_out(listed, others)
        known = book.region(RegionId(self.cloud, region)) is not None
        covered = [] if gaps else [market for market in parse.MARKETS if market not in doubtful]
        return replace(
            found,
            offers=offers,
            covered=frozenset((region, market) for market in covered),
            regions=() if known else (make_unknown_region(self.cloud, region, parse.MACHINE_SOURCE, today),),
            points=tuple(points),
            dropped=(*found.dropped, *odd_shares, *left_out),
            gaps=(*gaps, *history_gaps, *share_gaps, *others.gaps),
            rows_read=rows_read + len(points),
        )

    def stock(self, queries: Sequence[GangQuery]) -> Sequence[StockHint]:
        """Return how likely Spot gangs can be obtained, each whole in one zone of a region (advice.capacity).

        Google says nothing of on-demand stock. Raises only when no place could be asked.
        """
        hints: dict[tuple[str, str | None, str], StockHint] = {}
        failed: list[ProviderError] = []
        answered = False
        for gang in queries:
            if gang.market is not Market.SPOT:
                continue
            for region in gang.regions or tuple(sorted(self._regions.get())):
                try:
                    answer = self._client.get().capacity(region, gang.instance_type, gang.machines)
                except (NotForSaleError, RegionOffError):
                    answered = True
                    continue
                except ProviderError as error:
                    failed.append(error)
                    continue
                answered = True
                hint = signals.read_stock_hint(region, gang, answer)
                if hint is not None:
                    hints.setdefault((region, hint.zone, hint.instance_type), hint)
        if failed and not answered:
            raise failed[0]
        return tuple(hints.values())

    def allowances(self, regions: Sequence[str]) -> AccountAllowances:
        """Return accelerator quotas of the regions and over all of them, and reservations that are ready."""
        attempt = PartialCalls()
        quotas = self._quotas(regions, attempt)
        reserved = "machines reserved for the account"
        rows, silent = attempt("reservations", lambda: self._client.get().reservations(), reserved) or ([], [])
        if silent:
            what = f"{len(silent)} places did not answer, {silent[0]} among them"
            attempt.gaps.append(PartialFailure("reservations", ProviderError(self.cloud, what), reserved))
        reservations = allowances.read_reservations(self.cloud, rows, regions)
        return AccountAllowances(tuple(quotas), tuple(reservations), tuple(attempt.gaps))

    def diagnose(self) -> Diagnosis:
        """Make one cheap call for each permission."""
        try:
            client = self._client.get()
            identity = client.identity
        except ProviderError as error:
            return Diagnosis(None, error, (), None, None, ("nothing: Google Cloud shows no prices without an account",))
        return diagnose_account(client, identity, self._session)

    def _open(self) -> GcpClient:
        from providers.gcp.client import GcpClient  # The import takes over a second, so it waits until needed.

        return GcpClient(self.cloud, self._session)

    def _list_regions(self) -> Mapping[str, Mapping[str, Any]]:
        return {row["name"]: row for row in self._client.get().regions()}

    def _read_catalogue(self) -> SkuTable:
        table = SkuTable(self._session.now)
        for page in self._client.get().skus():
            table.add(page)
        return table

    def _zones(self, region: str) -> list[str]:
        row = self._regions.get().get(region)
        if row is None:
            raise RegionOffError(self.cloud, f"the project has no region {region}")
        return sorted(allowances.last_segment(url) for url in row.get("zones", ()))

    def _machine_types(self, zones: Sequence[str]) -> tuple[dict[str, list[dict[str, Any]]], list[PartialFailure], int]:
        listed: dict[str, list[dict[str, Any]]] = {}
        attempt = PartialCalls()
        rows_read = 0
        for zone in zones:
            types = partial(self._types_of, zone)
            if (found := attempt(f"machine types of {zone}", types, "offers of that zone")) is not None:
                listed[zone] = found[0]
                rows_read += found[1]
        if attempt.gaps and not listed:
            raise attempt.gaps[0].error
        return listed, attempt.gaps, rows_read

    def _types_of(self, zone: str) -> tuple[list[dict[str, Any]], int]:
        return self._client.get().machine_types(zone)

    def _ask_each(
        self, places: Iterable[K], ask: Callable[[K], Mapping[str, Any]], subject: str, would_add: str
    ) -> tuple[dict[K, Mapping[str, Any]], list[PartialFailure]]:
        """Return the advice on past prices or preemptions by place, and why there is none of some places.

        It is not asked for again once it was not permitted.
        """
        answers: dict[K, Mapping[str, Any]] = {}
        if self._no_history is not None:
            return answers, [PartialFailure(subject, self._no_history, would_add)]
        gaps: list[PartialFailure] = []
        for place in places:
            try:
                answers[place] = ask(place)
            except (NotForSaleError, RegionOffError):
                continue  # Google publishes nothing of this type there.
            except ProviderError as error:
                gaps = [PartialFailure(subject, error, would_add)]
                if isinstance(error, PermissionDeniedError):
                    self._no_history = error
                if isinstance(error, _LASTING):
                    break  # The calls for other places would fail as well.
        return answers, gaps

    def _history(
        self, region: str, offers: tuple[Offer, ...], since: datetime | None
    ) -> tuple[list[PricePoint], list[PartialFailure]]:
        if since is None:
            return [], []
        names = sorted({offer.instance_type for offer in offers if offer.market is Market.SPOT})
        answers, gaps = self._ask_each(
            names,
            lambda name: self._client.get().capacity_history(region, name),
            "spot price history",
            "spot prices of the past year",
        )
        now = self._session.now
        read = (signals.read_spot_prices(self.cloud, region, answer, since, now) for answer in answers.values())
        return [point for points in read for point in points], gaps

    def _with_shares(
        self, region: str, offers: tuple[Offer, ...]
    ) -> tuple[tuple[Offer, ...], list[DroppedRow], list[PartialFailure]]:
        answers, gaps = self._ask_each(
            sorted({(o.zone or "", o.instance_type) for o in offers if o.market is Market.SPOT}),
            lambda place: self._client.get().preemption_history(region, *place),
            "shares of preempted Spot machines",
            "how often Spot machines of each zone are preempted",
        )
        read = {place: signals.read_preempted_share(*place, answer) for place, answer in answers.items()}
        shares = {place: share for place, (share, _) in read.items()}
        return (
            tuple(
                replace(offer, preempted_share=shares.get((offer.zone or "", offer.instance_type)))
                if offer.market is Market.SPOT
                else offer
                for offer in offers
            ),
            [row for _, odd in read.values() for row in odd],
            gaps,
        )

    def _left_out(self, listed: Mapping[str, list[dict[str, Any]]], attempt: PartialCalls) -> list[DroppedRow]:
        would_add = "the names of accelerators that are left out"
        by_zone = attempt("accelerator types", self._accelerators.get, would_add)
        return [
            dropped
            for zone, rows in (sorted(listed.items()) if by_zone is not None else ())
            for dropped in parse.list_unpriced_accelerators(zone, (by_zone or {}).get(zone, ()), rows)
        ]

    def _quotas(self, regions: Sequence[str], attempt: PartialCalls) -> list[Quota]:
        quotas: list[Quota] = []
        rows = attempt("quotas", self._regions.get, "accelerator quotas of each region")
        if rows is not None:
            for region in regions or sorted(rows):
                quotas += allowances.read_quotas(self.cloud, region, rows.get(region, {}).get("quotas", ()))
            if unknown := allowances.find_uncounted_accelerators(quotas):
                what = f"Compute Engine states none for {', '.join(unknown)}; the Cloud Quotas API may"
                gap = PartialFailure("quotas", ProviderError(self.cloud, what), "limits on these accelerators")
                attempt.gaps.append(gap)
        overall = "the quota over all regions"
        project = attempt(overall, lambda: self._client.get().project(), "a limit that holds over all regions") or {}
        return quotas + allowances.read_quotas(self.cloud, None, project.get("quotas", ()))


# Any project can ask about this place and machine type.
_ZONE, _REGION, _MACHINE_TYPE = "us-central1-a", "us-central1", "g2-standard-4"


def diagnose_account(client: GcpClient, identity: GoogleIdentity, session: Session) -> Diagnosis:
    """Return the diagnosis. Never raises."""
    checks = tuple(
        check_call(call.permission or call.method, call.needed_for, partial(_is_permitted, ask))
        for call, ask in _trials(client).items()
    )
    return Diagnosis(
        identity=f"{identity.name}, project {identity.project}",
        identity_error=None,
        checks=checks,
        clock_ahead=session.caller.clock_ahead(session.now),
        latency=client.fastest,
        sources=_sources({check.needed_for for check in checks if check.error is None}),
    )


def _trials(client: GcpClient) -> dict[ApiCall, Callable[[], object]]:
    return {
        permissions.REGIONS: partial(client.try_list, permissions.REGIONS),
        permissions.MACHINE_TYPES: partial(client.try_list, permissions.MACHINE_TYPES, zone=_ZONE),
        permissions.SKUS: client.try_skus,
        permissions.HISTORY: partial(client.capacity_history, _REGION, _MACHINE_TYPE),
        permissions.ADVICE: partial(client.capacity, _REGION, _MACHINE_TYPE, 1),
        permissions.PROJECT: client.project,
        permissions.RESERVATIONS: partial(client.try_list, permissions.RESERVATIONS),
        permissions.OPERATIONS: partial(client.try_list, permissions.OPERATIONS),
        permissions.ACCELERATOR_TYPES: partial(client.try_list, permissions.ACCELERATOR_TYPES),
    }


def _is_permitted(ask: Callable[[], object]) -> None:
    with suppress(NotForSaleError):  # The call was permitted.
        ask()


def _sources(works: set[str]) -> tuple[str, ...]:
    needed = (permissions.REGIONS, permissions.MACHINE_TYPES, permissions.SKUS)
    if not all(call.needed_for in works for call in needed):
        return ("nothing: regions, machine types and prices are all needed",)
    found = ["on-demand and Spot prices of every zone, from the Cloud Billing catalogue"]
    if permissions.HISTORY.needed_for in works:
        found.append("Spot prices of the past year, and the share of stopped Spot machines that were preempted")
    return tuple(found)
