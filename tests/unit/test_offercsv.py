"""A CSV of offers: what a row becomes, and what is said of a bad one."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from pricing.book_file import embedded_book, read_book
from pricing.offer_csv import COLUMNS
from pricing.places import Market
from pricing.problems import InvalidInputError

ROW = {
    "cloud": "aws", "region": "us-east-1", "instance_type": "p5.48xlarge", "accelerator": "H100",
    "accelerator_count": "8", "on_demand_usd_per_hour": "55.04", "spot_usd_per_hour": "30",
    "source": "a list", "as_of": "2026-11-20", "spot_as_of": "2026-11-19",
}  # fmt: skip


def write(folder: Path, *rows: dict[str, str], header: tuple[str, ...] = COLUMNS) -> Path:
    path = folder / "book.csv"
    lines = [",".join(header), *(",".join(row.get(name, "") for name in header) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InvalidInputError) as caught:
        read_book(path)
    return str(caught.value)


def test_a_row_becomes_two_offers(tmp_path: Path) -> None:
    book = read_book(write(tmp_path, ROW))
    on_demand, spot = book.offers
    assert (on_demand.market, str(on_demand.usd_per_hour), on_demand.as_of) == (
        Market.ON_DEMAND,
        "55.04",
        date(2026, 11, 20),
    )
    assert (spot.market, str(spot.usd_per_hour), spot.as_of) == (Market.SPOT, "30.00", date(2026, 11, 19))
    assert spot.machines_cap is None
    assert book.as_of.isoformat() == "2026-11-20T00:00:00+00:00"
    assert book.machines == embedded_book().machines
    assert book.tariffs == embedded_book().tariffs


def test_what_is_not_sold_is_no_offer(tmp_path: Path) -> None:
    assert len(read_book(write(tmp_path, {**ROW, "spot_usd_per_hour": ""})).offers) == 1
    assert read_book(write(tmp_path, {**ROW, "on_demand_usd_per_hour": ""})).offers[0].market is Market.SPOT


def test_the_optional_columns(tmp_path: Path) -> None:
    row = {
        **ROW,
        "machines_cap": "3",
        "interruptions_per_hour": "0.05",
        "zone": "us-east-1a",
        "spot_median_usd_per_hour": "40",
    }
    header = (*COLUMNS, "machines_cap", "interruptions_per_hour", "zone")
    on_demand, spot = read_book(write(tmp_path, row, header=header)).offers
    assert (on_demand.machines_cap, spot.machines_cap) == (3, 3)
    assert (on_demand.interruptions_per_hour, spot.interruptions_per_hour) == (None, 0.05)
    assert (spot.zone, str(spot.usd_per_hour)) == ("us-east-1a", "30.00")


def test_without_a_zone_the_median_is_the_price(tmp_path: Path) -> None:
    spot = read_book(write(tmp_path, {**ROW, "spot_median_usd_per_hour": "40"})).offers[1]
    assert (str(spot.usd_per_hour), spot.price_basis) == ("40.00", "az-spot-median")


def test_a_hair_above_on_demand_is_on_demand(tmp_path: Path) -> None:
    row = {**ROW, "on_demand_usd_per_hour": "27.43298", "spot_median_usd_per_hour": "27.4330"}
    assert str(read_book(write(tmp_path, row)).offers[1].usd_per_hour) == "27.43298"
    row["spot_median_usd_per_hour"] = "27.4331"
    assert "above the on-demand price" in refusal(write(tmp_path, row))


@pytest.mark.parametrize("day", ["", "undated-v6"])
def test_an_undated_price_is_weak(tmp_path: Path, day: str) -> None:
    book = read_book(write(tmp_path, {**ROW, "as_of": day, "spot_as_of": day}))
    assert [(o.as_of, o.weak) for o in book.offers] == [(None, "undated")] * 2
    assert book.as_of == embedded_book().as_of


def test_a_machine_nobody_knows_comes_from_its_row(tmp_path: Path) -> None:
    row = {**ROW, "instance_type": "p9.huge", "vcpus": "64", "memory_gib": "512.5"}
    machine = read_book(write(tmp_path, row)).machine("aws", "p9.huge")
    assert machine is not None
    assert (machine.accelerator_memory_gib, machine.vcpus, machine.memory_gib) == (80, 64, 512.5)
    assert (machine.inter_node_gbps, machine.fabric, machine.checked) == (None, None, False)


@pytest.mark.parametrize(
    ("change", "column", "what"),
    [
        ({"on_demand_usd_per_hour": "-1"}, "on_demand_usd_per_hour", "not above 0"),
        ({"spot_usd_per_hour": "0"}, "spot_usd_per_hour", "not above 0"),
        ({"on_demand_usd_per_hour": "cheap"}, "on_demand_usd_per_hour", "not an amount"),
        ({"on_demand_usd_per_hour": "nan"}, "on_demand_usd_per_hour", "not a finite"),
        ({"on_demand_usd_per_hour": "1.0000000001"}, "on_demand_usd_per_hour", "nine decimals"),
        ({"spot_usd_per_hour": "60"}, "spot_usd_per_hour", "above the on-demand price 55.04"),
        ({"on_demand_usd_per_hour": "", "spot_usd_per_hour": ""}, "on_demand_usd_per_hour", "neither"),
        ({"region": "useast-1"}, "region", "did you mean us-east-1?"),
        ({"cloud": "aws2"}, "cloud", "did you mean aws?"),
        ({"accelerator": "H10"}, "accelerator", "did you mean H100?"),
        ({"accelerator_count": "4"}, "accelerator_count", "has 8 x H100, not 4 x H100"),
        ({"accelerator_count": "0"}, "accelerator_count", "whole number of 1 or more"),
        ({"accelerator_count": ""}, "accelerator_count", "is blank"),
        ({"source": ""}, "source", "is blank"),
        ({"as_of": "21.11.2026"}, "as_of", "not a date"),
        ({"interruption_band": "5%"}, "interruption_band", "not one of"),
        ({"machines_cap": "9" * 5000}, "machines_cap", "whole number of 0 or more"),
        ({"machines_cap": "-1"}, "machines_cap", "whole number of 0 or more"),
        ({"interruptions_per_hour": "inf"}, "interruptions_per_hour", "not a number"),
        ({"interruptions_per_hour": "1", "spot_usd_per_hour": ""}, "interruptions_per_hour", "no spot price"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_column(
    tmp_path: Path, change: dict[str, str], column: str, what: str
) -> None:
    path = write(tmp_path, ROW | change, header=(*COLUMNS, "machines_cap", "interruptions_per_hour"))
    text = refusal(path)
    assert text.startswith(f"{path}:2: {column}: "), text
    assert what in text


def test_every_problem_is_listed(tmp_path: Path) -> None:
    text = refusal(write(tmp_path, {**ROW, "cloud": ""}, {**ROW, "source": "", "accelerator": "X1"}, ROW))
    assert [line.split(": ")[1] for line in text.splitlines()] == ["cloud", "source", "accelerator"]


def test_the_same_key_twice_names_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path, ROW, {**ROW, "on_demand_usd_per_hour": "54"})
    assert f"{path}:3: instance_type: aws/us-east-1 p5.48xlarge (on_demand) is already at {path}:2" in refusal(path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        (",".join(COLUMNS), "holds no offers"),
        ("cloud,region\naws,us-east-1\n", "instance_type: missing column"),
        (",".join(COLUMNS).replace("cloud", "clod") + "\n", "clod: unknown column (did you mean cloud?)"),
        (",".join((*COLUMNS, "cloud")) + "\n", "cloud: column is there twice"),
        (",".join(COLUMNS) + "\naws,us-east-1\n", ":2: 2 cells under 17 columns"),
        (",".join(COLUMNS) + '\n"aws', ":2: is not CSV"),
    ],
)
def test_wrong_columns(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "book.csv"
    path.write_text(text, encoding="utf-8")
    assert what in refusal(path)


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00", b"cloud,region\n\x80\x81\n", b"cl\x00oud\n"])
def test_bytes_that_are_no_text(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "book.csv"
    path.write_bytes(raw)
    assert str(path) in refusal(path)


def test_a_spreadsheet_byte_order_mark_is_fine(tmp_path: Path) -> None:
    path = write(tmp_path, ROW)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert len(read_book(path).offers) == 2
