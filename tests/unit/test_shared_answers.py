"""Answers are shared among readers: a page with room for each reader's name, values that serve for a moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from markupsafe import Markup

from router.console.answers import CSRF_MARK, WHO_MARK, AnswerCache, CachedAnswer, ManyQuestionsError
from router.console.site import OTHER_VERSION, STOPPING, UNREADABLE, Readiness
from router.state.errors import StateError, TooNewError

HTML = "text/html"
PAGE = f"<p>rows</p><p>Signed in as {WHO_MARK}.</p><input value='{CSRF_MARK}'><i>{WHO_MARK}</i>"


def asked_by(name: str, token: str = "", known: str = "") -> Any:
    """A request of that reader."""
    state = SimpleNamespace(identity=SimpleNamespace(name=name), csrf_token=token)
    return SimpleNamespace(state=state, headers={"If-None-Match": known})


@pytest.mark.parametrize("name", ["ana", "", "<b>&'\"", "ö☃" * 40])
def test_each_reader_gets_their_own_name_and_token_in_one_page(name: str) -> None:
    expected = PAGE.replace(WHO_MARK, str(Markup.escape(name))).replace(CSRF_MARK, "t0ken")
    response = CachedAnswer.of(PAGE, HTML).response(asked_by(name, "t0ken"))
    assert bytes(response.body).decode() == expected
    assert response.headers["ETag"] == CachedAnswer.of(expected, HTML).tag


def test_the_tag_is_that_of_the_readers_own_page() -> None:
    answer = CachedAnswer.of(PAGE, HTML)
    ana = answer.response(asked_by("ana", "1")).headers["ETag"]
    assert answer.response(asked_by("ana", "1", known=ana)).status_code == 304
    assert answer.response(asked_by("ana", "2", known=ana)).status_code == 200
    assert answer.response(asked_by("bo", "1", known=ana)).status_code == 200


def test_a_cache_is_bounded_by_bytes_too() -> None:
    cache = AnswerCache(max_bytes=250_000)

    async def fill() -> None:
        for number in range(5):
            await cache.get(number, lambda number=number: CachedAnswer.of(str(number) * 100_000, HTML))  # type: ignore[misc]

    asyncio.run(fill())
    assert list(cache._kept) == [3, 4]
    assert cache._bytes == 200_000


def test_an_answer_that_is_no_page_is_given_and_not_kept() -> None:
    cache = AnswerCache()
    answer = asyncio.run(cache.get("level", lambda: CachedAnswer.of("", HTML, 404)))
    assert (answer.status, cache.last("level")) == (404, None)


class Reads:
    """A state that counts how often it was read and can be held, and a clock."""

    def __init__(self, **options: Any) -> None:
        self.now, self.count = 0.0, 0
        self.free = threading.Event()
        self.free.set()
        self.recent = AnswerCache(1.0, 1.5, clock=lambda: self.now, **options)

    def read(self) -> int:
        assert self.free.wait(10)
        self.count += 1
        return self.count

    async def get(self, key: object = "key", read: Callable[[], int] | None = None) -> int:
        return await self.recent.get(key, read or self.read)

    async def settle(self) -> None:
        """Wait until nothing is being read."""
        while self.recent._making:
            await asyncio.sleep(0.001)


def test_those_who_ask_in_the_same_second_share_what_was_read() -> None:
    async def ask() -> None:
        reads = Reads()
        assert await asyncio.gather(*(reads.get() for _ in range(20))) == [1] * 20
        reads.now = 0.9
        assert (await reads.get(), reads.count) == (1, 1)
        reads.now = 1.2  # the older one, while a newer one is read
        assert await reads.get() == 1
        await reads.settle()
        assert (await reads.get(), reads.count) == (2, 2)
        reads.now = 9.0  # too old to be given
        assert await reads.get() == 3

    asyncio.run(ask())


def test_nothing_serves_for_a_moment_before_a_server_wants_it() -> None:
    async def ask() -> None:
        reads = Reads()
        reads.recent.fresh_seconds = reads.recent.stale_seconds = 0.0
        assert await asyncio.gather(*(reads.get() for _ in range(20))) == [1] * 20
        assert await reads.get() == 2

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


def test_what_is_under_way_is_waited_for_at_the_end_though_it_was_forgotten() -> None:
    async def ask() -> None:
        reads = Reads()
        reads.free.clear()
        older = asyncio.ensure_future(reads.get())
        await asyncio.sleep(0)
        reads.recent.forget()
        older.cancel()  # who asked is gone, and the thread goes on
        ending = asyncio.ensure_future(reads.recent.finish())
        done, _ = await asyncio.wait({ending}, timeout=0.05)
        assert not done
        reads.free.set()
        await asyncio.wait_for(ending, 10)
        assert reads.count == 1

    asyncio.run(ask())


def test_an_error_is_raised_for_all_who_wait_and_not_kept() -> None:
    async def ask() -> None:
        recent = AnswerCache()

        def fail() -> int:
            raise StateError("away")

        found = await asyncio.gather(*(recent.get("key", fail) for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in found] == [StateError] * 3
        assert await recent.get("key", lambda: 7) == 7

    asyncio.run(ask())


def test_a_failure_behind_readers_leaves_the_old_one() -> None:
    async def ask() -> None:
        reads = Reads()
        await reads.get()
        reads.now = 1.2
        assert await reads.get(read=lambda: 1 // 0) == 1
        await reads.settle()
        assert await reads.get(read=lambda: 1 // 0) == 1

    asyncio.run(ask())


def test_too_many_questions_are_refused_and_kept_ones_are_not() -> None:
    async def ask() -> None:
        reads = Reads(max_making=2, threads=1)
        await reads.get()
        reads.now = 1.2
        reads.free.clear()
        waiting = [asyncio.ensure_future(reads.get(number)) for number in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ManyQuestionsError):
            await reads.get("one more")
        assert await reads.get() == 1
        reads.free.set()
        assert await asyncio.gather(*waiting) == [2, 3]

    asyncio.run(ask())


def test_readers_go_on_where_one_who_waits_with_them_leaves() -> None:
    async def ask() -> None:
        reads = Reads()
        reads.free.clear()
        first, second = (asyncio.ensure_future(reads.get()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        reads.free.set()
        assert (await second, reads.count) == (1, 1)

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
