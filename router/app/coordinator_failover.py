"""Keep a coordinator on the port that machines call, whichever process serves it, and also after that process ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

from router.state.errors import LeaseHeldError
from router.state.lock_owner import LockOwner
from router.state.store import StateStore

# The interval is shorter than the time after which a machine is taken to be lost.
EVERY_S = 1.0
# The state's key of the port on which the coordinator listens.
PORT = "coordinator_port"
_HELD_SECONDS = 0.05


@contextmanager
def serve_as_standby(
    is_there: Callable[[], bool], serve: Callable[[], AbstractContextManager[object]], fails: type[Exception]
) -> Iterator[None]:
    """Serve from this process while the block runs and no other process serves.

    Where serving ``fails`` it is tried again: the port may be held by a process that is ending, or by a quicker one.
    """
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


def claim_shared_port(
    store: StateStore, mine: int, wall_clock: Callable[[], datetime], is_there: Callable[[int], bool]
) -> int:
    """Return the port that machines are to call.

    Of several processes that begin at the same moment, it is the port of the first.
    """
    while True:
        try:
            with store.lease(PORT, LockOwner.of_this_process(), wall_clock):
                recorded_port = int(store.values.get(PORT) or 0)
                if recorded_port not in (0, mine) and is_there(recorded_port):
                    return recorded_port
                store.values.set(PORT, str(mine))
                return mine
        except LeaseHeldError:
            time.sleep(_HELD_SECONDS)
