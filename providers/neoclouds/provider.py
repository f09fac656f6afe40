"""Adapters of the small clouds: those read from a daily catalogue, and the one that is asked at its market."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

from providers.errors import NotReachedError, ProviderError, UnreadableError
from providers.neoclouds.client import MOST_HOSTS, CatalogueClient, HttpAnswer
from providers.neoclouds.clouds import GPUHUNT, CatalogueEntry, load_catalogue_entries
from providers.neoclouds.parse.accelerators import AcceleratorIndex
from providers.neoclouds.parse.catalogue import read_catalogue
from providers.neoclouds.parse.catalogue_rows import CatalogueContent, NotACatalogueError
from providers.neoclouds.parse.fetch_result import CatalogueTerms, build_fetch_result
from providers.neoclouds.parse.hosts import HostGroup, read_hosts
from providers.protocol import (
    CallCheck,
    Diagnosis,
    FetchResult,
    GangQuery,
    PartialFailure,
    Provider,
    Scope,
    StockHint,
)
from providers.session import Session

# A catalogue may be dated tomorrow where this machine's clock is behind; a later date is refused.
_CLOCKS_DIFFER = timedelta(days=1)


def make(cloud: str, session: Session) -> Provider:
    """Return the provider of one of the clouds in ``clouds.json``; KeyError for another.

    Endpoints: ``catalogue``, the address above the clouds' folders, and ``market``, the address of the live market's
    query.
    """
    entry = load_catalogue_entries()[cloud]
    return MarketProvider(cloud, entry, session) if entry.live else CatalogueProvider(cloud, entry, session)


class _Public(Provider):
    """The common part of providers without an account: one scope, no reservations."""

    def __init__(self, cloud: str, entry: CatalogueEntry, session: Session) -> None:
        self.cloud = cloud
        self._entry = entry
        self._session = session
        self._client = CatalogueClient(cloud, entry.catalogue, session)

    def scopes(self) -> Sequence[Scope]:
        """Return one scope: what is published of the cloud is fetched whole."""
        return (Scope(self.cloud, ""),)

    def _terms(self, source: str, as_of: date, at: datetime | None) -> CatalogueTerms:
        return CatalogueTerms(
            cloud=self.cloud,
            source=source,
            as_of=as_of,
            today=self._session.now.date(),
            list_all=GPUHUNT in self._entry.list_all_in,
            markets=self._entry.markets,
            regions=frozenset(self._session.settings.regions),
            at=at,
        )

    def _diagnosis(self, probe: Callable[[], HttpAnswer], needed_for: str, source: str) -> Diagnosis:
        try:
            answer = probe()
        except ProviderError as error:
            check = CallCheck("", needed_for, error)
            state = "not reached now" if isinstance(error, NotReachedError) else "not available now"
            return Diagnosis(None, None, (check,), None, None, (f"{source}: {state}",))
        return Diagnosis(
            identity=None,
            identity_error=None,
            checks=(CallCheck("", needed_for, None),),
            clock_ahead=self._session.now - answer.server_time if answer.server_time else None,
            latency=timedelta(seconds=answer.seconds),
            sources=(source,),
        )


class CatalogueProvider(_Public):
    """A cloud whose prices come from the catalogue that ``gpuhunt`` publishes daily. Its stock is not known."""

    def fetch(self, scope: Scope, history_since: datetime | None) -> FetchResult:  # noqa: ARG002  there is one scope
        """Return offers dated as the catalogue is; that one day is all the history it holds."""
        version, _ = self._client.version()
        day = self._day(version)
        text = self._client.catalogue(version)
        try:
            reading = read_catalogue(io.StringIO(text, newline=""), lambda _: self._entry.naming)
        except NotACatalogueError as error:
            what = f"the catalogue is not of the known form: {error.column} {error.what}".replace("  ", " ")
            raise UnreadableError(self.cloud, what) from None
        listed = reading.get("", CatalogueContent())
        listed.skip(self._entry.skip)
        is_history_wanted = history_since is not None and history_since.date() <= day
        at = datetime.combine(day, time(), UTC) if is_history_wanted else None
        terms = self._terms(f"gpuhunt catalogue {version}", day, at)
        return build_fetch_result(listed, self._session.book, terms)

    def diagnose(self) -> Diagnosis:
        """Return whether the catalogue answers."""
        source = "list prices from gpuhunt's public catalogue, a day old at most"
        return self._diagnosis(lambda: self._client.version()[1], "prices", source)

    def _day(self, version: str) -> date:
        today = self._session.now.date()
        try:
            day = date.fromisoformat(version[:8])
        except ValueError:
            raise UnreadableError(self.cloud, f"the catalogue's version {version} is no date") from None
        if day > today + _CLOCKS_DIFFER:
            raise UnreadableError(self.cloud, f"the catalogue is dated {day}, and today is {today}")
        return min(day, today)


class MarketProvider(_Public):
    """A cloud of many hosts' owners that is asked for its free hosts as they are now, without an account.

    ``parse/hosts.py`` describes how hosts become offers.
    """

    def fetch(self, scope: Scope, history_since: datetime | None) -> FetchResult:  # noqa: ARG002  there is one scope
        """Return offers of this moment. Nothing is covered when the market holds more hosts than one answer does."""
        _, reading, whole = self._ask()
        now = self._session.now
        terms = self._terms("Vast.ai free hosts", now.date(), now if history_since is not None else None)
        result = build_fetch_result(reading, self._session.book, terms)
        if whole:
            return result
        error = ProviderError(self.cloud, f"there are over {MOST_HOSTS} free hosts, the most that one answer holds")
        gap = PartialFailure("free hosts beyond those", error)
        return replace(result, covered=frozenset(), gaps=(gap,))

    def stock(self, queries: Sequence[GangQuery]) -> Sequence[StockHint]:
        """Return the number of free hosts, at any price."""
        if not queries:
            return ()
        groups, _, _ = self._ask()
        hints = {}
        for group in groups:
            regions = [w.regions for w in queries if (w.instance_type, w.market) == (group.instance_type, group.market)]
            if any(not places or group.region in places for places in regions):
                hints[group.region, group.instance_type, group.market] = StockHint(
                    region=group.region,
                    zone=None,
                    instance_type=group.instance_type,
                    market=group.market,
                    score=None,
                    machines=len(group.prices),
                    source="Vast.ai free hosts",
                )
        return tuple(hints[key] for key in sorted(hints))

    def diagnose(self) -> Diagnosis:
        """Return whether the market answers."""
        probe = self._entry.accelerators[:1]
        return self._diagnosis(lambda: self._client.hosts(probe)[1], "prices and stock", "free hosts of this moment")

    def _ask(self) -> tuple[list[HostGroup], CatalogueContent, bool]:
        answer, _ = self._client.hosts(self._entry.accelerators)
        try:
            groups, reading = read_hosts(answer, AcceleratorIndex(self._session.book.accelerators))
        except ValueError as error:
            raise UnreadableError(self.cloud, f"the market's answer is not of the known form: {error}") from None
        return groups, reading, reading.rows < MOST_HOSTS
