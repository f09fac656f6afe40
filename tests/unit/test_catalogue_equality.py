"""The same prices as a public catalogue and in our own columns are the same offers, but for the words of the source."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from pricing.book_file import embedded_book
from pricing.offer_csv import COLUMNS, OPTIONAL_COLUMNS, read_rows
from pricing.offers import Offer
from providers.neoclouds.parse.fetch_result import CatalogueTerms, build_fetch_result
from providers.neoclouds.parse.skypilot import read_vms

BOOK = embedded_book()
TODAY = date(2026, 11, 21)
MACHINES = [m for m in BOOK.machines if m.cloud == "aws" and m.accelerator_memory_gib]
REGIONS = sorted({r.id.region for r in BOOK.regions if r.id.cloud == "aws"})
PRICES = st.integers(1, 10**8).map(lambda n: f"{n // 10**6}.{n % 10**6:06d}").filter(lambda text: float(text) > 0)

ROWS = st.dictionaries(
    st.tuples(st.sampled_from(MACHINES), st.sampled_from(REGIONS)),
    st.tuples(PRICES, st.lists(PRICES, max_size=3)),  # on demand, and spot by zone
    min_size=1,
    max_size=8,
)


@given(ROWS, st.one_of(st.none(), st.just(date(2026, 11, 18))))
def test_a_catalogue_and_our_own_columns_say_the_same(rows: dict, as_of: date | None) -> None:  # type: ignore[type-arg]
    sky, own = [], []
    for (machine, region), (on_demand, spot) in rows.items():
        fields = {
            "cloud": "aws",
            "region": region,
            "instance_type": machine.instance_type,
            "accelerator": machine.accelerator,
            "accelerator_count": machine.accelerator_count,
            "on_demand_usd_per_hour": on_demand,
            "source": "x",
            "as_of": as_of or "",
            "spot_as_of": as_of or "",
        }
        own.append(fields)
        for number, price in enumerate(spot or [""]):
            zone = f"{region}-az{number}" if price else ""
            sky.append(
                {
                    "InstanceType": machine.instance_type,
                    "AcceleratorName": machine.accelerator,
                    "AcceleratorCount": float(machine.accelerator_count),
                    "Price": on_demand,
                    "SpotPrice": price,
                    "Region": region,
                    "AvailabilityZone": zone,
                }
            )
            if price:
                row = {**fields, "on_demand_usd_per_hour": "", "spot_usd_per_hour": price}
                own.append({**row, "zone": zone, "price_basis": "zone"})
    assert from_catalogue(sky, as_of) == from_our_columns(own)


def table(names: tuple[str, ...], rows: list[dict[str, object]]) -> io.StringIO:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="")
    writer.writeheader()
    writer.writerows(rows)
    text.seek(0)
    return text


def from_catalogue(rows: list[dict[str, object]], as_of: date | None) -> list[Offer]:
    reading = read_vms(table(tuple(rows[0]), rows), frozenset())
    offers = build_fetch_result(reading, BOOK, CatalogueTerms("aws", "x", as_of, TODAY)).offers
    return sorted(offers, key=lambda offer: offer.key)


def from_our_columns(rows: list[dict[str, object]]) -> list[Offer]:
    lines = enumerate(csv.reader(table((*COLUMNS, *OPTIONAL_COLUMNS), rows)), start=1)
    machines = {(m.cloud, m.instance_type): m for m in BOOK.machines}
    offers = read_rows("x.csv", lines, machines, {a.name: a for a in BOOK.accelerators}).offers
    return sorted((replace(offer, source="x") for offer in offers), key=lambda offer: offer.key)
