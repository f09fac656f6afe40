"""Files that are not what they should be, by accident or on purpose: refused with their place, in little memory."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pricing.problems import InvalidInputError
from router.showback.focus.feed import LIMITS, FeedLimits, open_feed

HEADER = "BilledCost,EffectiveCost,Tags\n"
SMALL = FeedLimits(rows=10, bytes=10_000, columns=5, line=200, ratio=20, ratio_from=2_000, batch_rows=4)


def read(path: Path, limits: FeedLimits = LIMITS) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    with open_feed(path, limits) as feed:
        for batch in feed.batches:
            for name, column in batch.columns.items():
                found.setdefault(name, []).extend(column.to_pylist())
    return found


def refusal(path: Path, limits: FeedLimits = LIMITS) -> str:
    with pytest.raises(InvalidInputError) as caught:
        read(path, limits)
    return str(caught.value).replace(str(path.parent), "")


def test_lines_are_those_of_the_file_also_after_a_cell_of_several(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text(HEADER + '1,1,"a\nb\nc"\n2,2,\n\n3,3,x\n', newline="")
    with open_feed(path, replace(LIMITS, batch_rows=2)) as feed:
        batches = list(feed.batches)
    assert [list(batch.lines or ()) for batch in batches] == [[4, 5], [7]]
    assert [batch.first for batch in batches] == [1, 3]
    assert batches[0].columns["Tags"].to_pylist() == ["a\nb\nc", None]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a byte order mark"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["csv", "gzip"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_text_is_read_however_it_is_packed(
    start: bytes, pack: Callable[[bytes], bytes], end: str, tmp_path: Path
) -> None:
    path = tmp_path / "a bill"
    path.write_bytes(pack(start + (HEADER + "1,2,ü\n").replace("\n", end).encode()))
    assert read(path) == {"BilledCost": ["1"], "EffectiveCost": ["2"], "Tags": ["ü"]}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "/f.csv: is empty"),
        (b"\n\n", "/f.csv: is empty"),
        (HEADER.encode() + b"1,2\n", "/f.csv:2: has 2 cells where the header has 3"),
        (HEADER.encode() + b"1,2,3\n1,2,3,4\n", "/f.csv:3: has 4 cells where the header has 3"),
        (HEADER.encode() + b'1,2,"a"b\n', "/f.csv:2: is not CSV"),
        (HEADER.encode() + b'1,2,"a\n', "/f.csv:2: is not CSV: unexpected end of data"),
        (HEADER.encode() + b"1,2,\xff\n", "/f.csv:1: is not UTF-8 after here: invalid start byte"),
        (HEADER.encode("utf-16"), "/f.csv: is UTF-16"),
        (b"PK\x03\x04rest", "/f.csv: is a zip archive"),
        (b"BilledCost,BilledCost\n", "/f.csv:1: names the column 'BilledCost' twice"),
        (b"BilledCost,\n", "/f.csv:1: has a column without a name"),
        (gzip.compress(HEADER.encode() * 50, mtime=0)[:-12], "is damaged gzip, or cut off, after here"),
        (gzip.compress(HEADER.encode(), mtime=0)[:10] + b"noise", "is damaged gzip, or cut off, after here"),
        (b"PAR1 but nothing more", "/f.csv: is no Parquet that can be read"),
        (bytes(range(256)) * 20, "/f.csv:1: is not UTF-8 after here"),
    ],
)
def test_what_is_no_bill_is_refused_with_its_place(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(content)
    assert told in refusal(path)


def test_a_cell_without_end_is_no_cell(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text(HEADER + '1,2,"' + "x\n" * 100_000)
    assert "field larger than field limit" in refusal(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a,b,c,d,e,f\n", "/f.csv:1: has 6 columns, 5 at most"),
        (HEADER + "1,2," + "x" * 300, "/f.csv:2: is a line of more than 200 characters"),
        (HEADER + "1,2,3\n" * 20, "/f.csv:13: has more than 10 rows"),
        (HEADER + ("1,2," + "x" * 150 + "\n") * 100, "goes beyond 10,000 bytes"),
    ],
)
def test_more_than_is_read_is_refused(content: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text(content)
    limits = replace(SMALL, rows=100) if "beyond" in told else SMALL
    assert told in refusal(path, limits)


def test_a_bomb_is_refused_before_it_goes_off(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    row = b"1,2," + b"x" * 100_000 + b"\n"
    with gzip.open(path, "wb") as stream:
        stream.write(HEADER.encode())
        for _ in range(100):
            stream.write(row * 10)  # a hundred megabytes in a hundred kilobytes
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    told = refusal(path, replace(LIMITS, ratio_from=1 << 22))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "unpacks to more than 500 times its size" in told
    assert most < 100_000_000


def test_what_would_never_end_is_not_begun(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "/pipe: is no regular file" in refusal(tmp_path / "pipe")
    assert "is no regular file" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "nothing")
    assert "is no regular file" in refusal(Path("/dev/zero"))


def write(path: Path, **columns: pa.Array) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_of_any_type_is_text_as_focus_writes_it(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 1, 2, 3, 4, 500_000, tzinfo=UTC)
    path = write(
        tmp_path / "f.parquet",
        exact=pa.array([Decimal("1.50"), Decimal("-0.000000001"), None]),
        double=pa.array([0.1, 1e-7, 1e22]),
        whole=pa.array([1, -2, None]),
        text=pa.array(["a", "", None]),
        seldom=pa.array(["a", "a", "b"]).dictionary_encode(),
        zone=pa.array([moment, moment.replace(microsecond=0), None], pa.timestamp("us", tz="UTC")),
        elsewhere=pa.array([moment] * 3, pa.timestamp("ms", tz="America/New_York")),
        local=pa.array([moment] * 3, pa.timestamp("s")),
        day=pa.array([date(2026, 11, 1)] * 3),
        nested=pa.array([[("team", "a")], [], None], pa.map_(pa.string(), pa.string())),
        struct=pa.array([{"a": 1.5, "b": None}, {"a": None, "b": [1]}, None]),
        nothing=pa.nulls(3),
    )
    assert read(path) == {
        "exact": ["1.500000000", "-1E-9", None],
        "double": ["0.1", "1E-7", "1E22"],
        "whole": ["1", "-2", None],
        "text": ["a", None, None],
        "seldom": ["a", "a", "b"],
        "zone": ["2026-11-01T02:03:04.5Z", "2026-11-01T02:03:04Z", None],
        "elsewhere": ["2026-11-01T02:03:04.5Z"] * 3,
        "local": ["2026-11-01T02:03:04"] * 3,
        "day": ["2026-11-01T00:00:00"] * 3,
        "nested": ['{"team":"a"}', "{}", None],
        "struct": ['{"a":1.5}', '{"b":[1]}', None],
        "nothing": [None, None, None],
    }


def test_binary_fractions_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", a=pa.array([0.1]), b=pa.array([Decimal("0.1")]))
    with open_feed(path) as feed:
        assert feed.floats == {"a"}


def test_parquet_that_says_too_much_or_unpacks_to_it(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", a=pa.array(["x"] * 20))
    assert "says it has 20 rows" in refusal(path, SMALL)
    wide = write(tmp_path / "w.parquet", a=pa.array(["x" * 100_000] * 1_000))
    small = replace(LIMITS, batch_bytes=1 << 18)
    with open_feed(wide, small) as feed:
        sizes = [batch.rows for batch in feed.batches]
    assert sum(sizes) == 1_000
    assert max(sizes) < 30
    assert "has a row of more text than is read at once" in refusal(wide, replace(LIMITS, batch_bytes=1 << 10))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_parquet_that_was_damaged_is_refused(share: float, tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", a=pa.array([f"x{i}" for i in range(5_000)]))
    content = bytearray(path.read_bytes())
    at = int(len(content) * share)
    content[at : at + 40] = bytes(range(200, 240))
    path.write_bytes(bytes(content))
    try:
        found = read(path)
    except InvalidInputError:
        return
    assert len(found["a"]) == 5_000  # noise within a text can be a text
