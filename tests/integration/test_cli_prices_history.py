"""``stepfare prices history`` as a user runs it."""

from __future__ import annotations

import csv
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import Result

from pricing.places import Market
from router.prices import history
from tests.support import command
from tests.support.price_points import START, a_point

NOW = "2026-11-03T00:00Z"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two days of three series, one of them watched, one without a price."""
    place = tmp_path / "history"
    h100 = [a_point(hours, f"{20 + hours % 5}") for hours in range(-24, 48, 6)]
    watched = [a_point(hours, None, available=hours % 2 / 2, source="probe") for hours in range(48)]
    listed = a_point(3, "98.32", market=Market.ON_DEMAND, zone=None, source="the <list>")
    scored = a_point(4, None, score=0.3, cloud="gcp", region="us-central1", zone=None, instance_type="a2-highgpu-8g")
    history.append(place, [*h100, *watched, listed, scored])
    return place


def run(folder: Path, *arguments: object) -> Result:
    return command.run("prices", "history", "--dir", folder, "--now", NOW, *arguments)


def rows(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)["series"]
    return found


def test_a_table_with_prices_moves_stock_and_course(folder: Path) -> None:
    result = run(folder, "--since", "2d")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["PLACE", "MACHINE", "MKT", "LAST", "LOW", "HIGH", "MEAN", "MOVES", "STOCK", "COURSE"]
    assert lines[1].split()[:-1] == [
        "aws/us-east-1a",
        "p5.48xlarge",
        "spot",
        "22.00",
        "20.00",
        "24.00",
        "21.62",
        "8",
        "25%",
    ]
    assert lines[1].split()[-1][0] == "▁"
    assert lines[2].split()[:4] == ["aws/us-east-1", "p5.48xlarge", "od", "98.32"]
    assert lines[3].split() == ["gcp/us-central1", "a2-highgpu-8g", "spot"]
    assert "2026-11-01 00:00Z to 2026-11-03 00:00Z" in result.stdout
    assert max(map(len, lines)) <= 80
    assert result.stderr == ""


def test_wide_says_everything(folder: Path) -> None:
    line = run(folder, "--since", "2d", "-o", "wide", "--market", "spot").stdout.splitlines()[1]
    assert "2026-11-02 18:00Z" in line
    assert line.endswith("a feed")
    assert " 48 " in line


def test_json_is_exact(folder: Path) -> None:
    result = run(folder, "-o", "json", "--since", "2d")
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    assert (document["since"], document["now"]) == ("2026-11-01T00:00:00+00:00", "2026-11-03T00:00:00+00:00")
    spot, listed, scored = document["series"]
    assert spot["mean_usd_per_hour"] == "21.625"
    assert (spot["changes"], spot["points"], spot["observations"], spot["available"]) == (8, 8, 48, 0.25)
    assert (listed["last_usd_per_hour"], listed["zone"], listed["source"]) == ("98.32", None, "the <list>")
    assert (scored["last_usd_per_hour"], scored["score"], scored["source"]) == (None, 0.3, None)


def test_csv_to_a_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    result = run(folder, "-o", "csv", "--out", out)
    assert (result.exit_code, result.stdout) == (0, "")
    found = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert [row["last_usd_per_hour"] for row in found] == ["22.00", "98.32", ""]


@pytest.mark.parametrize(
    ("arguments", "types"),
    [
        (("--cloud", "gcp"), ["a2-highgpu-8g"]),
        (("--region", "us-east-1", "--market", "spot"), ["p5.48xlarge"]),
        (("--region", "aws/us-east-1"), ["p5.48xlarge", "p5.48xlarge"]),
        (("--zone", "us-east-1a"), ["p5.48xlarge"]),
        (("--accelerator", "h100"), ["p5.48xlarge", "p5.48xlarge"]),
        (("--accelerator", "H100", "--instance-type", "p5.48xlarge"), ["p5.48xlarge", "p5.48xlarge"]),
        (("--instance-type", "a2-highgpu-8g"), ["a2-highgpu-8g"]),
        (("--limit", "1"), ["p5.48xlarge"]),
    ],
)
def test_filters(arguments: tuple[str, ...], types: list[str], folder: Path) -> None:
    result = run(folder, *arguments, "--book", "embedded", "-o", "json")
    assert [row["instance_type"] for row in rows(result)] == types


def test_a_long_list_is_cut_for_people(folder: Path) -> None:
    history.append(folder, [a_point(1, str(i + 1), zone=f"zone-{i:02}") for i in range(40)])
    table = run(folder)
    assert "30 of 43 series; --limit 0 shows all" in table.stderr
    assert len(table.stdout.splitlines()) == 34
    assert len(run(folder, "--limit", "0").stdout.splitlines()) == 47
    assert len(rows(run(folder, "-o", "json"))) == 43


def test_a_place_with_two_sources_is_pointed_out(folder: Path) -> None:
    history.append(folder, [a_point(1, "7", source="another")])
    assert "from two sources, -o wide names them" in run(folder).stdout


def test_an_empty_history_says_how_to_begin_one(tmp_path: Path) -> None:
    result = run(tmp_path / "none")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there is no price history in" in result.stderr
    assert "stepfare prices refresh" in result.stderr
    assert rows(run(tmp_path / "none", "-o", "json")) == []
    assert not (tmp_path / "none").exists()


def test_the_usual_folder_is_that_of_refresh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(folder.parent))
    result = command.run("prices", "history", "--now", NOW, "-o", "json")
    assert len(rows(result)) == 3


def test_nothing_passes(folder: Path) -> None:
    result = run(folder, "--region", "us-eats-1", "--zone", "us-east-1a")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no series passes the filters" in result.stderr
    assert "it knows no region 'us-eats-1': did you mean us-east-1?" in result.stderr
    assert "us-east-1a'" not in result.stderr
    # The earlier name of --dir.
    later = command.run("prices", "history", "--history", folder, "--now", "2027-11-03T00:00Z")
    assert "the history has 62 points from 2026-10-31 00:00Z to 2026-11-02 23:00Z" in later.stderr


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--since", "30"), "--since"),
        (("--since", "0d"), "--since"),
        (("--accelerator", "H10"), "did you mean H100?"),
        (("--accelerator", "A10", "--instance-type", "p5.48xlarge"), "none of these machines has A10"),
        (("--market", "barter"), "barter"),
        (("--plot", "prices.pdf"), "is neither .svg nor .html"),
        (("--book", "none.parquet", "--accelerator", "H100"), "no such file"),
        (("--now", "yesterday"), "--now"),
    ],
)
def test_bad_usage_is_exit_code_2_with_a_remedy(arguments: tuple[str, ...], what: str, folder: Path) -> None:
    result = run(folder, *arguments)
    assert result.exit_code == 2
    assert what in result.stderr
    assert (result.stdout, "Traceback" in result.output) == ("", False)


def test_a_broken_part_is_exit_code_2_and_named(folder: Path) -> None:
    part = next(folder.glob("month=2026-11/*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    result = run(folder)
    assert result.exit_code == 2
    assert str(part) in result.stderr
    assert "remove this file" in result.stderr


def test_a_picture(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "prices.svg"
    result = run(folder, "--plot", file)
    assert result.exit_code == 0
    assert "PLACE" in result.stdout
    content = file.read_text(encoding="utf-8")
    root = ElementTree.fromstring(content)
    assert float(root.attrib["width"]) > 1000
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert "prefers-color-scheme:dark" in content
    assert "var(" not in content, "viewers other than browsers know no variables"
    run(folder, "--plot", file)
    assert file.read_text(encoding="utf-8") == content
    assert [left.name for left in tmp_path.iterdir() if left.name.endswith(".part")] == []


def test_a_png_is_refused_and_says_what_is_drawn(folder: Path, tmp_path: Path) -> None:
    result = run(folder, "--plot", tmp_path / "prices.png")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "prices.png: only SVG is drawn now\n    name a .svg or an .html file" in result.stderr
    assert not (tmp_path / "prices.png").exists()


def test_a_page_that_needs_nothing_else(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "prices.html"
    history.append(folder, [a_point(1, str(i + 1), zone=f"$z-{i}$") for i in range(24)])
    result = run(folder, "--limit", 0, "--plot", file)
    assert "prices.html shows 24 of 27 series" in result.stderr
    text = file.read_text(encoding="utf-8")
    page = ElementTree.fromstring(
        text.replace("<!doctype html>", "")
        .replace('<meta charset="utf-8">', "")
        .replace('<meta name="viewport" content="width=device-width">', "")
    )
    assert page.find(".//svg") is not None
    links = [value for node in page.iter() for name, value in node.items() if name.endswith(("href", "src"))]
    assert [link for link in links if not link.startswith(("#", "data:"))] == []
    assert ("<script" in text, "@import" in text) == (False, False)
    assert [cell.text for cell in page.findall(".//td")][:4] == ["aws/us-east-1/$z-0$", "p5.48xlarge", "spot", "1.0000"]


@pytest.mark.parametrize("arguments", [("--market", "on_demand"), ("--zone", "us-east-1a")])
def test_pictures_of_prices_with_and_without_stock(arguments: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    for name in ("a.svg", "a.html"):
        result = run(folder, *arguments, "--plot", tmp_path / name)
        assert result.exit_code == 0
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert ("<list>" in page, "&lt;list&gt;" in page) == (False, "on_demand" in arguments)


def test_series_with_neither_price_nor_stock_make_no_picture(folder: Path, tmp_path: Path) -> None:
    result = run(folder, "--cloud", "gcp", "--plot", tmp_path / "a.svg")
    assert result.exit_code == 0
    assert "a.svg is not written" in result.stderr
    assert not (tmp_path / "a.svg").exists()


def test_a_picture_that_cannot_be_written_is_a_failure(folder: Path, tmp_path: Path) -> None:
    result = run(folder, "--plot", tmp_path / "none" / "a.svg")
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


def test_what_was_fetched_since_shows(folder: Path) -> None:
    history.append(folder, [a_point(47, "1"), a_point(47.5, "2")])
    first = rows(run(folder, "-o", "json", "--market", "spot"))[0]
    assert (first["last_usd_per_hour"], first["min_usd_per_hour"]) == ("2.00", "1.00")
    assert first["last_at"] == (START + timedelta(hours=47.5)).isoformat()
