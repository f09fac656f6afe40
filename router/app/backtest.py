"""Run a back-test on several processes; the result does not depend on how many."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Final

from router.backtest.windows import BacktestCell, BacktestPart, WindowLayout, list_backtest_parts, play_part
from router.spot.policies.registry import WindowOutcomes
from router.spot.simulator.traces import Floats

Results = dict[BacktestPart, WindowOutcomes | Floats]
Advance = Callable[[int, int], None]


class _WorkerInput:
    """The arguments that a worker process received when it began."""

    cells: Sequence[BacktestCell] = ()
    windows: WindowLayout = WindowLayout(1, 1)
    paid: bool = False


_WORKER_INPUT: Final = _WorkerInput()


def run_backtest(
    cells: Sequence[BacktestCell],
    windows: WindowLayout,
    policies: Sequence[str],
    *,
    paid: bool,
    processes: int,
    advance: Advance,
) -> Mapping[BacktestPart, WindowOutcomes | Floats]:
    """Play all parts and return the results in the order of :func:`router.backtest.windows.list_backtest_parts`.

    ``advance`` is called with the number of parts that are done. One process: here. More: fresh ones, ended with this
    call however it ends; ``BrokenProcessPool`` if one is killed.
    """
    tasks = list(list_backtest_parts(cells, windows, policies))
    advance(0, len(tasks))
    results: Results = {}
    if processes == 1:
        for done, part in enumerate(tasks, start=1):
            results[part] = play_part(cells, windows, part, paid=paid)
            advance(done, len(tasks))
        return results
    with _workers(min(processes, max(1, len(tasks))), (cells, windows, paid)) as workers:
        with _interrupts_blocked():
            pending: dict[Future[WindowOutcomes | Floats], BacktestPart] = {
                workers.submit(_play, part): part for part in tasks
            }
        for done, future in enumerate(as_completed(pending), start=1):
            results[pending[future]] = future.result()
            advance(done, len(tasks))
    return {part: results[part] for part in tasks}


@contextmanager
def _workers(count: int, arguments: tuple[Sequence[BacktestCell], WindowLayout, bool]) -> Iterator[ProcessPoolExecutor]:
    children_before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    workers = ProcessPoolExecutor(count, mp_context=context, initializer=_set_worker_input, initargs=arguments)
    try:
        yield workers
    except BaseException:
        workers.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - children_before:
            child.terminate()
        raise
    workers.shutdown()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes in here without Ctrl-C: this process receives it, and ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _set_worker_input(cells: Sequence[BacktestCell], windows: WindowLayout, paid: bool) -> None:
    _WORKER_INPUT.cells, _WORKER_INPUT.windows, _WORKER_INPUT.paid = cells, windows, paid


def _play(part: BacktestPart) -> WindowOutcomes | Floats:
    return play_part(_WORKER_INPUT.cells, _WORKER_INPUT.windows, part, paid=_WORKER_INPUT.paid)
