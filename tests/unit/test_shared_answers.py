"""Answers are shared among readers: a page with room for each reader's name, values that serve for a moment."""

from __future__ import annotations

import asyncio
import gzip
from types import SimpleNamespace
from typing import Any

import pytest
from markupsafe import Markup

from router.console.answers import AnswerCache, CachedAnswer
from router.console.reader_slots import CSRF_MARK, WHO_MARK
from router.console.readiness import OTHER_VERSION, STOPPING, UNREADABLE, Readiness
from router.console.recent_answers import RecentAnswers
from router.state.errors import StateError, TooNewError

HTML = "text/html"
PAGE = (
    f"<p>{'rows ' * 5000}</p><p>Signed in as {WHO_MARK}.</p><input value='{CSRF_MARK}'>"
    f"{'more ' * 5000}<i>{WHO_MARK}</i>"
)


def asked_by(name: str, token: str = "", accepts: str = "gzip", known: str = "") -> Any:
    """A request of that reader."""
    state = SimpleNamespace(identity=SimpleNamespace(name=name), csrf_token=token)
    return SimpleNamespace(state=state, headers={"Accept-Encoding": accepts, "If-None-Match": known})


@pytest.mark.parametrize("name", ["ana", "", "<b>&'\"", "ö☃" * 40])
def test_each_reader_gets_their_own_name_and_token_in_one_page(name: str) -> None:
    answer = CachedAnswer.of(PAGE, HTML)
    expected = PAGE.replace(WHO_MARK, str(Markup.escape(name))).replace(CSRF_MARK, "t0ken")
    plain = answer.response(asked_by(name, "t0ken", accepts=""))
    assert bytes(plain.body).decode() == expected
    packed = answer.response(asked_by(name, "t0ken"))
    assert packed.headers["Content-Encoding"] == "gzip"
    for _ in range(2):
        assert gzip.decompress(bytes(answer.response(asked_by(name, "t0ken")).body)).decode() == expected
    assert len(packed.body) < len(expected) / 10
    assert packed.headers["ETag"] == plain.headers["ETag"]


def test_the_tag_is_that_of_the_readers_own_page() -> None:
    answer = CachedAnswer.of(PAGE, HTML)
    ana = answer.response(asked_by("ana", "1")).headers["ETag"]
    assert answer.response(asked_by("ana", "1", known=ana)).status_code == 304
    assert answer.response(asked_by("ana", "2", known=ana)).status_code == 200
    assert answer.response(asked_by("bo", "1", known=ana)).status_code == 200


def test_a_cache_is_bounded_by_bytes_too() -> None:
    cache, size = AnswerCache(most_bytes=250_000), 0

    async def fill() -> None:
        for number in range(5):
            await cache.get(number, lambda number=number: CachedAnswer.of(str(number) * 100_000, HTML))  # type: ignore[misc]

    asyncio.run(fill())
    size = sum(answer.size() for answer in cache._found.values())
    assert list(cache._found) == [3, 4]
    assert cache._bytes == size <= 250_000


class Reads:
    """A state that counts how often it was read, and a clock."""

    def __init__(self) -> None:
        self.now, self.count = 0.0, 0
        self.recent = RecentAnswers(lambda: self.now)
        self.recent.share()

    def read(self) -> int:
        self.count += 1
        return self.count

    async def get(self) -> int:
        return await self.recent.get("key", self.read)


def test_those_who_ask_in_the_same_second_share_what_was_read() -> None:
    async def ask() -> None:
        reads = Reads()
        assert await asyncio.gather(*(reads.get() for _ in range(20))) == [1] * 20
        reads.now = 0.9
        assert (await reads.get(), reads.count) == (1, 1)
        reads.now = 1.2  # the older one, while a newer one is read
        assert await reads.get() == 1
        while reads.recent._reading:
            await asyncio.sleep(0)
        assert (await reads.get(), reads.count) == (2, 2)
        reads.now = 9.0  # too old to be given
        assert await reads.get() == 3

    asyncio.run(ask())


def test_whoever_writes_sees_it_though_an_older_reading_is_under_way() -> None:
    async def ask() -> None:
        reads = Reads()
        older = asyncio.ensure_future(reads.get())
        await asyncio.sleep(0)
        reads.recent.forget()
        newer = await reads.get()
        assert {await older, newer} == {1, 2}
        assert await reads.get() == newer

    asyncio.run(ask())


def test_an_error_is_raised_for_all_who_wait_and_not_kept() -> None:
    async def ask() -> None:
        recent = RecentAnswers()
        recent.share()

        def fail() -> int:
            raise StateError("away")

        found = await asyncio.gather(*(recent.get("key", fail) for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in found] == [StateError] * 3
        assert await recent.get("key", lambda: 7) == 7

    asyncio.run(ask())


def test_a_server_is_ready_until_it_stops_or_its_state_is_away() -> None:
    now, problem = [0.0], list[StateError]()

    def check() -> None:
        if problem:
            raise problem[0]

    readiness = Readiness(check, lambda: now[0])
    assert readiness.reason() == ""
    problem.append(StateError("postgresql://user@db: gone"))
    assert readiness.reason() == ""  # the answer of a moment ago
    now[0] = 1
    assert readiness.reason() == UNREADABLE
    problem[0], now[0] = TooNewError("tables 0099"), 2
    assert readiness.reason() == OTHER_VERSION
    readiness.drain()
    assert readiness.reason() == STOPPING
