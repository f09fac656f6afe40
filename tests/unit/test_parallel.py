"""Tasks on one and on several processes: results in order, errors as they were raised, engines as written."""

from __future__ import annotations

import pickle

import pytest

from pricing.problems import InvalidInputError, Problem
from router.app.parallel import Engine, parse_engine, run_tasks


def multiply(factor: int, number: int) -> int:
    """Return the product; refuse what is below zero."""
    if number < 0:
        raise InvalidInputError.single(f"{number} is negative", field="number", remedy="write 3")
    return factor * number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_tasks(workers: int) -> None:
    seen: list[tuple[int, int]] = []
    results = run_tasks(multiply, 3, range(7), Engine(None, workers), lambda done, total: seen.append((done, total)))
    assert results == [0, 3, 6, 9, 12, 15, 18]
    assert seen == [(done, 7) for done in range(8)]
    assert run_tasks(multiply, 3, [], Engine(None, workers), lambda *_: None) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_refusal_arrives_whole(workers: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        run_tasks(multiply, 3, [1, -4], Engine(None, workers), lambda *_: None)
    assert caught.value.problems == (Problem("", "number", "-4 is negative", "write 3"),)


def test_a_refusal_of_several_problems_can_be_pickled() -> None:
    error = InvalidInputError([Problem("a.yaml:3", "steps", "is zero"), Problem("", "--gap", "is too large", "0.01")])
    again = pickle.loads(pickle.dumps(error))
    assert (again.problems, str(again)) == (error.problems, str(error))


def test_engines_are_read_as_written() -> None:
    assert parse_engine("processes", 3) == Engine(None, 3)
    assert parse_engine("processes", None).workers >= 1
    assert parse_engine("ray://head.example.com:10001", None) == Engine("ray://head.example.com:10001", 0)
    for text in ("ray", "ray://", "ray://head", "ray://head:x", "ray://a/b:1", "http://head:10001", ""):
        with pytest.raises(InvalidInputError, match="--engine"):
            parse_engine(text, None)
