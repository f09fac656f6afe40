"""Protocol of every cloud adapter. The docstrings are the contract; ``tests/contract`` holds all adapters to it.

Rules for every method: it raises nothing but :class:`providers.errors.ProviderError`; what it returns holds no SDK
object and no secret; a second call gives the same answer while the cloud has not changed. A row that cannot be used is
left out and named in ``dropped``: never guessed, never zero. No method changes anything at a cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from pricing.egress import Tariff
from pricing.history import PricePoint
from pricing.machines import Machine
from pricing.offers import Offer
from pricing.places import Market, Region
from providers.errors import ProviderError


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """A part of a cloud that is fetched by itself, concurrently with others: a region, or "" for all."""

    cloud: str
    region: str

    def __str__(self) -> str:
        return f"{self.cloud}/{self.region}" if self.region else self.cloud


@dataclass(frozen=True, slots=True, order=True)
class DroppedRow:
    """A row of the cloud that was left out: which one, and why (the same words for the same reason)."""

    row: str
    why: str


@dataclass(frozen=True, slots=True)
class PartialFailure:
    """A part that could not be obtained while the rest could: ``subject`` as "spot prices", and the reason.

    ``would_add`` tells a person what fixing it would add.
    """

    subject: str
    error: ProviderError
    would_add: str = ""


@dataclass(frozen=True)
class FetchResult:
    """The result of fetching one scope.

    Offers are unique by key, priced above 0, dated today or earlier; a machine type of a region and market is offered
    either by zone or for the region, not both. ``covered`` names each (region, market) that was seen whole: there, an
    offer that is not listed is not for sale, and replaces what an older book says. Whatever is not covered keeps its
    older rows. ``machines``, ``regions`` and ``tariffs`` hold those that the session's book does not know (an unknown
    accelerator is a dropped row, since without its speed nothing can be planned on it). ``points`` is price, stock and
    score over time.
    """

    offers: tuple[Offer, ...] = ()
    covered: frozenset[tuple[str, Market]] = frozenset()
    machines: tuple[Machine, ...] = ()
    regions: tuple[Region, ...] = ()
    tariffs: tuple[Tariff, ...] = ()
    points: tuple[PricePoint, ...] = ()
    dropped: tuple[DroppedRow, ...] = ()
    gaps: tuple[PartialFailure, ...] = ()
    rows_read: int = 0


@dataclass(frozen=True, slots=True)
class GangQuery:
    """A gang for which stock is queried: N machines of one type, in these regions (empty: everywhere)."""

    instance_type: str
    machines: int
    market: Market
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StockHint:
    """A cloud's hint about its stock.

    ``score`` runs from 0 (no) to 1 (surely), as the cloud judges for the whole gang; ``machines`` is a count where the
    cloud states one. None is unknown.
    """

    region: str
    zone: str | None
    instance_type: str
    market: Market
    score: float | None
    machines: int | None
    source: str


class QuotaUnit(StrEnum):
    """The unit of a quota, in the words of ``limits.yaml``."""

    ACCELERATORS = "accelerators"
    VCPUS = "vcpus"
    MACHINES = "machines"


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit on what the account may have at once. A field that is None matches anything, as in ``limits.yaml``.

    ``name`` is the cloud's own; ``used`` None where the cloud does not say; ``families`` empty: every family.
    """

    cloud: str
    name: str
    region: str | None
    families: tuple[str, ...]
    accelerator: str | None
    market: Market | None
    amount: int
    used: int | None
    unit: QuotaUnit


@dataclass(frozen=True, slots=True)
class CapacityReservation:
    """Machines reserved for the account: a capacity reservation or block.

    ``start``/``end`` None is open; ``end`` is when they can no longer be used. ``prepaid``: it was paid at once, at a
    price that the cloud does not tell; else the cloud bills it by the hour at the on-demand price, used or not.
    ``automatic``: machines take it without naming it, and none that names it gets it.
    """

    cloud: str
    name: str
    region: str
    zone: str | None
    instance_type: str
    machines: int
    free: int
    start: datetime | None
    end: datetime | None
    prepaid: bool = False
    automatic: bool = False


@dataclass(frozen=True, slots=True)
class AccountAllowances:
    """The account's quotas and reservations in the regions asked for, and what could not be learnt."""

    quotas: tuple[Quota, ...] = ()
    held: tuple[CapacityReservation, ...] = ()
    gaps: tuple[PartialFailure, ...] = ()


class NoticeKind(StrEnum):
    """The kind of a cloud's notice about a running machine."""

    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class CallCheck:
    """One call of ``doctor``: the permission it needs, and the error it met (None: it works)."""

    permission: str
    needed_for: str
    error: ProviderError | None


def check_call(permission: str, needed_for: str, call: Callable[[], object]) -> CallCheck:
    """Make one call of ``doctor`` and return how it went."""
    try:
        call()
    except ProviderError as error:
        return CallCheck(permission, needed_for, error)
    return CallCheck(permission, needed_for, None)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of ``doctor`` for a cloud.

    ``identity`` names the identity in use there, never with a secret; None: none. ``clock_ahead`` is this machine's
    clock less the cloud's; ``latency`` the fastest answered call. ``sources`` says in plain words what a refresh would
    put into the book as things stand.
    """

    identity: str | None
    identity_error: ProviderError | None
    checks: tuple[CallCheck, ...]
    clock_ahead: timedelta | None
    latency: timedelta | None
    sources: tuple[str, ...]


class Provider(Protocol):
    """One cloud, made by :func:`providers.registry.open_provider`; making it touches no network.

    Methods may be called from several threads at once. Network calls go through ``Session.caller``, which retries,
    keeps to the cloud's rate and gives up at the time limit.
    """

    #: Its name, as in the registry and in every offer.
    cloud: str

    def scopes(self) -> Sequence[Scope]:
        """Return what can be fetched now, sorted; at least one. Raises when the cloud cannot even say that.

        Without credentials it is what the public sources cover.
        """

    def fetch(self, scope: Scope, history_since: datetime | None) -> FetchResult:
        """Return offers of one scope, with price history from ``history_since`` on (None: none is asked for).

        Public sources serve where there are no credentials; what is then missing is a partial failure. Raises when
        nothing of the scope could be obtained. ``covered`` stays within the scope.
        """

    def stock(self, queries: Sequence[GangQuery]) -> Sequence[StockHint]:  # noqa: ARG002  other clouds use it
        """Return the cloud's hints about its stock, one a place, type and market; empty where it gives none."""
        return ()

    def allowances(self, regions: Sequence[str]) -> AccountAllowances:  # noqa: ARG002  other clouds use it
        """Return quotas and reserved capacity in these regions (empty: all scopes); none without an account."""
        return AccountAllowances()

    def diagnose(self) -> Diagnosis:
        """Check each call that this adapter makes, without changing anything. Never raises."""
