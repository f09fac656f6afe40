"""Speeds fitted to points, against published step times: at least as good as stated, and better than the power law."""

from __future__ import annotations

import pytest

from tests.bench import points
from tests.bench.points import FACTS, PublishedStep, profile_of, scaling_curves, score_scaling, score_scaling_by_law

pytestmark = pytest.mark.skipif(not FACTS.is_dir(), reason="needs the shared facts")


@pytest.fixture(scope="module")
def jobs() -> dict[str, list[PublishedStep]]:
    return points.step_times()


def test_seven_points_predict_all_other_step_times(jobs: dict[str, list[PublishedStep]]) -> None:
    assert all(len({(r.placement, r.place.batch) for r in profile_of(rows)}) == 7 for rows in jobs.values())
    found, law = points.score_step_times(jobs.values()), points.score_step_times_by_law(jobs.values())
    assert found.median <= 0.09
    assert found.high <= 0.25
    assert found.inside is not None
    assert 0.72 <= found.inside / len(found.errors) <= 0.88
    assert len(found.errors) > 3900
    assert law.median > 2 * found.median
    assert law.high > 2 * found.high


@pytest.mark.parametrize("consolidated", ["yes", "no"])
def test_one_and_two_workers_predict_four_and_eight(consolidated: str) -> None:
    for workers in (("k80", "p100", "v100"), ("k80", "p100")):
        curves = scaling_curves(consolidated, workers)
        found, law = score_scaling(curves, apart=consolidated == "no"), score_scaling_by_law(curves)
        assert found.median < law.median
        assert found.high < law.high
    if consolidated == "yes":  # The V100 rows are faster on 1 and 8 than on 4, which no form of a step's time allows.
        assert found.median <= 0.09
        assert found.high <= 0.33
