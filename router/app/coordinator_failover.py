"""Machines go on calling where they were told to, whoever listens there, and whenever that one ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

from router.state.errors import HeldError
from router.state.lock_owner import Holder
from router.state.store import Store

# Less than anybody is taken to be lost after.
EVERY_S = 1.0
# What the state calls the port on which the coordinator listens.
PORT = "coordinator_port"
_HELD_SECONDS = 0.05


@contextmanager
def standing_by(
    is_there: Callable[[], bool], serve: Callable[[], AbstractContextManager[object]], fails: type[Exception]
) -> Iterator[None]:
    """While the block runs, and nobody else is there, this process serves. Where that ``fails`` it is tried again: the
    port may be held by one who just ends, or by another who was quicker."""
    ended = threading.Event()

    def stand_by() -> None:
        while not ended.wait(EVERY_S):
            if is_there():
                continue
            try:
                with serve():
                    ended.wait()
            except fails:
                continue

    thread = threading.Thread(target=stand_by, name="standing by", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def everyones(store: Store, mine: int, wall_clock: Callable[[], datetime], is_there: Callable[[int], bool]) -> int:
    """The port that machines are told to call: of several who begin at the same moment, that of the first."""
    while True:
        try:
            with store.lease(PORT, Holder.of_this_process(), wall_clock):
                other = int(store.value(PORT) or 0)
                if other not in (0, mine) and is_there(other):
                    return other
                store.set_value(PORT, str(mine))
                return mine
        except HeldError:
            time.sleep(_HELD_SECONDS)
