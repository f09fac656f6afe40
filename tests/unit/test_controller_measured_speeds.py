"""How fast a gang trains, from the reports of its machines, and when that is not known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pricing.book import PriceBook
from pricing.book_file import embedded_book
from router.controller.history.attempt_history import AttemptHistory
from router.controller.history.run_records import job_as_measured, measure_speed
from router.jobs.measured_speed import MeasuredSpeed
from router.jobs.speed import Speed, gang_speed
from router.state.records import Attempt, NodeRecord
from tests.support.made_up_jobs import simple_job
from tests.support.state_values import HOUR, NOW, attempt, node


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return embedded_book()


def gang(hours: float, steps: int, *seconds: float | None, **more: Any) -> tuple[Attempt, list[NodeRecord]]:
    """An attempt that ran for so long and came so far from step 100 on, with each rank's time of a step."""
    one = attempt(met_at=NOW, first_step=100, machines=len(seconds), **more)
    heard = NOW + timedelta(hours=hours)
    return one, [node(rank=n, heard_at=heard, step=100 + steps, step_seconds=s) for n, s in enumerate(seconds)]


def rate(measured: MeasuredSpeed | None) -> float | None:
    return None if measured is None else measured.steps_per_hour


def test_the_trainings_own_time_of_a_step_counts_where_the_clock_agrees(book: PriceBook) -> None:
    found = measure_speed(*gang(1, 300, 9.0, 10.0), book)
    assert found is not None
    assert (found.machines, found.steps_per_hour) == (2, 360.0)
    assert (found.machine.instance_type, found.accelerators, found.fabric) == ("p5.48xlarge", 16, "rdma")


@pytest.mark.parametrize("seconds", [None, 0.05, 500.0], ids=["not told", "a fast clock", "one slow step"])
def test_else_it_is_steps_by_the_clock(book: PriceBook, seconds: float | None) -> None:
    assert rate(measure_speed(*gang(2, 600, seconds), book)) == pytest.approx(300.0)
    assert measure_speed(*gang(0.5, 150, seconds), book) is None


def test_a_gang_that_is_over_is_measured_until_it_was_gone(book: PriceBook) -> None:
    assert rate(measure_speed(*gang(4, 600, None, gone_at=NOW + 2 * HOUR), book)) == pytest.approx(300.0)


def test_too_little_is_no_measure(book: PriceBook) -> None:
    assert measure_speed(*gang(0.1, 300, 1.0), book) is None
    assert measure_speed(*gang(3, 9, 1000.0), book) is None
    one, nodes = gang(1, 300, 10.0, 10.0)
    assert measure_speed(attempt(), nodes, book) is None
    assert measure_speed(one, [node(), node(rank=1)], book) is None


def test_machines_of_several_types_or_of_none_that_is_known_are_no_measure(book: PriceBook) -> None:
    one, nodes = gang(1, 300, 10.0)
    assert measure_speed(one, [*nodes, node(rank=1, instance_type="p4d.24xlarge")], book) is None
    assert (
        measure_speed(one, [node(instance_type="x9", heard_at=NOW + HOUR, step=400, step_seconds=10.0)], book) is None
    )


def test_a_job_has_the_speed_of_its_newest_gang_that_was_measured(book: PriceBook) -> None:
    job = simple_job("llama", ("H100", 8), steps=5000, steps_per_hour=1000)
    lives = [gang(2, 600, 11.0), gang(2, 1000, 7.0), gang(0.1, 1, None)]
    chain = AttemptHistory(
        tuple(one for one, _ in lives), (0, 0, 0), ("", "", ""), nodes=tuple(tuple(nodes) for _, nodes in lives)
    )
    machine, accelerator = book.machine("aws", "p5.48xlarge"), book.accelerator("H100")
    assert machine is not None
    assert accelerator is not None
    found = gang_speed(job_as_measured(job, chain, book).workload, machine, 1, accelerator)
    assert isinstance(found, Speed)
    newest = 3600 / 7
    assert found.steps_per_hour == pytest.approx(newest * (1000 / newest) ** (16 / 40_016))
    unmeasured = AttemptHistory((attempt(),), (0,), ("",), nodes=((node(),),))
    assert job_as_measured(job, unmeasured, book) is job
