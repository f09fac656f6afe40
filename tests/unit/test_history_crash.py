"""Writers of price history that are killed, run out of room, or write at the same time: processes of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from router.prices import history
from tests.support.price_points import START, parts_of, read_back
from tests.support.repository import ROOT

# ``points(n)`` are 300 points over three months that belong to append number n.
BEFORE = """
import os, resource, signal, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from pricing import atomic_file
from pricing.history import PricePoint
from pricing.money import UsdPerHour
from pricing.places import Market
from router.prices import history

def points(n):
    at = datetime(2026, 11, 1, tzinfo=UTC)
    price = UsdPerHour(10**9 + n)
    return [
        PricePoint("aws", "r", None, "t", Market.SPOT, at + timedelta(hours=7 * i), str(n), price)
        for i in range(300)
    ]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

folder = Path(sys.argv[1])
"""


def writer(code: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BEFORE + code, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def points_by_append(folder: Path) -> dict[str, int]:
    sources = [point.source for point in read_back(folder)]
    return {source: sources.count(source) for source in sorted(set(sources))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("killed_at", "kept"),
    [
        ("os.fsync = die", 0),
        ("atomic_file.sync_folder = die", 103),  # November is in its place, the other months are not
    ],
)
def test_a_writer_killed_at_any_step_leaves_a_month_whole_or_not_at_all(
    killed_at: str, kept: int, tmp_path: Path
) -> None:
    assert writer("history.append(folder, points(0))", tmp_path).communicate() == ("", "")
    killed = writer(f"{killed_at}\nhistory.append(folder, points(1))", tmp_path)
    killed.communicate()
    assert killed.returncode == -9
    assert points_by_append(tmp_path) == {"0": 300} | ({"1": kept} if kept else {})
    again = writer("print(history.append(folder, points(1)).written)", tmp_path)
    assert again.communicate() == (f"{300 - kept}\n", "")
    assert points_by_append(tmp_path) == {"0": 300, "1": 300}
    assert list(tmp_path.glob("month=*/.*.part")) == []


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", ["os.fsync = die", "history.remove_parts = die"])
def test_a_merge_that_is_killed_changes_no_answer(killed_at: str, tmp_path: Path) -> None:
    done = writer("for n in range(3): history.append(folder, points(n))", tmp_path)
    assert done.communicate() == ("", "")
    before = read_back(tmp_path)
    killed = writer(f"{killed_at}\nhistory.compact(folder)", tmp_path)
    killed.communicate()
    assert killed.returncode == -9
    assert read_back(tmp_path) == before
    history.compact(tmp_path)
    assert read_back(tmp_path) == before
    assert len(parts_of(tmp_path)) == 3
    assert list(tmp_path.glob("month=*/.*.part")) == []


def test_a_writer_killed_at_a_random_moment_keeps_what_it_had_acknowledged(tmp_path: Path) -> None:
    code = "for n in range(1000): history.append(folder, points(n)); print(n, flush=True)"
    killed = writer(f"history.MOST_PARTS = 3\n{code}", tmp_path)
    assert killed.stdout is not None
    killed.stdout.readline()
    time.sleep(0.7)
    killed.kill()
    acknowledged = 1 + len(killed.stdout.read().split())
    killed.communicate()
    found = points_by_append(tmp_path)
    assert [found.pop(str(n)) for n in range(acknowledged)] == [300] * acknowledged
    assert list(found) in ([], [str(acknowledged)])


@pytest.mark.slow
def test_a_disk_without_room_leaves_what_was_there(tmp_path: Path) -> None:
    writer("history.append(folder, points(0))", tmp_path).communicate()
    full = writer(
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))\n"
        "try: history.append(folder, points(1))\n"
        "except OSError as error: print(error)",
        tmp_path,
    )
    out, err = full.communicate()
    assert err == ""
    assert "File too large" in out
    assert points_by_append(tmp_path) == {"0": 300}
    assert list(tmp_path.glob("month=*/.*.part")) == []


@pytest.mark.slow
def test_writers_at_the_same_time_lose_nothing_and_store_nothing_twice(tmp_path: Path) -> None:
    code = "history.MOST_PARTS = 3\nprint(sum(history.append(folder, points(n)).written for n in range({})))"
    rivals = [writer(code.format(numbers), tmp_path) for numbers in ("6", "3, 9")]
    # A reader all the while: never an error, never fewer points than before.
    sizes = [0]
    while any(rival.poll() is None for rival in rivals):
        sizes.append(len(history.read_series(tmp_path)))
    assert sizes == sorted(sizes)
    answers = [rival.communicate() for rival in rivals]
    assert [err for _, err in answers] == ["", ""]
    assert sum(int(out) for out, _ in answers) == 9 * 300
    assert points_by_append(tmp_path) == {str(n): 300 for n in range(9)}
    assert history.summarize(tmp_path).first == START
