"""Sandbox adapter: it plays its script as of the session's moment."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from pricing.history import PricePoint, merge_points
from pricing.offers import Offer
from pricing.places import Market
from providers.errors import ProviderError
from providers.protocol import (
    AccountAllowances,
    CallCheck,
    Diagnosis,
    DroppedRow,
    FetchResult,
    GangQuery,
    Provider,
    Quota,
    Scope,
    StockHint,
)
from providers.sandbox.default_script import make_default_script
from providers.sandbox.script import Failure, Prices, Script, make_scripted_error
from providers.session import Session

SOURCE = "sandbox script"
UNKNOWN_ACCELERATOR = "the accelerator is not in the book"
T = TypeVar("T")


@dataclass
class _FailureQueue:
    """The scripted failures that no call has met yet; safe for threads."""

    failures: tuple[Failure, ...]
    met: Counter[int] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, method: str, subject: str) -> Failure | None:
        """Return the failure that a call meets; ``subject`` is "" for nothing in particular."""
        with self.lock:
            for number, failure in enumerate(self.failures):
                remaining = failure.times - self.met[number]
                if remaining and failure.call == method and failure.region in {None, subject}:
                    self.met[number] += 1
                    return failure
        return None


def make(cloud: str, session: Session) -> SandboxProvider:
    """Return the sandbox of the script in ``settings.document``, or of the default script."""
    document = session.settings.document
    if document is not None and not isinstance(document, Script):
        raise ProviderError(cloud, "what it was given is no sandbox script")
    script = document or make_default_script(session.now)
    return SandboxProvider(cloud, session, script)


class SandboxProvider(Provider):
    """Play the script as of the session's moment."""

    def __init__(self, cloud: str, session: Session, script: Script) -> None:
        self.cloud = cloud
        self._session = session
        self._script = script
        self._failures = _FailureQueue(script.failures)

    def scopes(self) -> Sequence[Scope]:
        """Return one scope for each region."""
        wanted = self._session.settings.regions
        names = sorted(region.name for region in self._script.regions if not wanted or region.name in wanted)
        scopes = tuple(Scope(self.cloud, name) for name in names)
        if not scopes:
            raise ProviderError(self.cloud, f"the script has no region called {' or '.join(wanted)}")
        return self._play("scopes", "", lambda: scopes)

    def fetch(self, scope: Scope, history_since: datetime | None) -> FetchResult:
        """Return offers with their stock as cap (0 where there is none), and the steps since ``history_since``.

        The region is covered whole; region and machine types are included unless the book has exactly the same, since
        the script may have been changed.
        """
        return self._play("fetch", scope.region, lambda: self._fetch(scope.region, history_since))

    def stock(self, queries: Sequence[GangQuery]) -> Sequence[StockHint]:
        """Return the scripted stock; its score is 1 where it is enough for the gang, else 0."""
        return self._play("stock", "", lambda: self._hints(queries))

    def allowances(self, regions: Sequence[str]) -> AccountAllowances:
        """Return the scripted quotas that hold in these regions."""
        return self._play("allowances", "", lambda: self._allowances(frozenset(regions)))

    def diagnose(self) -> Diagnosis:
        """Return a diagnosis in which all works; a scripted failure of another call is not used up."""
        regions, series = len(self._script.regions), len(self._script.prices)
        return Diagnosis(
            identity=SOURCE,
            identity_error=None,
            checks=(CallCheck("", "prices, stock, notices", None),),
            clock_ahead=timedelta(0),
            latency=timedelta(seconds=self._script.latency_s),
            sources=(f"{series} scripted prices in {regions} simulated regions",),
        )

    def _play(self, method: str, subject: str, answer: Callable[[], T]) -> T:
        def ask() -> T:
            failure = self._failures.take(method, subject)
            if self._script.latency_s:
                time.sleep(self._script.latency_s)
            if failure is not None:
                raise make_scripted_error(self.cloud, failure.kind, method, failure.retry_after_s)
            return answer()

        def translate(error: Exception) -> ProviderError:
            return ProviderError(self.cloud, "the script cannot be played", code=type(error).__name__)

        return self._session.caller.call(self.cloud, ask, translate)

    def _fetch(self, name: str, since: datetime | None) -> FetchResult:
        script, book, now = self._script, self._session.book, self._session.now
        region = next((region for region in script.regions if region.name == name), None)
        if region is None:
            raise ProviderError(self.cloud, f"the script has no region called {name}")
        place = region.region(self.cloud, SOURCE, now.date())
        machines, dropped = [], []
        for machine in script.machines:
            accelerator = book.accelerator(machine.accelerator)
            if accelerator is None:
                dropped.append(DroppedRow(f"{machine.type} ({machine.accelerator})", UNKNOWN_ACCELERATOR))
            else:
                machines.append(machine.machine(self.cloud, accelerator, SOURCE, now.date()))
        usable = {machine.instance_type for machine in machines}
        series = [prices for prices in script.prices if prices.region == name and prices.machine in usable]
        offers = sorted((offer for offer in map(self._offer, series) if offer), key=lambda offer: offer.key)
        return FetchResult(
            offers=tuple(offers),
            covered=frozenset((name, market) for market in Market),
            machines=tuple(m for m in machines if book.machine(self.cloud, m.instance_type) != m),
            regions=() if book.region(place.id) == place else (place,),
            points=() if since is None else tuple(self._points(series, since)),
            dropped=tuple(dropped),
            rows_read=len(series),
        )

    def _offer(self, prices: Prices) -> Offer | None:
        step = self._script.in_force(prices.steps, self._session.now)
        if step is None or step.price is None:
            return None
        return Offer(
            cloud=self.cloud,
            region=prices.region,
            zone=prices.zone,
            instance_type=prices.machine,
            market=prices.market,
            usd_per_hour=step.price,
            source=SOURCE,
            as_of=self._session.now.date(),
            machines_cap=self._machines(prices.key),
            price_basis="zone" if prices.zone and prices.market is Market.SPOT else "list",
        )

    def _machines(self, key: tuple[str, str, str, Market]) -> int | None:
        for stock in self._script.stock:
            if stock.key == key:
                step = self._script.in_force(stock.steps, self._session.now)
                return None if step is None else step.machines
        return None

    def _points(self, series: Sequence[Prices], since: datetime) -> list[PricePoint]:
        points = []
        for prices in series:
            place = (self.cloud, prices.region, prices.zone, prices.machine, prices.market)
            point = PricePoint(*place, self._session.now, SOURCE)
            for moment, step in self._script.between(prices.steps, since, self._session.now):
                if step.price is not None:
                    points.append(replace(point, at=moment, usd_per_hour=step.price))
            for stock in (stock for stock in self._script.stock if stock.key == prices.key):
                for moment, stocked in self._script.between(stock.steps, since, self._session.now):
                    points.append(replace(point, at=moment, available=1.0 if stocked.machines else 0.0))
        return sorted(merge_points(points), key=lambda p: (p.at, p.instance_type, p.zone or "", p.market))

    def _hints(self, queries: Sequence[GangQuery]) -> tuple[StockHint, ...]:
        hints: dict[tuple[str, str, str, Market], StockHint] = {}
        for stock in self._script.stock:
            gangs = [
                gang.machines
                for gang in queries
                if (gang.instance_type, gang.market) == (stock.machine, stock.market)
                and (not gang.regions or stock.region in gang.regions)
            ]
            step = self._script.in_force(stock.steps, self._session.now)
            if gangs and step is not None:
                score = 1.0 if step.machines >= max(gangs) else 0.0
                hints[stock.key] = StockHint(
                    stock.region, stock.zone, stock.machine, stock.market, score, step.machines, SOURCE
                )
        return tuple(hints[key] for key in sorted(hints))

    def _allowances(self, regions: frozenset[str]) -> AccountAllowances:
        return AccountAllowances(
            quotas=tuple(
                Quota(cloud=self.cloud, **dict(quota))
                for quota in self._script.quotas
                if not regions or quota.region is None or quota.region in regions
            )
        )
