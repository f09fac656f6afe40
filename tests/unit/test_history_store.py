"""A price history on disk: parts that are broken or foreign, merging, readers beside writers."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from pricing.problems import InvalidInputError
from router.prices import history, history_sql
from tests.support.price_points import a_point, parts_of, read_back, rows_on_disk


def three_parts(folder: Path) -> list[Path]:
    for hours in range(3):
        history.append(folder, [a_point(hours)])
    return parts_of(folder)


def test_a_month_is_a_folder_and_every_append_a_part(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(0), a_point(24 * 30)])
    history.append(tmp_path, [a_point(1)])
    assert [part.parent.name for part in parts_of(tmp_path)] == ["month=2026-11", "month=2026-11", "month=2026-12"]
    part = pq.ParquetFile(parts_of(tmp_path)[0])
    assert part.metadata.metadata[b"stepfare_price_history"] == b"1"
    assert str(part.schema_arrow.field("usd_nanos_per_hour").type) == "int64"
    assert str(part.schema_arrow.field("at").type) == "timestamp[us, tz=UTC]"
    assert part.metadata.row_group(0).column(1).compression == "ZSTD"


@pytest.mark.parametrize("damage", ["cut", "empty", "other bytes", "bad page"])
def test_a_broken_part_is_named_with_what_to_do(damage: str, tmp_path: Path) -> None:
    first, broken, last = three_parts(tmp_path)
    content = broken.read_bytes()
    page = pq.read_metadata(broken).row_group(0).column(10).data_page_offset
    torn = content[: page - 30] + b"\xff" * 60 + content[page + 30 :]
    broken.write_bytes({"cut": content[:-20], "empty": b"", "other bytes": b"no Parquet" * 9, "bad page": torn}[damage])
    tries: list[Callable[[], object]] = [
        lambda: history.read_series(tmp_path),
        lambda: history.append(tmp_path, [a_point(1)]),
        lambda: history.compact(tmp_path),
    ]
    for attempt in tries:
        with pytest.raises(InvalidInputError) as refused:
            attempt()
        assert [problem.where for problem in refused.value.problems] == [str(broken)]
        assert "remove this file" in refused.value.problems[0].remedy
    assert parts_of(tmp_path) == sorted([first, broken, last])
    broken.unlink()
    assert read_back(tmp_path) == [a_point(0), a_point(2)]
    history.append(tmp_path, [a_point(1)])
    assert read_back(tmp_path) == [a_point(0), a_point(1), a_point(2)]


@pytest.mark.parametrize(("version", "what"), [("'2'", "has schema version 2"), (None, "no part of a price history")])
def test_parts_of_another_version_are_refused(version: str | None, what: str, tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(0)])
    (part,) = parts_of(tmp_path)
    metadata = f", KV_METADATA {{stepfare_price_history: {version}}}" if version else ""
    other = part.with_name("part-000000002-00000000.parquet")
    with duckdb.connect() as connection:
        connection.execute(f"COPY (FROM read_parquet('{part}')) TO '{other}' (FORMAT parquet{metadata})")
    with pytest.raises(InvalidInputError, match=what) as refused:
        history.read_series(tmp_path)
    assert [problem.where for problem in refused.value.problems] == [str(other)]


def test_what_does_not_belong_to_the_history_is_left_alone(tmp_path: Path) -> None:
    (part,) = three_parts(tmp_path)[:1]
    strangers = [part.with_name("notes.parquet"), tmp_path / "month=soon" / part.name, tmp_path / "readme.txt"]
    strangers[1].parent.mkdir()
    for stranger in strangers:
        stranger.write_text("mine", encoding="utf-8")
    history.compact(tmp_path)
    assert read_back(tmp_path) == [a_point(hours) for hours in range(3)]
    assert all(stranger.read_text(encoding="utf-8") == "mine" for stranger in strangers)


def test_what_a_killed_writer_left_is_ignored_and_cleared_away_by_the_next(tmp_path: Path) -> None:
    part = three_parts(tmp_path)[0]
    left = part.with_name(f".{part.name}.part")
    left.write_bytes(part.read_bytes()[:100])
    assert len(read_back(tmp_path)) == 3
    assert left.exists()
    history.append(tmp_path, [a_point(24 * 60)])
    assert not left.exists()


def test_merging_keeps_every_answer(tmp_path: Path) -> None:
    for price in ("3", "1", "2"):
        history.append(tmp_path, [a_point(hours, price) for hours in range(-30, 30)])
    history.append(tmp_path, [a_point(0, "9", zone=None), a_point(0, None, score=0.5, source="another")])
    before = read_back(tmp_path)
    assert history.compact(tmp_path) == history.Compacted(months=2, parts=7)
    assert (len(parts_of(tmp_path)), read_back(tmp_path)) == (2, before)
    assert history.compact(tmp_path) == history.Compacted(months=0, parts=0)
    history.append(tmp_path, [a_point(0, "1")])
    assert a_point(0, "1") in read_back(tmp_path)


def test_old_parts_that_outlive_their_merging_change_nothing(tmp_path: Path) -> None:
    for price in ("3", "1"):
        history.append(tmp_path, [a_point(hours, price) for hours in range(5)])
    shutil.copytree(tmp_path, tmp_path.with_name("before"))
    before = read_back(tmp_path)
    history.compact(tmp_path)
    shutil.copytree(tmp_path.with_name("before"), tmp_path, dirs_exist_ok=True)
    assert (len(parts_of(tmp_path)), rows_on_disk(tmp_path)) == (3, 20)
    assert read_back(tmp_path) == before
    history.compact(tmp_path)
    assert (len(parts_of(tmp_path)), rows_on_disk(tmp_path)) == (1, 10)
    assert read_back(tmp_path) == before


@pytest.mark.slow
def test_parts_are_merged_by_the_way_and_a_large_one_seldom(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(i / 60, available=math.sin(i) ** 2) for i in range(20_000)])
    large = max(parts_of(tmp_path), key=lambda part: part.stat().st_size)
    for i in range(34):
        history.append(tmp_path, [a_point(i, "5", source="another")])
        assert len(parts_of(large.parents[1])) <= history.MOST_PARTS + 1
    assert large.exists()
    assert len(history.read_series(tmp_path, history.Selection(sources=("another",)))) == 34


def test_a_merge_that_finds_no_room_does_not_fail_the_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_PARTS", 2)

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(history, "_merge", no_room)
    assert len(three_parts(tmp_path)) == 3
    assert len(read_back(tmp_path)) == 3


def test_a_writer_waits_for_another_and_then_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_sql, "LOCK_WAIT_S", 0.2)
    history.append(tmp_path, [a_point(0)])
    with FileLock(tmp_path / ".lock"):
        with pytest.raises(TimeoutError, match="another process has been writing price history"):
            history.append(tmp_path, [a_point(1)])
        assert read_back(tmp_path) == [a_point(0)]


def test_a_part_that_is_merged_away_while_it_is_read_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_parts(tmp_path)
    opened = history_sql.open_parts
    times = []

    def merged_meanwhile(connection: duckdb.DuckDBPyConnection, parts: tuple[history_sql.HistoryPart, ...]) -> None:
        times.append(len(parts))
        if len(times) == 1:
            monkeypatch.setattr(history_sql, "open_parts", opened)
            history.compact(tmp_path)
        opened(connection, parts)

    monkeypatch.setattr(history_sql, "open_parts", merged_meanwhile)
    assert read_back(tmp_path) == [a_point(hours) for hours in range(3)]


def test_a_query_that_is_interrupted_ends_as_any_command_does() -> None:
    with pytest.raises(KeyboardInterrupt), history_sql.connect():
        raise RuntimeError("Query interrupted")  # as DuckDB puts it
    with pytest.raises(RuntimeError, match="else"), history_sql.connect():
        raise RuntimeError("something else")


def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OSError, match="file"):
        history.append(tmp_path / "file", [a_point(0)])
