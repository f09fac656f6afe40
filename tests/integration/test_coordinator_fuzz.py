"""Whatever arrives over HTTP, the coordinator answers it, never with a fault of its own."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.coordinations import ATTEMPT, TOKEN, Scene, scene

MESSAGES = ["hello", "heartbeat", "logs", "ended", "notice"]
ERRORS = {"body", "token", "attempt_unknown", "attempt_over", "shape", "rank_taken", "message"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NUMBERS = st.integers() | st.sampled_from([0, 1, 2**31, 2**53, 2**62, 2**63, 2**64, -1, 65_536, 65_537])
WORDS = st.text() | st.sampled_from(["\x00", "\ud800", "stopped", "ended", "failed", "life-0", "../x", "a" * 70_000])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("fuzz"), 2) as made, made.serving():
        yield made


def _post(port: int, path: str, body: bytes, token: str = TOKEN) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("POST", path, body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def _answered(status: int, content: Any) -> None:
    assert status < 500, (status, content)
    assert isinstance(content, dict)
    assert TOKEN not in str(content)
    if status != 200:
        assert content.get("error") in ERRORS or content == {}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.sampled_from(MESSAGES), body=st.binary(max_size=300) | JSON.map(lambda j: json.dumps(j).encode()))
def test_any_body(served: Scene, message: str, body: bytes) -> None:
    _answered(*_post(served.port, f"/v1/attempts/{ATTEMPT}/ranks/0/{message}", body))


@pytest.mark.slow
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.sampled_from(MESSAGES), rank=st.integers(0, 1), data=st.data())
def test_a_good_body_with_a_few_wrong_values(served: Scene, message: str, rank: int, data: st.DataObject) -> None:
    body = served.body(rank, message)
    keys = data.draw(st.lists(st.sampled_from(sorted(body)), max_size=2, unique=True))
    body |= {key: data.draw(NUMBERS | WORDS | JSON) for key in keys}
    _answered(*_post(served.port, f"/v1/attempts/{ATTEMPT}/ranks/{rank}/{message}", json.dumps(body).encode()))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.tuples(st.text(max_size=20), st.text(max_size=8), st.text(max_size=8)))
def test_any_path(served: Scene, parts: tuple[str, str, str]) -> None:
    attempt, rank, message = (quote(part.encode("utf-8", "surrogatepass"), safe="") for part in parts)
    _answered(*_post(served.port, f"/v1/attempts/{attempt}/ranks/{rank}/{message}", b"{}"))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(token=st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=60))
def test_any_token(served: Scene, token: str) -> None:
    body = json.dumps(served.body(0, "heartbeat")).encode()
    status, content = _post(served.port, f"/v1/attempts/{ATTEMPT}/ranks/0/heartbeat", body, token)
    assert (status, content) == (401, {"error": "token"})


def test_it_still_works_and_kept_to_its_folder(served: Scene) -> None:
    body = json.dumps(served.body(1, "heartbeat")).encode()
    assert _post(served.port, f"/v1/attempts/{ATTEMPT}/ranks/1/heartbeat", body)[0] in (200, 409)
    names = {path.relative_to(served.folder).as_posix() for path in served.folder.rglob("*") if path.is_file()}
    assert names - {"state.db", "state.db-wal", "state.db-shm", "state.db.lock"} <= {
        f"logs/{ATTEMPT}/rank-0.log",
        f"logs/{ATTEMPT}/rank-1.log",
    }
    assert Path(served.folder).exists()
