"""Build facts of FOCUS files and of imported bills: their rows, a column at a time. Nothing is made up.

A cell that a row leaves empty is null. Words are read as follows:

- ``what``: a volume of data (GB, TiB, ...) of the category Networking, or whose meter or description names a transfer,
  is egress; usage of the category Compute in hours, or with a machine's SKU details, is a machine; block storage is
  a disk, other storage is storage. Public addresses, which clouds charge by the hour under Networking, Compute and
  others, are other; so are the rest of networking (gateways, load balancers by the hour) and all that is no usage.
- ``use``: ``x_WasteKind``; without one an Unused commitment or reservation; else work where a machine's usage names our
  job (x_JobId), for that comes from our metering. A bill that names no job does not say what the time went into.
- ``market``, of machines: a named reservation or commitment makes it reserved; else Dynamic is spot and Standard on
  demand.
- team, project, cost center and job: of ``AllocatedTags``, else ``Tags``, whatever their capitals, dashes and
  ``user:`` before them; ``x_JobId`` goes before the tag, and AllocatedResourceId is the job of a part of a split.
- ``cloud``: our name of ServiceProviderName where we have one.
- ``state``: ``x_RecordState``; else Invoiced where there is an InvoiceId, else Provisional.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pricing.places import Market
from pricing.problems import InvalidInputError
from providers.registry import find_cloud
from router.ledger.entry import HOURS, CostItem, MachineUse
from router.showback.facts import AMOUNT, COLUMNS, TEXT, FactSource, fit_column
from router.showback.focus.columns import RecordState
from router.showback.focus.feed import open_feed
from router.showback.focus.survey import recognise_layout
from router.showback.focus.texts import read_json
from router.showback.focus.typed_rows import convert_batch

# ISO 4217: no currency.
NO_CURRENCY: Final = "XXX"
_OWN: Final = "stepfare_"
_CACHED = 1 << 16
ColumnReader = Callable[[str], pa.Array]
# Columns that the provider, not its customer, writes about a charge: a resource's own name does not tell what it is.
_PROVIDER_COLUMNS: Final = ("SkuMeter", "ChargeDescription", "SkuId", "ResourceType")
# AWS "In-use public IPv4 address", "PublicIPv4:InUseAddress", "ElasticIP:IdleAddress"; Google "External IP Charge on a
# Standard VM", "Static Ip Charge"; Azure "Standard IPv4 Static Public IP", "IP Addresses". Gateways and load balancers
# stand beside machines, also under Compute ("$0.045 per NAT Gateway Hour").
_HOURLY: Final = re.compile(
    r"(public|external|static|elastic|idle|reserved)[ _-]*ip(v[46])?\b|\bip(v[46])?[ _-]*address"
    r"|(public|external|inuse|idle|elastic)[ _-]*address|publicipv[46]|elasticip|publicipaddress"
    r"|nat[ _-]*gateway|load[ _-]*balancer",
    re.IGNORECASE,
)
_TRANSFER: Final = re.compile(r"data[ _-]*transfer|transfer[ _-]*(in|out)\b|egress|ingress|bandwidth", re.IGNORECASE)
# FOCUS units of data, and the words that exports write for them; ``GB-Months`` and ``GB-Hours`` are none.
_VOLUME: Final = re.compile(
    r"^((\d+ )?[KMGTPE]i?B|(kilo|mega|giga|tera|peta|kibi|mebi|gibi|tebi|pebi)?bytes?)$", re.IGNORECASE
)


def read_focus(path: Path) -> pa.Table:
    """Read the facts of a file of FOCUS 1.0 to 1.4 (source ``billed``, origin its name).

    InvalidInputError: what :func:`~router.showback.focus.feed.open_feed` refuses, no Cost and Usage, or a row without a
    period.
    """
    tables = [COLUMNS.empty_table()]
    with open_feed(path) as feed:
        opened = recognise_layout(feed, str(path))
        for batch in feed.batches:
            table = convert_batch(batch, opened.sources).table()
            tables.append(facts_of_charges(table, path.name, batch.first, str(path)))
    return pa.concat_tables(tables)


def facts_of_charges(table: pa.Table, origin: str, first: int | pa.Array, where: str) -> pa.Table:
    """Return the facts of rows with the columns of FOCUS 1.4 and ours.

    The rows are as :mod:`router.showback.focus.typed_rows` makes them. ``first`` is the number of the first row, or
    those of all; ``where`` is what an error calls their file.
    """
    rows = table.num_rows
    numbers = pa.array(range(first, first + rows), pa.int64()) if isinstance(first, int) else first

    def column_of(name: str) -> pa.Array:
        column = table[name]
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    arrays = {
        "source": pa.repeat(pa.scalar(FactSource.BILLED.value), rows),
        "origin": pa.repeat(pa.scalar(origin), rows),
        "row": numbers,
        **_times(column_of, numbers, where),
        **_owners(column_of),
        **_resources(column_of),
        **_money(column_of),
    }
    arrays |= _uses(column_of, arrays)
    columns = [fit_column(arrays[f.name], f) if f.name in arrays else pa.nulls(rows, f.type) for f in COLUMNS]
    return pa.table(columns, schema=COLUMNS)


def _times(column_of: ColumnReader, numbers: pa.Array, where: str) -> dict[str, pa.Array]:
    start = pc.coalesce(column_of("ChargePeriodStart"), column_of("BillingPeriodStart"))
    end = pc.coalesce(column_of("ChargePeriodEnd"), column_of("BillingPeriodEnd"))
    missing = pc.or_(pc.is_null(start), pc.is_null(end))
    if pc.any(missing).as_py():
        row = numbers.filter(missing)[0].as_py()
        what = "has neither a charge period nor a billing period"
        raise InvalidInputError.single(what, where=f"{where}: row {row}", remedy="say when the charge was")
    return {
        "start": start,
        "end": end,
        "month": pc.strftime(pc.coalesce(column_of("BillingPeriodStart"), start), "%Y-%m"),
    }


def _owners(column_of: ColumnReader) -> dict[str, pa.Array]:
    parts, tags = column_of("AllocatedTags"), column_of("Tags")
    named = pc.coalesce(column_of("x_JobId"), column_of("AllocatedResourceId"))

    def tagged(*keys: str) -> pa.Array:
        return pc.coalesce(_map_texts(parts, _tag, keys), _map_texts(tags, _tag, keys))

    return {
        "team": tagged("team"),
        "project": tagged("project"),
        "cost_center": tagged("costcenter", "costcentre"),
        "job": pc.coalesce(named, tagged(f"{_OWN}job", "job")),
        "plan": pc.coalesce(column_of("x_PlanId"), tagged(f"{_OWN}plan")),
        "attempt": pc.coalesce(column_of("x_Attempt"), tagged(f"{_OWN}attempt")),
        "account": pc.coalesce(column_of("SubAccountId"), column_of("BillingAccountId")),
    }


def _resources(column_of: ColumnReader) -> dict[str, pa.Array]:
    details = column_of("SkuPriceDetails")
    unit = pc.coalesce(column_of("ConsumedUnit"), column_of("PricingUnit"))
    quantity = pc.if_else(
        pc.is_valid(column_of("ConsumedUnit")), column_of("ConsumedQuantity"), column_of("PricingQuantity")
    )
    is_usage = _is(column_of("ChargeCategory"), "Usage")
    what = _what(column_of, is_usage, unit, details)
    machine = pc.equal(what, CostItem.MACHINE.value)
    hours = pc.if_else(pc.and_(machine, _is(unit, HOURS)), quantity, None)
    committed = pc.or_(pc.is_valid(column_of("CapacityReservationId")), pc.is_valid(column_of("CommitmentDiscountId")))
    category = column_of("PricingCategory")
    market = pc.case_when(
        pc.make_struct(
            pc.or_(committed, _is(category, "Committed")), _is(category, "Dynamic"), _is(category, "Standard")
        ),
        Market.RESERVED.value,
        Market.SPOT.value,
        Market.ON_DEMAND.value,
    )
    gpus = _products(hours, _map_texts(details, _gpus, ()))
    return {
        "category": pc.fill_null(column_of("ChargeCategory"), "Usage"),
        "corrects": pc.if_else(_is(column_of("ChargeClass"), "Correction"), pa.scalar(""), pa.scalar(None, TEXT)),
        "what": what,
        "cloud": _map_texts(column_of("ServiceProviderName"), _cloud, ()),
        "region": column_of("RegionId"),
        "zone": column_of("AvailabilityZone"),
        "instance_type": _map_texts(details, _detail, ("InstanceType",)),
        "market": pc.if_else(machine, market, None),
        "accelerator": pc.coalesce(column_of("x_GpuModel"), _map_texts(details, _detail, ("x_GpuModel",))),
        "resource": column_of("ResourceId"),
        "sku": column_of("SkuId"),
        "quantity": quantity,
        "unit": unit,
        "hours": hours,
        "gpu_hours": pc.coalesce(column_of("x_GpuHours"), gpus),
        "useful": column_of("x_UsefulUnits"),
        "useful_unit": column_of("x_UsefulUnit"),
        "reason": column_of("ChargeDescription"),
        "reference": column_of("InvoiceId"),
        "split_origin": column_of("x_SplitOriginId"),
        "split_method": column_of("AllocatedMethodId"),
        "price_source": column_of("x_PriceSource"),
        "price_as_of": pc.strftime(column_of("x_PriceObservedAt"), "%Y-%m-%dT%H:%M:%SZ"),
        "state": pc.coalesce(
            column_of("x_RecordState"),
            pc.if_else(pc.is_valid(column_of("InvoiceId")), RecordState.INVOICED.value, RecordState.PROVISIONAL.value),
        ),
    }


def _products(amounts: pa.Array, counts: pa.Array) -> pa.Array:
    """Return amounts times counts (texts), each different pair multiplied once."""
    amount, count = amounts.dictionary_encode(), counts.dictionary_encode()
    known, numbers = amount.dictionary.to_pylist(), [int(text) for text in count.dictionary.to_pylist()]
    pairs = pc.add(pc.multiply(amount.indices.cast(pa.int64()), len(numbers)), count.indices.cast(pa.int64()))
    pair = pairs.dictionary_encode()
    products = [
        None if code is None else known[code // len(numbers)] * numbers[code % len(numbers)]
        for code in pair.dictionary.to_pylist()
    ]
    return pa.array(products, AMOUNT).take(pair.indices)


def _money(column_of: ColumnReader) -> dict[str, pa.Array]:
    billed, effective = column_of("BilledCost"), column_of("EffectiveCost")
    return {
        "currency": pc.fill_null(column_of("BillingCurrency"), NO_CURRENCY),
        "billed": billed,
        "effective": effective,
        "list": column_of("ListCost"),
        "on_demand": column_of("x_OnDemandEquivalentCost"),
        "unpriced": pc.and_(pc.is_null(billed), pc.is_null(effective)),
    }


def _what(column_of: ColumnReader, is_usage: pa.Array, unit: pa.Array, details: pa.Array) -> pa.Array:
    category, sub = column_of("ServiceCategory"), column_of("ServiceSubcategory")
    gpus = pc.is_valid(_map_texts(details, _gpus, ()))
    volume = _matches(unit, _VOLUME)
    transfer, hourly = (
        _provider_names(column_of, _TRANSFER),
        pc.and_(_provider_names(column_of, _HOURLY), pc.invert(pc.or_(gpus, volume))),
    )
    networking, storage = _is(category, "Networking"), _is(category, "Storage")
    machine = pc.or_(pc.or_(_is(sub, "Virtual Machines"), _is(unit, HOURS)), gpus)
    return pc.case_when(
        pc.make_struct(
            pc.or_(hourly, pc.invert(is_usage)),
            pc.and_(volume, pc.or_(networking, transfer)),
            pc.and_(pc.and_(networking, transfer), pc.invert(_is(unit, HOURS))),
            pc.and_(_is(category, "Compute"), pc.and_(machine, pc.invert(volume))),
            pc.and_(storage, _is(sub, "Block Storage")),
            storage,
        ),
        CostItem.OTHER.value,
        CostItem.EGRESS.value,
        CostItem.EGRESS.value,
        CostItem.MACHINE.value,
        CostItem.DISK.value,
        CostItem.STORAGE.value,
        CostItem.OTHER.value,
    )


def _provider_names(column_of: ColumnReader, words: re.Pattern[str]) -> pa.Array:
    cells = [_matches(column_of(name), words) for name in _PROVIDER_COLUMNS]
    return functools.reduce(pc.or_, cells)


def _matches(column: pa.Array, words: re.Pattern[str]) -> pa.Array:
    """Return whether each text matches, looking at each different text once; null matches nothing."""
    encoded = column.dictionary_encode()
    results = [text is not None and words.search(text) is not None for text in encoded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(results, pa.bool_()).take(encoded.indices), fill_value=False)


def _uses(column_of: ColumnReader, facts: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    machine = pc.equal(facts["what"], CostItem.MACHINE.value)
    our_job = pc.and_(machine, pc.is_valid(column_of("x_JobId")))
    use = pc.case_when(
        pc.make_struct(
            _is(column_of("CommitmentDiscountStatus"), "Unused"),
            _is(column_of("CapacityReservationStatus"), "Unused"),
            our_job,
        ),
        MachineUse.COMMITMENT_UNUSED.value,
        MachineUse.RESERVATION_UNUSED.value,
        MachineUse.WORK.value,
    )
    return {"use": pc.coalesce(column_of("x_WasteKind"), use)}


def _is(column: pa.Array, word: str) -> pa.Array:
    return pc.fill_null(pc.equal(column, word), fill_value=False)


def _map_texts(column: pa.Array, find: Callable[[str, Sequence[str]], str | None], keys: Sequence[str]) -> pa.Array:
    """Map a text column, looking at each different text once."""
    encoded = column.dictionary_encode()
    results = [None if text is None else find(text, tuple(keys)) for text in encoded.dictionary.to_pylist()]
    return pa.array(results, TEXT).take(encoded.indices)


@lru_cache(maxsize=_CACHED)
def _object(text: str) -> Mapping[str, Any]:
    try:
        return read_json(text)
    except ValueError:  # `bills import` reports it; here it has no tags
        return {}


@lru_cache(maxsize=_CACHED)
def _plain_keys(text: str) -> Mapping[str, Any]:
    return {owner_key(key): value for key, value in reversed(list(_object(text).items()))}


def owner_key(key: str) -> str:
    """Return the key of a tag as owners are looked up: without capitals, dashes and ``user:``."""
    name = key.casefold().removeprefix("user:")
    return name if name.startswith(_OWN) else name.replace("-", "").replace("_", "").replace(" ", "")


def _tag(text: str, keys: Sequence[str]) -> str | None:
    values = _plain_keys(text)
    return next((str(values[key]) for key in keys if values.get(key) not in (None, "")), None)


def _detail(text: str, keys: Sequence[str]) -> str | None:
    value = _object(text).get(keys[0])
    return None if value in (None, "") else str(value)


def _gpus(text: str, _keys: Sequence[str]) -> str | None:
    count = _object(text).get("GpuCount")
    return str(count) if isinstance(count, int | Decimal) and count == int(count) and count > 0 else None


@lru_cache(maxsize=_CACHED)
def _cloud(name: str, _keys: Sequence[str]) -> str | None:
    return find_cloud(name) or name
