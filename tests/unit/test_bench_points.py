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


def test_one_point_of_a_published_run_is_no_worse_than_the_power_law_and_two_are_better() -> None:
    (one, law), (two, law_of_two) = points.score_runs(1), points.score_runs(2)
    assert one.median < law.median
    assert one.high < law.high
    assert two.median < law_of_two.median
    assert two.high < law_of_two.high


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("workers", [("k80", "p100", "v100"), ("k80", "p100")])
def test_one_and_two_workers_predict_four_and_eight(workers: tuple[str, ...], apart: bool) -> None:
    curves = scaling_curves("no" if apart else "yes", workers)
    found, law = score_scaling(curves, apart=apart), score_scaling_by_law(curves)
    assert found.median < law.median
    assert found.high < law.high
    if not apart:
        assert found.median <= 0.09
        # V100 rows are up to 3 times as fast on 2 as on 1, and slower on 4 in places: no form of a step's time is so.
        assert found.high <= (0.5 if "v100" in workers else 0.33)
