"""AWS adapter.

Options: ``profile`` (of the SDK's configuration), ``region`` (the home region, which answers for the account),
``notice_queue_url`` (an SQS queue of interruption notices, which ``doctor`` alone tries to read). Endpoints: ``ec2``,
``pricing``, ``servicequotas``, ``sts`` and ``sqs`` of the account, ``price_list`` and ``spot_advisor`` of the public
files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pricing.places import Market
from providers.aws.account import AwsAccount, find_account
from providers.aws.diagnosis import diagnose
from providers.aws.parse.allowances import read_quotas, read_reservations
from providers.aws.parse.machines import zone_ids
from providers.aws.parse.stock import choose_scored_types, find_largest_gangs, read_block_hints, read_score_hints
from providers.aws.public import PublicFiles
from providers.aws.region_calls import WOULD_ADD, PublicCatalogue, RegionCalls
from providers.caller import Once
from providers.errors import NotForSaleError, RegionOffError
from providers.protocol import (
    AccountAllowances,
    Diagnosis,
    FetchResult,
    GangQuery,
    PartialFailure,
    Provider,
    Scope,
    StockHint,
)
from providers.session import Session

if TYPE_CHECKING:
    from providers.aws.client import AwsClient

T = TypeVar("T")

_BLOCK_HOURS = 24
_MOST_IN_A_BLOCK = 64
_AT_ONCE = 8


class AwsProvider(Provider):
    """One AWS account, or the public files where there are no credentials (or the settings exclude them)."""

    def __init__(self, cloud: str, session: Session) -> None:
        self.cloud = cloud
        self._session = session
        self._files = PublicFiles(cloud, session)
        self._catalogue = PublicCatalogue(cloud, session, self._files)
        self._account = Once(partial(find_account, cloud, session, self._files))

    def scopes(self) -> Sequence[Scope]:
        """Return the regions that the account has enabled, or those of the public price list.

        Regions that the settings name are all included: fetching one that is disabled, or does not exist, says so.
        """
        opened = self._account.get()
        found = opened.regions() if isinstance(opened, AwsAccount) else self._catalogue.regions()
        return [Scope(self.cloud, region) for region in sorted(set(self._session.settings.regions or found))]

    def fetch(self, scope: Scope, history_since: datetime | None) -> FetchResult:
        """Return list prices and spot prices per zone with an account; without, prices by region.

        Without an account spot is estimated from the Spot Advisor's savings, which is weak.
        """
        opened = self._account.get()
        if isinstance(opened, AwsAccount):
            return opened.fetch(scope.region, history_since)
        return self._catalogue.fetch(scope.region, opened)

    def stock(self, queries: Sequence[GangQuery]) -> Sequence[StockHint]:
        """Return hints for spot (placement scores) and for reserved capacity (capacity blocks of 24 hours).

        Spot: placement scores of the ten best zones in ten regions. EC2 scores fewer than three types low throughout,
        so each is asked for together with the two most like it, and scores compare places. Reserved: the machines of
        blocks that are for sale for a gang of that size; a block is paid for in advance, and none is bought here.
        On-demand: EC2 says nothing. Of two gangs of one type in one region the larger is asked for. Without an account:
        nothing.
        """
        opened = self._account.get()
        if not isinstance(opened, AwsAccount) or not queries:
            return ()
        everywhere = () if all(gang.regions for gang in queries) else tuple(opened.regions())
        hints = self._scores(opened.client, find_largest_gangs(queries, Market.SPOT, everywhere))
        return (*hints, *self._blocks(opened.client, find_largest_gangs(queries, Market.RESERVED, everywhere)))

    def allowances(self, regions: Sequence[str]) -> AccountAllowances:
        """Return quotas in vCPUs of whole families, and capacity reservations and blocks that are active or scheduled.

        Without an account there is only the partial failure.
        """
        opened = self._account.get()
        if not isinstance(opened, AwsAccount):
            return AccountAllowances(gaps=(PartialFailure("quotas and reservations", opened, WOULD_ADD),))
        asked = tuple(sorted(set(regions))) or tuple(scope.region for scope in self.scopes())
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            parts = list(pool.map(lambda region: self._allowances_of(opened, region), asked))
        return AccountAllowances(
            quotas=tuple(quota for part in parts for quota in part.quotas),
            held=tuple(held for part in parts for held in part.held),
            gaps=tuple(gap for part in parts for gap in part.gaps),
        )

    def diagnose(self) -> Diagnosis:
        """Check each permission with one small call; those that would cost something as a dry run."""
        return diagnose(self._session, self._account, self._files)

    def _scores(self, client: AwsClient, gangs: Mapping[tuple[str, str], int]) -> tuple[StockHint, ...]:
        regions: dict[tuple[str, int], list[str]] = {}
        for (name, region), machines in sorted(gangs.items()):
            regions.setdefault((name, machines), []).append(region)
        return tuple(
            hint
            for (name, machines), places in regions.items()
            for hint in read_score_hints(
                name, _rows_if_sold(partial(client.placement_scores, self._alike(name), machines, places))
            )
        )

    def _alike(self, instance_type: str) -> tuple[str, ...]:
        return choose_scored_types(instance_type, (m for m in self._session.book.machines if m.cloud == self.cloud))

    def _blocks(self, client: AwsClient, gangs: Mapping[tuple[str, str], int]) -> tuple[StockHint, ...]:
        hints: list[StockHint] = []
        for (name, region), machines in sorted(gangs.items()):
            if machines <= _MOST_IN_A_BLOCK:
                rows = _rows_if_sold(partial(client.block_offerings, region, name, machines, _BLOCK_HOURS))
                hints += read_block_hints(region, name, rows, zone_ids(client.zones(region)) if rows else {})
        return tuple(hints)

    def _allowances_of(self, opened: AwsAccount, region: str) -> AccountAllowances:
        attempt = RegionCalls()
        quotas = attempt(f"quotas in {region}", lambda: opened.client.quotas(region)) or ()
        reservations = attempt(f"reservations in {region}", lambda: opened.client.reservations(region)) or ()
        return AccountAllowances(
            quotas=read_quotas(self.cloud, region, quotas, opened.families()),
            held=read_reservations(self.cloud, region, reservations),
            gaps=tuple(attempt.gaps),
        )


def _rows_if_sold(ask: Callable[[], Sequence[T]]) -> Sequence[T]:
    """Return what ``ask`` gives; nothing where the type is not for sale or the region is off.

    That nothing is sold is an answer too.
    """
    try:
        return ask()
    except (NotForSaleError, RegionOffError):
        return ()
