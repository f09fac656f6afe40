"""Bills as clouds export them (FOCUS 1.2, CSV), made up: of machines that were there, and of what else stands there."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from pricing.places import Market
from router.controller.workspace.workspaces import resource_tags
from router.ledger.month import Month
from router.showback.focus.columns import columns_of
from router.state.records import Attempt, NodeRecord

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
Row = dict[str, str]
_CATEGORY = {Market.SPOT: "Dynamic", Market.ON_DEMAND: "Standard", Market.RESERVED: "Committed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who sends the bill of a month to whom, in which currency; ``invoice`` "": there is no invoice yet."""

    issuer: str
    provider: str
    number: str
    sub_account: str
    month: Month
    currency: str = "USD"
    invoice: str = ""

    def row(self, start: datetime, end: datetime, cost: Decimal, service: tuple[str, str, str], **said: str) -> Row:
        """A charge; all that is not said is as of plain usage."""
        money = {"BilledCost": cost, "EffectiveCost": cost, "ListCost": cost, "ContractedCost": cost}
        always = {
            "BillingAccountId": self.number, "BillingAccountName": "Made-up Co", "BillingAccountType": "Account",
            "BillingCurrency": self.currency, "BillingPeriodStart": _moment(self.month.begins),
            "BillingPeriodEnd": _moment(self.month.ends), "ChargeCategory": "Usage",
            "ChargeFrequency": "Usage-Based", "ChargePeriodStart": _moment(start), "ChargePeriodEnd": _moment(end),
            "InvoiceId": self.invoice, "InvoiceIssuerName": self.issuer, "ProviderName": self.provider,
            "PublisherName": self.provider, "ServiceCategory": service[0], "ServiceSubcategory": service[1],
            "ServiceName": service[2], "SubAccountId": self.sub_account, "SubAccountName": self.sub_account,
            "SubAccountType": "Account", "PricingCurrency": self.currency,
            "PricingCurrencyEffectiveCost": _plain(cost),
        }  # fmt: skip
        return {**always, **{name: _plain(amount) for name, amount in money.items()}, **said}

    def used(
        self,
        start: datetime,
        end: datetime,
        quantity: str,
        unit: str,
        price: str,
        service: tuple[str, str, str],
        sku: str,
        **said: str,
    ) -> Row:
        """Usage of so much of something at a price for each."""
        cost = Decimal(quantity) * Decimal(price)
        priced = {
            "PricingCategory": "Standard", "PricingQuantity": quantity, "PricingUnit": unit,
            "ConsumedQuantity": quantity, "ConsumedUnit": unit, "ListUnitPrice": price, "ContractedUnitPrice": price,
            "PricingCurrencyListUnitPrice": price,
            "PricingCurrencyContractedUnitPrice": price, "SkuId": sku, "SkuPriceId": f"{sku}-standard",
            "SkuMeter": service[2],
        }  # fmt: skip
        return self.row(start, end, cost, service, **{**priced, **said})

    def machine(
        self, attempt: Attempt, node: NodeRecord, price: str, service: str, until: datetime | None = None
    ) -> Iterator[Row]:
        """A machine of ours by the day, as it was there (until ``until`` at most), at that price an hour."""
        assert node.made_at is not None
        assert node.gone_at is not None
        detail = {"InstanceType": node.instance_type, "GpuCount": node.accelerators, "x_GpuModel": node.accelerator}
        for start, end in days(max(node.made_at, self.month.begins), min(node.gone_at, until or self.month.ends)):
            yield self.used(
                start,
                end,
                hours(end - start),
                "Hours",
                price,
                ("Compute", "Virtual Machines", service),
                node.instance_type,
                PricingCategory=_CATEGORY[node.market],
                AvailabilityZone=node.zone or "",
                SkuPriceId=f"{node.instance_type}-{node.market.value}",
                SkuPriceDetails=json.dumps(detail),
                ResourceId=node.machine_id or "",
                ResourceName=node.name,
                ResourceType="Machine",
                RegionId=attempt.region,
                RegionName=attempt.region,
                Tags=of_attempt(attempt),
            )


def of_attempt(attempt: Attempt) -> str:
    """The tags that its machines and disks carry."""
    return json.dumps({name: value for name, value in resource_tags(attempt, "").items() if value})


def tagged(**words: str) -> str:
    return json.dumps(words)


def days(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The time cut where a day (UTC) ends."""
    while start < end:
        stop = min(end, start.replace(hour=0, minute=0, second=0, microsecond=0) + DAY)
        yield start, stop
        start = stop


def hours(length: timedelta) -> str:
    """Exact: lengths here are of whole three minutes."""
    return _plain(Decimal(length // timedelta(minutes=3)) / 20)


def write_bill(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """All columns of FOCUS 1.2, and nothing of ours; empty where a row says nothing. KeyError for another column."""
    names = [column.name for column in columns_of("1.2")]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, names, restval="", extrasaction="raise", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}"
