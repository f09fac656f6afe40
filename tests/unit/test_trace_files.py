"""Traces read from both forms, and everything that is refused: file, field, what, and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pricing.problems import InvalidInputError
from router.config.trace_files import Holes, ListPrices, read_trace_sets, read_traces, region_of

LISTED = ListPrices(spot_usd_per_hour=1.0, on_demand_usd_per_hour=3.0)


def trace(path: Path, data: object, **metadata: Any) -> Path:
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600, **metadata}, "data": data}))
    return path


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InvalidInputError) as info:
        read_traces(path, **options)
    return str(info.value)


def test_a_trace_with_list_prices(tmp_path: Path) -> None:
    series = read_traces(trace(tmp_path / "us-west-2a_k80_1.json", [0, 1, 2]), listed=LISTED)
    zone = series.zones[0]
    assert (series.tick_s, zone.zone, zone.region, zone.counts.tolist()) == (600, "us-west-2a", "us-west-2", [0, 1, 2])
    assert (series.spot_usd(2).tolist(), series.on_demand_usd().tolist()) == ([[2, 2, 2]], [3])


def test_prices_from_the_metadata_and_from_changes(tmp_path: Path) -> None:
    prices = tmp_path / "prices"
    prices.mkdir()
    trace(tmp_path / "us-east-1a_x.json", [1] * 5, first_tick=0)
    changes = {
        "metadata": {"gap_seconds": 600, "on_demand_price_per_hour": 3.06},
        "changes": [[2, 5.0], [0, 4], [4, 6]],
    }
    (prices / "us-east-1a_x.json").write_text(json.dumps(changes))
    series = read_traces(tmp_path, prices=prices)
    assert series.spot_usd().tolist() == [[4, 4, 5, 5, 6]]
    own = trace(prices / "b.json", [1], zone="us-central1-a", spot_price_per_hour=2, on_demand_price_per_hour=4)
    assert read_traces(own).zones[0].region == "us-central1"


def test_holes_are_refused_or_count_as_said(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json", [1, None, None, 0, None])
    said = refused(path, listed=LISTED)
    assert "3 ticks have no answer: 1, 2, 4" in said
    assert "down (no machine) or last" in said
    for holes, counts in ((Holes.DOWN, [1, 0, 0, 0, 0]), (Holes.LAST, [1, 1, 1, 0, 0])):
        assert read_traces(path, listed=LISTED, holes=holes).zones[0].counts.tolist() == counts


def test_other_ticks_are_made_one_clock_or_refused(tmp_path: Path) -> None:
    trace(tmp_path / "a_1.json", [1, 2, 3, 4])
    trace(tmp_path / "b_1.json", [5, 6], gap_seconds=1200)
    assert "ask for a common one, e.g. 1200 s" in refused(tmp_path, listed=LISTED)
    assert "a tick of 1200 s does not divide 600 s" in refused(tmp_path, listed=LISTED, tick_s=600)
    series = read_traces(tmp_path, listed=LISTED, tick_s=1200)
    assert [z.counts.tolist() for z in series.zones] == [[1, 3], [5, 6]]


@pytest.mark.parametrize(
    ("data", "metadata", "says"),
    [
        ([1, -1], {}, "data[1]: -1 is not a number of machines"),
        ([1, 0.5], {}, "data[1]: 0.5 is not"),
        ([True], {}, "data[0]: True is not"),
        ([], {}, "data: is missing or empty"),
        ([1], {"gap_seconds": 0}, "metadata.gap_seconds: 0 is not a whole number of seconds"),
        ([1], {"spot_price_per_hour": -1, "on_demand_price_per_hour": 3}, "-1 is not a price above zero"),
        ([1], {"spot_price_per_hour": 1}, "on_demand_price_per_hour: None is not a price"),
    ],
)
def test_what_is_wrong_in_trace(tmp_path: Path, data: object, metadata: dict[str, Any], says: str) -> None:
    path = trace(tmp_path / "a.json", data, **metadata)
    said = refused(path, listed=LISTED)
    assert says in said
    assert str(path) in said


def test_what_is_wrong_around_it(tmp_path: Path) -> None:
    assert "there is no trace" in refused(tmp_path)
    assert "cannot be read" in refused(tmp_path / "none.json")
    (tmp_path / "a.json").write_text("[")
    assert "is not JSON" in refused(tmp_path)
    (tmp_path / "a.json").write_text("[]")
    assert "metadata: is missing" in refused(tmp_path)
    trace(tmp_path / "a.json", [1])
    assert "name a folder of price files" in refused(tmp_path)
    assert "above zero" in refused(tmp_path, listed=ListPrices(0, 3))
    trace(tmp_path / "a_2.json", [1])
    assert "is in" in refused(tmp_path, listed=LISTED)
    trace(tmp_path / "a_2.json", [1, 1], zone="b")
    assert "2 ticks, but" in refused(tmp_path, listed=LISTED)
    trace(tmp_path / "a_2.json", [1], zone="b", first_tick=7)
    assert "begins at tick 7" in refused(tmp_path, listed=LISTED)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"metadata": {"gap_seconds": 60, "on_demand_price_per_hour": 3}, "changes": [[0, 1]]}, "60 s, but the trace"),
        ({"metadata": {"gap_seconds": 600, "on_demand_price_per_hour": 3}, "changes": []}, "not a list of [tick"),
        ({"metadata": {"gap_seconds": 600, "on_demand_price_per_hour": 3}, "changes": [[0, -2]]}, "changes[0]: -2 is"),
        ({"metadata": {"gap_seconds": 600}, "changes": [[0, 1]]}, "on_demand_price_per_hour: None"),
    ],
)
def test_what_is_wrong_in_prices(tmp_path: Path, content: object, says: str) -> None:
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "a.json").write_text(json.dumps(content))
    assert says in refused(trace(tmp_path / "a.json", [1, 1]), prices=tmp_path / "prices")


TABLE = (
    "tick,time_utc,us-east-1a,x\n0,2025-10-04T00:10:00Z,16,0\n1,2025-10-04T00:20:00Z,,1\n3,2025-10-04T00:40:00Z,2,1\n"
)
ZONE_ROWS = "zone,region,on_demand_usd_per_hour,spot_usd_per_hour\nx,north,3,1\nus-east-1a,us-east-1,4,\n"
CHANGES = "zone,tick,spot_usd_per_hour\nus-east-1a,0,2\nus-east-1a,2,2.5\n"


def tables(folder: Path, table: str = TABLE, zones: str = ZONE_ROWS, changes: str = CHANGES) -> Path:
    for name, text in (("counts.csv", table), ("zones.csv", zones), ("spot_price_changes.csv", changes)):
        (folder / name).write_text(text)
    return folder


def test_a_table(tmp_path: Path) -> None:
    series = read_traces(tables(tmp_path), holes=Holes.LAST)
    assert (series.tick_s, series.regions, series.ticks) == (600, ("north", "us-east-1"), 4)
    assert [z.counts.tolist() for z in series.zones] == [[0, 1, 1, 1], [16, 16, 16, 2]]
    assert series.spot_usd().tolist() == [[1, 1, 1, 1], [2, 2, 2.5, 2.5]]


@pytest.mark.parametrize(
    ("table", "zones", "changes", "says"),
    [
        (TABLE, ZONE_ROWS, CHANGES, "1 ticks have no answer: 2"),
        (TABLE.replace("\n3,", "\n1,"), ZONE_ROWS, CHANGES, "1 is there twice"),
        (TABLE.replace("\n3,", "\nc,"), ZONE_ROWS, CHANGES, "'c' is not a whole number"),
        (TABLE.replace("T00:40:00Z", "T00:10:00Z"), ZONE_ROWS, CHANGES, "does not go on"),
        (TABLE.replace("2025-10-04T00:40:00Z", "later"), ZONE_ROWS, CHANGES, "is not a time"),
        (TABLE.split("1,2025", maxsplit=1)[0], ZONE_ROWS, CHANGES, "fewer than two ticks"),
        (TABLE, ZONE_ROWS.replace("region", "place"), CHANGES, "has no column region"),
        (TABLE, "zone,region,on_demand_usd_per_hour\n", CHANGES, "has no rows"),
        (TABLE.replace(",x\n", ",y\n"), ZONE_ROWS, CHANGES, "has no column x"),
        (TABLE.replace("\n3,", "\n2,"), ZONE_ROWS.replace("3,1", "-3,1"), CHANGES, "'-3' is not a price above zero"),
        (TABLE.replace("\n3,", "\n2,"), ZONE_ROWS, CHANGES.replace("2.5", "nan"), "'nan' is not a price"),
        (TABLE.replace("\n3,", "\n2,"), ZONE_ROWS, CHANGES.replace(",2,2.5", ",-2,2.5"), "'-2' is not a tick"),
        (TABLE.replace("\n3,", "\n2,"), ZONE_ROWS.replace("3,1", "3,"), CHANGES, "spot_usd_per_hour: is missing"),
    ],
)
def test_what_is_wrong_in_tables(tmp_path: Path, table: str, zones: str, changes: str, says: str) -> None:
    assert says in refused(tables(tmp_path, table, zones, changes))


def test_one_table_of_counts(tmp_path: Path) -> None:
    (tables(tmp_path) / "more.csv").write_text("a")
    assert "2 tables of counts" in refused(tmp_path)


def test_regions_of_zones() -> None:
    assert [region_of(z) for z in ("us-west-2a", "europe-west1-c", "mine")] == ["us-west-2", "europe-west1", "mine"]


def refused_sets(*paths: object, **options: Any) -> str:
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
    said = refused_sets(tmp_path / "c.json", broken, tmp_path / "none")
    assert "1 ticks have no answer: 1" in said
    assert f"{broken}:2:14: is not JSON" in said
    assert f"{tmp_path / 'none'}: cannot be read" in said
    said = refused_sets(f"{tmp_path}/[ab].json")
    assert f"{tmp_path / 'b.json'}: data: 3 ticks of 600 s, but {tmp_path / 'a.json'} has 2" in said
    (tmp_path / "empty").mkdir()
    assert "there is no trace" in refused_sets(tmp_path / "empty")
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
    assert says in refused_sets(tmp_path)
