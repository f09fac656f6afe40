"""Small writes of many threads, done together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from router.state.joint_writes import WriteBatcher
from tests.support.busy import eventually


class Slow:
    """Keeps what was written together; the first write waits for ``gate``, and no odd number above 100 is taken."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()

    def write(self, items: Sequence[int]) -> list[str]:
        first = not self.batches
        self.batches.append(list(items))
        if first:
            assert self.gate.wait(10)
        if any(item > 100 and item % 2 for item in items):
            raise ValueError("odd")
        return [f"<{item}>" for item in items]


def test_what_comes_while_one_writes_is_written_in_one_go() -> None:
    slow = Slow()
    combining = WriteBatcher[int, str](slow.write, lambda item: item)
    with ThreadPoolExecutor(16) as threads:
        first = threads.submit(combining.do, 0)
        eventually(lambda: bool(slow.batches))
        others = [threads.submit(combining.do, n) for n in range(1, 11)]
        eventually(lambda: len(combining._waiting) == 10)
        slow.gate.set()
        assert [future.result(10) for future in (first, *others)] == [f"<{n}>" for n in range(11)]
    assert [sorted(batch) for batch in slow.batches] == [[0], list(range(1, 11))]


def test_of_the_same_thing_one_is_written_at_a_time() -> None:
    slow = Slow()
    slow.gate.set()
    combining = WriteBatcher[int, str](slow.write, lambda item: item % 3)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(combining.do, range(60))) == [f"<{n}>" for n in range(60)]
    assert sorted(item for batch in slow.batches for item in batch) == list(range(60))
    assert all(len({item % 3 for item in batch}) == len(batch) for batch in slow.batches)


def test_what_is_wrong_with_one_is_told_to_the_one_who_asked() -> None:
    slow = Slow()
    combining = WriteBatcher[int, str](slow.write, lambda item: item)
    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(combining.do, 0)
        eventually(lambda: bool(slow.batches))
        good, bad = threads.submit(combining.do, 102), threads.submit(combining.do, 103)
        eventually(lambda: len(combining._waiting) == 2)
        slow.gate.set()
        assert (first.result(10), good.result(10)) == ("<0>", "<102>")
        with pytest.raises(ValueError, match="odd"):
            bad.result(10)
    assert combining.do(104) == "<104>"
