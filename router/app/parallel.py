"""Run many tasks on processes of this machine or on a Ray cluster; results do not depend on which, nor on how many."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from tenacity import Retrying, retry_if_exception_message, stop_after_attempt, wait_fixed

from pricing.problems import InvalidInputError

Advance = Callable[[int, int], None]
Shared = TypeVar("Shared")
Task = TypeVar("Task")
Result = TypeVar("Result")
PROCESSES: Final = "processes"
_CONNECTION_TRIES: Final = 4
_SECONDS_BETWEEN_TRIES: Final = 3
_RAY: Final = re.compile(r"ray://[^\s/:]+:\d{1,5}")


class EngineError(Exception):
    """The engine cannot be used, or lost its workers; ``remedy`` says what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Engine:
    """The place where tasks run: a Ray cluster by its ``address``, or processes here; at most ``workers`` at a time."""

    address: str | None
    workers: int


def parse_engine(text: str, workers: int | None) -> Engine:
    """Return the engine of ``processes`` or ``ray://HOST:PORT``; InvalidInputError names ``--engine``.

    Without ``workers`` there are as many processes as cores, and on Ray as many tasks as the cluster has cores (0).
    """
    if text == PROCESSES:
        return Engine(None, workers or os.cpu_count() or 1)
    if not _RAY.fullmatch(text):
        what = f"{text!r} is no engine"
        raise InvalidInputError.single(what, field="--engine", remedy="write processes, or ray://HOST:10001")
    return Engine(text, workers or 0)


def run_tasks(
    work: Callable[[Shared, Task], Result], shared: Shared, tasks: Sequence[Task], engine: Engine, advance: Advance
) -> list[Result]:
    """Return ``work(shared, task)`` of every task, in the order of the tasks.

    ``work`` is a function of a module, and all values can be pickled. ``advance`` is called with the number of tasks
    that are done. One process: here. More: fresh ones, ended with this call however it ends; ``BrokenProcessPool`` if
    one is killed. What ``work`` raises is raised here; on a cluster anything but InvalidInputError becomes EngineError,
    which also says that the cluster cannot be used.
    """
    advance(0, len(tasks))
    if engine.address is not None:
        return _run_on_ray(work, shared, tasks, engine, advance)
    if engine.workers == 1:
        return _run_here(work, shared, tasks, advance)
    return _run_on_processes(work, shared, tasks, engine.workers, advance)


def _run_here(
    work: Callable[[Shared, Task], Result], shared: Shared, tasks: Sequence[Task], advance: Advance
) -> list[Result]:
    results: list[Result] = []
    for task in tasks:
        results.append(work(shared, task))
        advance(len(results), len(tasks))
    return results


def _run_on_processes(
    work: Callable[[Shared, Task], Result], shared: Shared, tasks: Sequence[Task], count: int, advance: Advance
) -> list[Result]:
    with _workers(min(count, max(1, len(tasks))), work, shared) as workers:
        with _interrupts_blocked():
            futures = [workers.submit(_work_here, task) for task in tasks]
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            advance(done, len(tasks))
        return [future.result() for future in futures]


class _WorkerInput(Generic[Shared, Task, Result]):
    """The work and the arguments that a worker process received when it began."""

    work: Callable[[Shared, Task], Result]
    shared: Shared


_WORKER_INPUT: Final[_WorkerInput[Any, Any, Any]] = _WorkerInput()


@contextmanager
def _workers(count: int, work: Callable[[Any, Any], Any], shared: object) -> Iterator[ProcessPoolExecutor]:
    # Through a file: arguments larger than a pipe would make each process wait until the one before it has started.
    with tempfile.TemporaryDirectory(prefix="stepfare-") as folder:
        file = Path(folder) / "input"
        file.write_bytes(pickle.dumps((work, shared)))
        yield from _started(count, file)


def _started(count: int, file: Path) -> Iterator[ProcessPoolExecutor]:
    children_before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    workers = ProcessPoolExecutor(count, mp_context=context, initializer=_read_worker_input, initargs=(file,))
    try:
        yield workers
    except BaseException:
        for child in set(multiprocessing.active_children()) - children_before:
            child.terminate()
        # Its own thread waits for the processes; a second waiter could lose the exit status to it.
        workers.shutdown(cancel_futures=True)
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


def _read_worker_input(file: Path) -> None:
    # Written by the process that started this one.
    _WORKER_INPUT.work, _WORKER_INPUT.shared = pickle.loads(file.read_bytes())


def _work_here(task: object) -> Any:
    return _WORKER_INPUT.work(_WORKER_INPUT.shared, task)


def _run_on_ray(
    work: Callable[[Shared, Task], Result], shared: Shared, tasks: Sequence[Task], engine: Engine, advance: Advance
) -> list[Result]:
    """Run the tasks on the cluster, which is told to stop them however this ends."""
    with _cluster(engine) as ray:
        remote = ray.remote(_work_on_ray).options(scheduling_strategy="SPREAD")
        given = ray.put((work, shared))
        most = engine.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = list(range(len(tasks)))[::-1]
        running: dict[Any, int] = {}
        results: dict[int, Result] = {}
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    index = waiting.pop()
                    running[remote.remote(given, tasks[index])] = index
                done, _ = ray.wait(list(running), num_returns=1)
                for reference in done:
                    results[running.pop(reference)] = ray.get(reference)
                    advance(len(results), len(tasks))
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
        return [results[index] for index in range(len(tasks))]


@contextmanager
def _cluster(engine: Engine) -> Iterator[Any]:
    """Connect to the cluster while the block runs, and turn Ray's errors into EngineError."""
    try:
        import ray
    except ImportError:
        raise EngineError("--engine ray:// needs Ray, which is not installed", "pip install 'stepfare[ray]'") from None
    same = "start it with `ray start --head`; its nodes need the same stepfare, Ray and Python as this machine"
    try:
        # Ray warns of what the error below says.
        with warnings.catch_warnings(action="ignore"):
            _connect(ray, engine.address)
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise EngineError(f"{engine.address} cannot be used: {_first_line(error)}", same) from None
    try:
        yield ray
    except ray.exceptions.RayTaskError as error:
        cause = error.cause if isinstance(getattr(error, "cause", None), Exception) else None
        if isinstance(cause, InvalidInputError):
            raise cause from None
        raise EngineError(f"a task failed on {engine.address}: {_first_line(cause or error)}", same) from error
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise EngineError(f"{engine.address} lost a task: {_first_line(error)}", same) from error
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    """Connect to a cluster, again where its head was too busy to start this client's server."""
    tries = Retrying(
        retry=retry_if_exception_message(match=r"(?s).*Starting Ray client server failed"),
        stop=stop_after_attempt(_CONNECTION_TRIES),
        wait=wait_fixed(_SECONDS_BETWEEN_TRIES),
        before_sleep=lambda _: ray.shutdown(),
        reraise=True,
    )
    tries(ray.init, address, logging_level="ERROR", log_to_driver=False)


def _first_line(error: BaseException) -> str:
    """Return the first line of a message, with its last one where the first announces it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]


def _work_on_ray(given: tuple[Callable[[Any, Any], Any], Any], task: object) -> Any:
    work, shared = given
    return work(shared, task)
