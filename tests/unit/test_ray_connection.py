"""A connection to a Ray cluster whose head is busy, with a made-up Ray in the place of the package."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from router.app.parallel import Engine, EngineError, run_tasks

BUSY = "Initialization failure from server:\nRuntimeError: Starting Ray client server failed. See the log."


class MadeUpRay(SimpleNamespace):
    """A Ray whose connections fail with the given errors first, and that counts what it is asked."""

    def __init__(self, *errors: Exception) -> None:
        failures = SimpleNamespace(RayTaskError=LookupError, RayError=EOFError)
        super().__init__(exceptions=failures, errors=list(errors), tries=0, shutdowns=0)

    def init(self, *_words: object, **_options: object) -> None:
        """Connect, or raise the next error."""
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)

    def shutdown(self) -> None:
        """Count the end of a connection."""
        self.shutdowns += 1

    def remote(self, _work: object) -> SimpleNamespace:
        """Return a remote function; no task runs in these tests."""
        return SimpleNamespace(options=lambda **_: None)

    def put(self, _given: object) -> None:
        """Keep nothing."""

    def cluster_resources(self) -> dict[str, float]:
        """Return one core."""
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
