"""Sets of traces from files, folders and globs; what cannot be joined, and what is broken, with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pricing.problems import InvalidInputError
from router.config.trace_files import Holes, ListPrices, read_trace_sets

LISTED = ListPrices(spot_usd_per_hour=1.0, on_demand_usd_per_hour=3.0)


def trace(path: Path, data: object, **metadata: Any) -> Path:
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600, **metadata}, "data": data}), encoding="utf-8")
    return path


def refused(*paths: object, **options: Any) -> str:
    with pytest.raises(InvalidInputError) as info:
        read_trace_sets([str(path) for path in paths], listed=LISTED, **options)
    return str(info.value)


def test_a_folder_a_file_and_a_glob(tmp_path: Path) -> None:
    trace(tmp_path / "us-east-1a_v100_1.json", [0, 1])
    trace(tmp_path / "us-east-1a_k80_1.json", [1, 1])
    trace(tmp_path / "us-east-1b_v100_1.json", [1, 0])
    more = tmp_path / "more"
    more.mkdir()
    trace(more / "us-west-2a.json", [1, 0, 1])
    sets = read_trace_sets(
        [str(more), str(tmp_path / "us-east-1a_k80_1.json"), f"{tmp_path}/*_v100_1.json", f"{tmp_path}/us-east-1a*"],
        listed=LISTED,
    )
    assert [s.name for s in sets[:2]] == ["more", "us-east-1a_k80_1"]
    assert [[z.zone for z in s.series.zones] for s in sets] == [
        ["us-west-2a"],
        ["us-east-1a"],
        ["us-east-1a", "us-east-1b"],
        ["us-east-1a_k80_1", "us-east-1a_v100_1"],
    ]
    assert [s.alike for s in sets] == [False, False, False, True]
    assert sets[3].series.regions == ("us-east-1", "us-east-1")


def test_all_that_is_wrong_with_all_of_them(tmp_path: Path) -> None:
    trace(tmp_path / "a.json", [0, 1])
    trace(tmp_path / "b.json", [0, 1, 1])
    trace(tmp_path / "c.json", [0, None])
    broken = tmp_path / "broken.json"
    broken.write_text('{"metadata": {},\n "data": [1, }', encoding="utf-8")
    said = refused(tmp_path / "c.json", broken, tmp_path / "none")
    assert "1 ticks have no answer: 1" in said
    assert f"{broken}:2:14: is not JSON" in said
    assert f"{tmp_path / 'none'}: cannot be read" in said
    said = refused(f"{tmp_path}/[ab].json")
    assert f"{tmp_path / 'b.json'}: data: 3 ticks of 600 s, but {tmp_path / 'a.json'} has 2" in said
    (tmp_path / "empty").mkdir()
    assert "there is no trace" in refused(tmp_path / "empty")
    assert read_trace_sets([str(tmp_path / "c.json")], listed=LISTED, holes=Holes.LAST)[0].series.ticks == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"metadata": {"gap_seconds": 600}, "data": [1, NaN]}', "data[1]: nan is not a number of machines"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1, -2]}', "data[1]: -2 is not a number of machines"),
        (
            '{"metadata": {"gap_seconds": 60, "spot_price_per_hour": NaN, "on_demand_price_per_hour": 3}, "data": [1]}',
            "spot_price_per_hour: nan is not a price above zero",
        ),
        (
            '{"metadata": {"gap_seconds": 600, "spot_price_per_hour": 1, "on_demand_price_per_hour": -3}, "data": [1]}',
            "on_demand_price_per_hour: -3 is not a price above zero",
        ),
    ],
)
def test_numbers_that_are_none(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    assert says in refused(tmp_path)
