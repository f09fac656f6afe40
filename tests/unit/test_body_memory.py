"""Bodies that wait for room: each owner within its share, in order, and nothing is lost where somebody gives up."""

from __future__ import annotations

import asyncio

import pytest

from router.coordinator import bodies
from router.coordinator.bodies import BodyMemory


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_owner_fills_its_share_alone_and_those_that_wait_come_in_order() -> None:
    async def scenario() -> None:
        memory, done = BodyMemory(max_bytes=10, max_bytes_of_one=4), list[str]()
        release = asyncio.Event()

        async def body(owner: str, name: str, size: int) -> None:
            async with memory.reserved(owner, size):
                done.append(name)
                await release.wait()

        tasks = [asyncio.create_task(body("a", name, size)) for name, size in (("a1", 3), ("a2", 3), ("a3", 1))]
        tasks += [asyncio.create_task(body(owner, owner, 4)) for owner in ("b", "c")]
        await _settle()
        # There is room for a3, and a2 came before it; c fits its share, but not the whole.
        assert done == ["a1", "b"]
        release.set()
        await asyncio.gather(*tasks)
        assert sorted(done) == ["a1", "a2", "a3", "b", "c"]
        assert done.index("a2") < done.index("a3")
        assert memory == BodyMemory(max_bytes=10, max_bytes_of_one=4)

    asyncio.run(scenario())


def test_who_gives_up_waiting_leaves_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.01)

    async def scenario() -> None:
        memory = BodyMemory(max_bytes=4, max_bytes_of_one=4)
        async with memory.reserved("a", 4):
            with pytest.raises(TimeoutError):
                async with memory.reserved("a", 1):
                    raise AssertionError
        async with memory.reserved("a", 4):
            pass
        assert memory == BodyMemory(max_bytes=4, max_bytes_of_one=4)

    asyncio.run(scenario())
