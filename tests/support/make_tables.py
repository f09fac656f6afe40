"""Make ``pricing/tables/*.csv`` from a folder of price and machine facts: ``make_tables.py FACTS_FOLDER``.

The folder holds offers, machines, accelerators, regions and egress as CSV; what their columns mean is told in
``pricing/tables/README.md``. ``interruption_priors.csv`` is written by hand and not touched.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from pricing.machines import Accelerator
from pricing.offer_csv import read_rows
from pricing.offers import Offer
from pricing.places import Market
from pricing.sale_rules import explain_unsold
from pricing.table_rows import parse_rows

FACTS_DATE = "2026-11-21"
BAND_SOURCE = "interruption band: AWS Spot Advisor of 2025-07-28"
Rows = list[dict[str, str]]


def read(folder: Path, name: str) -> Rows:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def write(name: str, rows: Iterable[Mapping[str, str]], columns: Sequence[str]) -> None:
    tables = Path(__file__).resolve().parents[2] / "pricing" / "tables"
    with (tables / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n", extrasaction="raise")
        writer.writeheader()
        writer.writerows(rows)


def spot_source(offer: Offer) -> str:
    """The source with what else went into a spot offer: the advisor's savings, the advisor's band."""
    source = offer.source
    if offer.price_basis == "advisor-savings":
        source = f"{source} less the Spot Advisor's savings of 2025-07-28"
    return f"{source}; {BAND_SOURCE}" if offer.interruption_band else source


def make_offers(folder: Path) -> None:
    """One row per offer; dates, medians and weak reasons as in any CSV of offers."""
    with (folder / "offers.csv").open(encoding="utf-8", newline="") as stream:
        lines = [(number, row) for number, row in enumerate(csv.reader(stream), start=1)]
    facts = ({**row, "as_of": FACTS_DATE} for row in read(folder, "accelerators"))
    accelerators = parse_rows(Accelerator, facts, name=itemgetter("accelerator"))
    offers = read_rows("offers.csv", lines, {}, {a.name: a for a in accelerators}).offers
    counts = {(r["cloud"], r["instance_type"]): int(r["accelerator_count"]) for r in read(folder, "machines")}
    rows = [
        {
            "cloud": o.cloud,
            "region": o.region,
            "instance_type": o.instance_type,
            "market": o.market.value,
            "usd_per_hour": str(o.usd_per_hour),
            "interruption_band": o.interruption_band or "",
            "price_basis": o.price_basis,
            "source": spot_source(o),
            "as_of": o.as_of.isoformat() if o.as_of else "",
            "not_before": "yes" if o.not_before else "",
            "weak": o.weak,
        }
        for o in sorted(offers, key=lambda o: o.key)
        # The advisor's bands speak of spot; an on-demand row never carries one.
        if o.market in {Market.ON_DEMAND, Market.SPOT}
        and not explain_unsold(o.cloud, o.instance_type, counts[o.cloud, o.instance_type], o.market)
    ]
    write("offers", rows, list(rows[0]))


def make_machines(folder: Path) -> None:
    """The machines' own file knows links and fabric; vCPUs and memory are columns of the offers."""
    sizes: dict[tuple[str, str], tuple[str, str, str]] = {}
    for row in read(folder, "offers"):
        key = (row["cloud"], row["instance_type"])
        size = (row["accelerator_memory_gib"], row["vcpus"], row["memory_gib"])
        if sizes.setdefault(key, size) != size:
            raise SystemExit(f"{key} has two sizes: {sizes[key]} and {size}")
    rows: Rows = []
    for row in read(folder, "machines"):
        memory, vcpus, memory_gib = sizes[row["cloud"], row["instance_type"]]
        extra = {
            "accelerator_memory_gib": memory,
            "vcpus": vcpus,
            "memory_gib": memory_gib,
            "as_of": FACTS_DATE,
        }
        rows.append({**row, **extra})
    write("machines", rows, list(rows[0]))


def dated(folder: Path, name: str) -> Rows:
    """A file without a date of its own gets the date of the facts; a blank source is said in words."""
    rows = [{**row, "as_of": FACTS_DATE} for row in read(folder, name)]
    for row in rows:
        row["source"] = row["source"] or "the provider's catalogue names the region; country not confirmed"
    return rows


def make_accelerators(folder: Path) -> None:
    rows = dated(folder, "accelerators")
    write("accelerators", rows, list(rows[0]))


def make_regions(folder: Path) -> None:
    """The facts hold the regions that have offers there; ``more_regions.csv`` beside this file holds the rest.

    Their grid carbon is the facts' average of the country, blank where the facts have none and for the US (there
    it goes by state).
    """
    rows = dated(folder, "regions")
    columns = list(rows[0])
    average = "codecarbon 3.3.2 country average 2023 (Our World in Data)"
    carbon = {
        row["country"]: row["grid_carbon_gco2_per_kwh"]
        for row in rows
        if row["source"] == average and row["country"] != "US"
    }
    for row in read(Path(__file__).parent, "more_regions"):
        known = carbon.get(row["country"], "")
        source = f"{row['source']}; carbon: {average}" if known else row["source"]
        rows.append({**row, "grid_carbon_gco2_per_kwh": known, "source": source, "as_of": FACTS_DATE})
    rows.sort(key=lambda row: (row["cloud"], row["region"]))
    write("regions", rows, columns)


def egress_doubt(row: Mapping[str, str]) -> str:
    """Why a tier is to be doubted, "" when it is not."""
    source = row["source"]
    reasons = []
    if "upper bound" in source:
        reasons.append("upper bound: first paid tier for all volumes")
    elif "recalled" in source:
        reasons.append("recalled, not read")
    if "not re-read" in source or "not read from a price page" in source:
        reasons.append("not read from a price page")
    if row["cloud"] == "gcp" and row["as_of"] == "2024-01-09":
        reasons.append("old: these prices have changed since")
    if row["as_of"] == "undated":
        reasons.append("undated")
    return ", ".join(reasons)


def make_egress(folder: Path) -> None:
    rows = [{**row, "weak": egress_doubt(row)} for row in read(folder, "egress")]
    write("egress", rows, list(rows[0]))


def main(folder: Path) -> None:
    make_offers(folder)
    make_machines(folder)
    make_accelerators(folder)
    make_regions(folder)
    make_egress(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
