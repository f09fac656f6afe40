"""The contract of ``providers/protocol.py`` as tests; each adapter's test module subclasses it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import ClassVar

import pytest

from pricing.book import PriceBook
from pricing.book_file import embedded_book
from pricing.places import Market
from pricing.risk import AWS_BANDS, AZURE_BANDS
from providers.caller import Caller
from providers.errors import ProviderError
from providers.protocol import (
    AccountAllowances,
    Diagnosis,
    FetchResult,
    GangQuery,
    Provider,
    Scope,
    StockHint,
)
from providers.registry import CLOUDS
from providers.session import Session, Settings
from tests.support.service import CALL_LIMIT_S

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
SINCE = NOW - timedelta(days=2)
OURS = ("pricing.", "providers.")
PLAIN = (str, int, float, bool, date, timedelta, type(None), bytes)


def _values(value: object) -> Iterator[object]:
    """Every leaf inside dataclasses, tuples, sets and mappings."""
    if isinstance(value, (tuple, list, frozenset, set)):
        for item in value:
            yield from _values(item)
    elif isinstance(value, dict):
        yield from _values(tuple(value.items()))
    elif isinstance(value, Exception):
        yield value
        yield from _values(tuple(vars(value).values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in dataclasses.fields(value):
            yield from _values(getattr(value, field.name))
    else:
        yield value


class ProviderContract:
    """Subclass it, name the clouds it covers, and give a session whose cloud answers (a local service).

    ``canary`` is a secret that the session's credentials hold, "" where it has none.
    """

    clouds: ClassVar[tuple[str, ...]] = ()
    canary: ClassVar[str] = ""

    @pytest.fixture
    def provider(self) -> Provider:
        pytest.fail("the adapter's own test module gives its provider")

    def session(self, settings: Settings, book: PriceBook | None = None) -> Session:
        """A session at :data:`NOW` on the embedded book's words."""
        caller = Caller(self.clouds[0], CALL_LIMIT_S)
        return Session(settings, book or embedded_book(), NOW, caller)

    def harvests(self, provider: Provider) -> list[tuple[Scope, FetchResult]]:
        return [(scope, provider.fetch(scope, SINCE)) for scope in provider.scopes()]

    def test_it_is_one_of_the_clouds(self, provider: Provider) -> None:
        assert provider.cloud in CLOUDS
        assert provider.cloud in self.clouds

    def test_scopes_are_sorted_and_its_own(self, provider: Provider) -> None:
        scopes = provider.scopes()
        assert scopes
        assert list(scopes) == sorted(set(scopes))
        assert {scope.cloud for scope in scopes} == {provider.cloud}

    def test_offers_are_whole_and_unique(self, provider: Provider) -> None:
        book = embedded_book()
        seen = set()
        for scope, harvest in self.harvests(provider):
            machines = {m.instance_type for m in harvest.machines}
            for offer in harvest.offers:
                assert offer.key not in seen
                seen.add(offer.key)
                assert offer.cloud == provider.cloud
                assert offer.usd_per_hour.nanos > 0
                assert offer.source
                assert offer.as_of is None or offer.as_of <= NOW.date()
                assert not scope.region or offer.region == scope.region
                assert offer.instance_type in machines or book.machine(offer.cloud, offer.instance_type)
            for machine in harvest.machines:
                assert book.machine(machine.cloud, machine.instance_type) is None
                assert book.accelerator(machine.accelerator) is not None
        assert seen

    def test_what_is_published_of_interruptions_is_dated_and_of_spot(self, provider: Provider) -> None:
        bands = AWS_BANDS if provider.cloud == "aws" else AZURE_BANDS
        for _, harvest in self.harvests(provider):
            for offer in harvest.offers:
                assert (offer.interruption_band is None) == (offer.band_as_of is None)
                assert offer.interruption_band is None or offer.interruption_band in bands
                assert offer.band_as_of is None or offer.band_as_of <= NOW.date()
                assert offer.preempted_share is None or 0 <= offer.preempted_share <= 1
                if offer.market is not Market.SPOT:
                    assert (offer.interruption_band, offer.preempted_share) == (None, None)

    def test_a_machine_is_offered_by_zone_or_for_the_region(self, provider: Provider) -> None:
        for _, harvest in self.harvests(provider):
            grains: dict[tuple[str, str, Market], set[bool]] = {}
            for offer in harvest.offers:
                kind = (offer.region, offer.instance_type, offer.market)
                grains.setdefault(kind, set()).add(offer.zone is None)
            assert [kind for kind, both in grains.items() if len(both) > 1] == []

    def test_what_is_covered_lies_within_the_scope(self, provider: Provider) -> None:
        for scope, harvest in self.harvests(provider):
            assert all(not scope.region or region == scope.region for region, _ in harvest.covered)

    def test_points_are_dated_and_say_something(self, provider: Provider) -> None:
        for _, harvest in self.harvests(provider):
            assert len({point.statement for point in harvest.points}) == len(harvest.points)
            for point in harvest.points:
                assert point.at.utcoffset() == timedelta(0)
                assert point.at <= NOW
                assert point.cloud == provider.cloud
                said = (point.usd_per_hour, point.available, point.score)
                assert any(value is not None for value in said)
                assert all(share is None or 0 <= share <= 1 for share in said[1:])

    def test_a_second_call_says_the_same(self, provider: Provider) -> None:
        scope = provider.scopes()[0]
        first, second = provider.fetch(scope, None), provider.fetch(scope, None)
        assert (first.offers, first.covered, first.dropped) == (second.offers, second.covered, second.dropped)

    def test_only_our_values_come_out(self, provider: Provider) -> None:
        for value in self._everything(provider):
            plain = isinstance(value, PLAIN) or type(value).__module__.startswith(OURS)
            assert plain, f"{type(value)} leaked"
            if isinstance(value, Enum | str) and self.canary:
                assert self.canary not in str(value)
            if isinstance(value, Exception):
                assert isinstance(value, ProviderError)
                assert value.__cause__ is None
                assert not self.canary or self.canary not in repr(value) + str(value)

    def _everything(self, provider: Provider) -> Iterator[object]:
        harvests = [harvest for _, harvest in self.harvests(provider)]
        offer = next(offer for harvest in harvests for offer in harvest.offers)
        wanted = GangQuery(offer.instance_type, 2, Market.SPOT, (offer.region,))
        stock: tuple[StockHint, ...] = tuple(provider.stock([wanted]))
        allowances: AccountAllowances = provider.allowances((offer.region,))
        diagnosis: Diagnosis = provider.diagnose()
        yield from _values((harvests, stock, allowances, diagnosis))

    def test_stock_is_within_bounds(self, provider: Provider) -> None:
        offer = next(o for _, h in self.harvests(provider) for o in h.offers)
        hints = provider.stock([GangQuery(offer.instance_type, 1, offer.market, (offer.region,))])
        assert len({(h.region, h.zone, h.instance_type, h.market) for h in hints}) == len(hints)
        for hint in hints:
            assert hint.score is None or 0 <= hint.score <= 1
            assert hint.machines is None or hint.machines >= 0

    def test_a_diagnosis_names_no_secret(self, provider: Provider) -> None:
        diagnosis = provider.diagnose()
        assert diagnosis.sources
        assert not self.canary or self.canary not in repr(diagnosis)
