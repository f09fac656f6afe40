"""A month of nights in which true speeds and interruption rates differ from what is stated by up to two.

What the plan predicts for a step comes near to what it truly costs, and nobody types anything: the nights leave
attempts in a state, and the next plan reads them. tests/support/learning_month.py plays it.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from tests.support.learning_month import World
from tests.support.new_state import open_state
from tests.support.scenes import NOW


def test_after_a_few_nights_predictions_are_near_the_truth(tmp_path: Path) -> None:
    with open_state(tmp_path / "state.db", NOW) as store:
        world = World(store, seed=1, count=2)
        world.play(4)
    assert world.errors(1) > 0.2
    assert world.errors(4) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_predictions_are_within_a_tenth_from_the_tenth_night_on(tmp_path: Path, seed: int) -> None:
    """Also of the money: what nights 10 to 30 cost is what was predicted, within a tenth."""
    with open_state(tmp_path / "state.db", NOW) as store:
        world = World(store, seed=seed)
        world.play(30)
    late = range(10, 31)
    assert max(world.errors(night) for night in late) < 0.1
    predicted, paid = world.spent(late)
    assert predicted == pytest.approx(paid, rel=0.1)


@pytest.mark.slow
def test_without_learning_predictions_stay_as_wrong_as_they_were(tmp_path: Path) -> None:
    with open_state(tmp_path / "state.db", NOW) as store:
        world = World(store, seed=1, learns=False)
        world.play(10)
    assert median(world.errors(night) for night in range(1, 11)) > 0.2
