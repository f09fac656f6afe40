"""A back-test carried out on several processes; what comes out does not depend on how many."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Final

from router.backtest.windows import Cell, Part, Windows, parts, play
from router.spot.policies.registry import Played
from router.spot.simulator.traces import Floats

Found = dict[Part, Played | Floats]
Advance = Callable[[int, int], None]


class _Given:
    """What a worker process was given when it began."""

    cells: Sequence[Cell] = ()
    windows: Windows = Windows(1, 1)
    paid: bool = False


_GIVEN: Final = _Given()


def run(
    cells: Sequence[Cell], windows: Windows, policies: Sequence[str], *, paid: bool, processes: int, advance: Advance
) -> Mapping[Part, Played | Floats]:
    """All parts, in the order of :func:`router.backtest.windows.parts`. ``advance`` hears how many of them are
    done.

    One process: here. More: fresh ones, ended with this call however it ends; ``BrokenProcessPool`` if one is killed.
    """
    wanted = list(parts(cells, windows, policies))
    advance(0, len(wanted))
    found: Found = {}
    if processes == 1:
        for done, part in enumerate(wanted, start=1):
            found[part] = play(cells, windows, part, paid=paid)
            advance(done, len(wanted))
        return found
    with _workers(min(processes, max(1, len(wanted))), (cells, windows, paid)) as workers:
        with _undisturbed():
            waiting: dict[Future[Played | Floats], Part] = {workers.submit(_play, part): part for part in wanted}
        for done, future in enumerate(as_completed(waiting), start=1):
            found[waiting[future]] = future.result()
            advance(done, len(wanted))
    return {part: found[part] for part in wanted}


@contextmanager
def _workers(count: int, given: tuple[Sequence[Cell], Windows, bool]) -> Iterator[ProcessPoolExecutor]:
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    workers = ProcessPoolExecutor(count, mp_context=context, initializer=_take, initargs=given)
    try:
        yield workers
    except BaseException:
        workers.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    workers.shutdown()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Processes begun in here never hear of Ctrl-C: this one does, and ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take(cells: Sequence[Cell], windows: Windows, paid: bool) -> None:
    _GIVEN.cells, _GIVEN.windows, _GIVEN.paid = cells, windows, paid


def _play(part: Part) -> Played | Floats:
    return play(_GIVEN.cells, _GIVEN.windows, part, paid=_GIVEN.paid)
