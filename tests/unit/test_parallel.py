"""Tasks on processes and on a cluster: results in order, errors as they were raised, a head that is busy."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace

import pytest

from pricing.problems import InvalidInputError, Problem
from router.app.parallel import Engine, EngineError, parse_engine, run_tasks


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


BUSY = "Initialization failure from server:\nRuntimeError: Starting Ray client server failed. See the log."


class MadeUpRay(SimpleNamespace):
    """A Ray whose connections fail with the given errors first, and that counts what it is asked."""

    def __init__(self, *errors: Exception) -> None:
        failures = SimpleNamespace(RayTaskError=LookupError, RayError=EOFError)
        super().__init__(exceptions=failures, errors=list(errors), tries=0, shutdowns=0)

    def init(self, *_words: object, **_options: object) -> None:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)

    def shutdown(self) -> None:
        self.shutdowns += 1

    def remote(self, _work: object) -> SimpleNamespace:
        return SimpleNamespace(options=lambda **_: None)

    def put(self, _given: object) -> None:
        pass

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1}


def _run(ray: MadeUpRay, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr("router.app.parallel._SECONDS_BETWEEN_TRIES", 0)
    return run_tasks(lambda *_: None, None, [], Engine("ray://head:10001", 0), lambda *_: None)


def test_a_busy_head_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = MadeUpRay(RuntimeError(BUSY), RuntimeError(BUSY))
    assert _run(ray, monkeypatch) == []
    assert (ray.tries, ray.shutdowns) == (3, 3), "what failed is closed before the next try"


def test_a_head_that_stays_busy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = MadeUpRay(*[RuntimeError(BUSY)] * 9)
    with pytest.raises(EngineError, match=r"ray://head:10001 cannot be used: .*client server failed"):
        _run(ray, monkeypatch)
    assert ray.tries == 4


@pytest.mark.parametrize("error", [RuntimeError("Version mismatch"), ConnectionError("nobody there")])
def test_other_errors_are_not_tried_again(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = MadeUpRay(error)
    with pytest.raises(EngineError, match=str(error)):
        _run(ray, monkeypatch)
    assert ray.tries == 1
