"""Places of the sandbox are closed and opened by lines of its stock file, which the sandbox's own script reads."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.sandbox.stock import ClosedPlace, StockFile, add_closed_line, read_line, remove_closed_lines
from terraform.workdir import MODULES

LINES = "# what there is\nr z1 m spot 3\n\ndelay 0.1\nsick *-9\n"
_PLACES = st.sampled_from(["r", "z1", "z2"])
_CLOSED = st.builds(ClosedPlace, _PLACES, st.none() | st.integers(0, 2**33), st.sampled_from(["", "d-1", "d-2"]))


def _take(cloud: Path, zone: str, region: str = "r") -> str:
    """What the sandbox says to somebody who wants a machine; nothing when there is one."""
    words = ["sh", str(MODULES / "sandbox" / "stock.sh"), str(os.getpid()), region, zone, "m", "spot"]
    environment = {"PATH": os.environ["PATH"], "STEPFARE_SANDBOX": str(cloud)}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60).stderr


@given(_CLOSED)
def test_a_line_is_read_as_it_was_written(closed: ClosedPlace) -> None:
    assert read_line(closed.line) == closed


@given(st.lists(_CLOSED, max_size=5), _CLOSED)
def test_closing_and_opening_leave_all_other_lines_alone(others: list[ClosedPlace], closed: ClosedPlace) -> None:
    before = LINES
    for other in others:
        before = add_closed_line(before, other)
    after = add_closed_line(before, closed)
    assert after.splitlines().count(closed.line) == 1
    assert add_closed_line(after, closed) == after
    opened = remove_closed_lines(after, closed.place, closed.by)
    stays = [one for one in before.splitlines() if not _is_of(one, closed)]
    assert opened.splitlines() == stays
    assert opened.startswith(LINES)
    assert remove_closed_lines(after, "elsewhere") == after


def _is_of(line: str, closed: ClosedPlace) -> bool:
    one = read_line(line)
    return one is not None and (one.place, one.by) == (closed.place, closed.by)


@pytest.mark.parametrize("line", ["", "closed", "closed z1", "closed z1 soon", "# closed z1 -", "r z1 m spot 3"])
def test_what_closes_nothing(line: str) -> None:
    assert read_line(line) is None


def test_a_closed_zone_has_no_machine_until_it_is_opened(tmp_path: Path) -> None:
    cloud = tmp_path / "cloud"
    stock = StockFile(cloud)
    assert stock.closed(0) == ()
    assert not stock.open("z1")
    assert not cloud.exists()
    stock.close("z1", None, "d-1")
    assert stock.closed(2**40) == (ClosedPlace("z1", None, "d-1"),)
    assert "InsufficientInstanceCapacity" in _take(cloud, "z1")
    assert "left in z1" in _take(cloud, "z1")
    # Nobody waits for a turn where there is nothing.
    assert not (cloud / "turns").exists()
    # The rest of the region, and machines that may be anywhere in it.
    assert _take(cloud, "z2") == _take(cloud, "-") == ""
    assert stock.open("z1")
    assert _take(cloud, "z1") == ""
    assert not stock.open("z1")


def test_a_closed_region_has_none_in_any_zone_and_others_are_open(tmp_path: Path) -> None:
    (tmp_path / "stock").write_text("r z1 m spot 3\n")
    StockFile(tmp_path).close("r", None, "d-1")
    assert "left in z1" in _take(tmp_path, "z1")
    assert "left in r\n" in _take(tmp_path, "-")
    assert _take(tmp_path, "z9", region="q") == ""


def test_two_that_closed_a_place_open_their_own(tmp_path: Path) -> None:
    stock = StockFile(tmp_path)
    stock.close("z1", None, "d-1")
    stock.close("z1", None, "d-2")
    assert stock.open("z1", "d-1")
    assert "left in z1" in _take(tmp_path, "z1")
    assert stock.open("z1", "d-2")
    assert _take(tmp_path, "z1") == ""


def test_it_opens_by_itself(tmp_path: Path) -> None:
    stock, now = StockFile(tmp_path), time.time()
    assert stock.close("z1", now - 5, "d-1").until is not None
    assert stock.closed(now) == ()
    assert _take(tmp_path, "z1") == ""
    stock.close("z1", now + 600, "d-2")
    assert [one.by for one in stock.closed(now)] == ["d-2"]
    assert "left in z1" in _take(tmp_path, "z1")


def test_many_at_once_lose_no_line(tmp_path: Path) -> None:
    (tmp_path / "stock").write_text(LINES)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: StockFile(tmp_path).close(f"z{n}", None, "d-1"), range(40)))
        list(pool.map(lambda n: StockFile(tmp_path).open(f"z{n}"), range(0, 40, 2)))
    assert {one.place for one in StockFile(tmp_path).closed(0)} == {f"z{n}" for n in range(1, 40, 2)}
    assert (tmp_path / "stock").read_text().startswith(LINES)
    assert {path.name for path in tmp_path.iterdir()} == {"stock", "stock.lock"}


@pytest.mark.parametrize("place", ["", "a b", "z1\nz2"])
def test_a_place_that_is_no_word_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        StockFile(tmp_path).close(place, None, "d-1")
    assert not (tmp_path / "stock").exists()
