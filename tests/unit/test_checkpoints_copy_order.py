"""Which checkpoint is copied next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.checkpoints.uploader import PendingCheckpoint, choose_checkpoint


def _all(*sizes: int) -> list[PendingCheckpoint]:
    return [PendingCheckpoint(step, size) for step, size in enumerate(sizes, 1)]


@pytest.mark.parametrize(
    ("sizes", "running", "rate", "seconds", "chosen"),
    [
        ((), None, None, None, None),
        ((5, 5), None, None, None, 2),
        ((5, 5), 1, None, None, 1),  # without an end, what is under way ends
        ((5, 5), 1, 1.0, 10.0, 1),  # time for both
        ((5, 5), 1, 1.0, 9.0, 2),  # only for one: the newest
        ((5, 5), 2, 1.0, 5.0, 2),
        ((2, 5), 1, 1.0, 4.0, 1),  # the newest cannot
        ((2, 5), None, 1.0, 4.0, 1),
        ((3, 2, 9), None, 1.0, 4.0, 2),
        ((9, 9), None, 1.0, 1.0, 2),  # none can
        ((9, 9), 1, 1.0, 1.0, 1),
        ((9, 9), 1, None, 1.0, 2),  # nobody knows
        ((5, 5), 7, 1.0, 5.0, 2),  # what was under way counts no more
    ],
)
def test_choices(
    sizes: tuple[int, ...], running: int | None, rate: float | None, seconds: float | None, chosen: int | None
) -> None:
    assert choose_checkpoint(_all(*sizes), running, rate, seconds) == chosen


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(1, 20), st.integers(0, 50))
def test_what_can_be_durable_in_time_is(sizes: list[int], rate: int, seconds: int) -> None:
    chosen = choose_checkpoint(_all(*sizes), None, rate, seconds)
    assert chosen is not None
    can = [step for step, size in enumerate(sizes, 1) if size <= rate * seconds]
    assert chosen == (can[-1] if can else len(sizes))
