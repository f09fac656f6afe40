"""The form of a step's time: it predicts, narrows with each point, carries between accelerators."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from router.jobs.point_model import MISFIT, RATIO_ERROR, PointLinks, StepMeasurement, StepPlace, fit_form

BUS = PointLinks(switched=False, rdma=False)
FAST = PointLinks(switched=True, rdma=True)
PLACES = [
    StepPlace(1, 1, 8),
    StepPlace(1, 1, 64),
    StepPlace(1, 4, 8),
    StepPlace(1, 4, 64),
    StepPlace(3, 1, 8),
    StepPlace(3, 4, 8),
    StepPlace(3, 4, 64),
]


def true_seconds(place: StepPlace) -> float:
    """Return the seconds of a made-up job: 0.1 s and 10 ms a sample, a shared bus, a shared network card."""
    compute = 0.1 + 0.01 * place.batch
    if place.machines > 1:
        sync = 0.3 * place.per_machine**0.4 * (place.machines / 2) ** 0.2
    else:
        sync = 0.05 * (place.per_machine / 2) ** 0.8 if place.per_machine > 1 else 0.0
    return math.hypot(compute, sync)


def measured(*places: StepPlace, factor: float = 1.0, kind: int = 0) -> tuple[StepMeasurement, ...]:
    return tuple(StepMeasurement(p, factor * true_seconds(p), 0.05, kind) for p in places)


def test_seven_points_predict_other_batches_and_placements() -> None:
    form = fit_form(measured(*PLACES), BUS)
    for place in (StepPlace(1, 2, 32), StepPlace(4, 2, 16), StepPlace(8, 4, 8), StepPlace(16, 4, 64)):
        seconds, error = form.predict(place)
        assert seconds == pytest.approx(true_seconds(place), rel=0.15)
        assert abs(math.log(seconds / true_seconds(place))) < 2 * error


def test_one_point_scales_sanely() -> None:
    form = fit_form((StepMeasurement(StepPlace(1, 8, 8), 1.0, 0.05),), FAST)
    same, error = form.predict(StepPlace(1, 8, 8))
    assert same == pytest.approx(1.0, rel=0.02)
    assert error < 0.13
    # The same batch of the whole gang on twice and on eight times as many.
    twice, eightfold = form.predict(StepPlace(2, 8, 4)), form.predict(StepPlace(8, 8, 1))
    assert 0.5 < twice[0] < 0.75
    assert 0.125 < eightfold[0] < 0.5
    assert error < twice[1] < eightfold[1]


def test_each_point_narrows_the_interval_on_average() -> None:
    target = StepPlace(6, 4, 24)
    orders = list(itertools.permutations(PLACES))[::333]
    widths = np.array(
        [[fit_form(measured(*order[:n]), BUS).predict(target)[1] for n in range(1, 8)] for order in orders]
    )
    means = widths.mean(axis=0)
    assert np.all(np.diff(means) < 0), means
    assert means[-1] < 0.5 * means[0]
    assert means[-1] > MISFIT  # The form itself is never exact.


def test_the_order_of_points_changes_nothing() -> None:
    target = StepPlace(4, 4, 16)
    one, other = fit_form(measured(*PLACES), BUS), fit_form(measured(*PLACES[::-1]), BUS)
    assert one.predict(target) == pytest.approx(other.predict(target), rel=1e-4)


def test_a_point_that_would_be_measured_narrows_as_foretold() -> None:
    target, next_place = StepPlace(3, 4, 8), StepPlace(2, 4, 8)
    form = fit_form(measured(PLACES[0], PLACES[2]), BUS)
    foretold = form.with_point(next_place, 0.05).predict(target)
    assert foretold[0] == form.predict(target)[0]
    assert foretold[1] < form.predict(target)[1]
    predicted = StepMeasurement(next_place, form.predict(next_place)[0], 0.05)
    there = fit_form((*measured(PLACES[0], PLACES[2]), predicted), BUS).predict(target)
    assert foretold[1] == pytest.approx(there[1], rel=0.05)


def test_another_accelerator_is_carried_with_a_wider_error_until_a_pair_is_known() -> None:
    target = StepPlace(1, 4, 64)
    others = measured(PLACES[0], PLACES[1], PLACES[2], factor=2.0, kind=1)
    own = fit_form(measured(PLACES[0], PLACES[1], PLACES[2]), BUS).predict(target)
    # Data sheets say that the other one takes 1.8 times as long; it takes twice as long.
    carried = fit_form(others, BUS, (math.log(1.8),)).predict(target)
    assert carried[0] == pytest.approx(true_seconds(target) * 2 / 1.8, rel=0.1)
    assert carried[1] > max(own[1], RATIO_ERROR)
    paired = fit_form((*others, *measured(PLACES[0])), BUS, (math.log(1.8),)).predict(target)
    assert paired[0] == pytest.approx(true_seconds(target), rel=0.08)
    assert own[1] < paired[1] < carried[1] / 1.5


def test_extreme_points_give_finite_answers() -> None:
    for seconds, batch in ((1e-6, 1.0), (1e6, 1e7), (1.0, 1e-6)):
        form = fit_form((StepMeasurement(StepPlace(1, 1, batch), seconds, 0.0),), FAST)
        found = form.predict(StepPlace(1000, 8, batch * 100))
        assert all(math.isfinite(value) and value > 0 for value in found)
    noisy = tuple(StepMeasurement(StepPlace(1, 2**n, 1.0), s, 0.01) for n, s in enumerate((5.0, 0.1, 8.0, 0.2)))
    assert math.isfinite(fit_form(noisy, BUS).predict(StepPlace(2, 8, 1.0))[0])
