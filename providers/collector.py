"""Fetch everything that several clouds sell at once: a few threads a cloud, each cloud at its own rate.

A scope that fails costs that scope only. Threads are daemons: a command that is stopped does not wait for a network,
and nothing here writes anything.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from providers.caller import Caller
from providers.errors import ProviderError, TransientError
from providers.protocol import FetchResult, Provider, Scope

WORKERS = 8
# An answer that is under way may take this long beyond the time limit.
_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class CloudSource:
    """A provider, how it calls, and the start of the price history wanted of a scope (None: none)."""

    provider: Provider
    caller: Caller
    history_since: Callable[[Scope], datetime | None]


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """The progress of one cloud.

    Scopes done and failed, of ``total`` (None: not known yet); ``scope`` just ended.
    """

    cloud: str
    done: int
    failed: int
    total: int | None
    scope: Scope | None


@dataclass(frozen=True)
class CloudOutcome:
    """The outcome of one cloud: a fetch result or an error for each scope, or one ``error`` for all.

    ``no_account`` is why only its public prices could be asked for, where another adapter knows them.
    """

    cloud: str
    results: Mapping[Scope, FetchResult] = field(default_factory=dict)
    errors: Mapping[Scope, ProviderError] = field(default_factory=dict)
    error: ProviderError | None = None
    no_account: ProviderError | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Ended:
    cloud: str
    scope: Scope | None
    result: FetchResult | ProviderError | tuple[Scope, ...]


def fetch_clouds(
    sources: Mapping[str, CloudSource],
    limit_s: float,
    on_progress: Callable[[FetchProgress], None],
    *,
    workers: int = WORKERS,
) -> dict[str, CloudOutcome]:
    """Fetch all scopes of all clouds and return their outcomes by cloud.

    ``on_progress`` is called in this thread after each. A failing cloud never makes it raise; on KeyboardInterrupt all
    calls are cancelled. It ends ``limit_s`` from now at the latest, with what is unfinished as TransientError.
    """
    ended: queue.SimpleQueue[_Ended] = queue.SimpleQueue()
    states = {cloud: _State(cloud) for cloud in sources}
    begin = time.monotonic()
    try:
        for cloud, source in sources.items():
            _start(f"{cloud} scopes", _list_scopes, cloud, source, ended, workers)
        for event in _events(ended, states, begin + limit_s + _GRACE_S):
            progress = states[event.cloud].take(event, time.monotonic() - begin)
            on_progress(progress)
    finally:
        for source in sources.values():
            source.caller.cancel()
    return {cloud: state.outcome(limit_s, time.monotonic() - begin) for cloud, state in states.items()}


def _start(name: str, target: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=target, args=arguments, name=name, daemon=True).start()


def _events(ended: queue.SimpleQueue[_Ended], states: Mapping[str, _State], until: float) -> Iterator[_Ended]:
    while not all(state.finished for state in states.values()):
        remaining = until - time.monotonic()
        if remaining <= 0:
            return
        try:
            yield ended.get(timeout=min(remaining, 0.2))  # The wait is short, so that Ctrl-C takes effect.
        except queue.Empty:
            continue


def _list_scopes(cloud: str, source: CloudSource, ended: queue.SimpleQueue[_Ended], workers: int) -> None:
    try:
        scopes = tuple(source.provider.scopes())
    except ProviderError as error:
        ended.put(_Ended(cloud, None, error))
        return
    except Exception as error:
        ended.put(_Ended(cloud, None, _bug(cloud, error)))
        return
    waiting: queue.SimpleQueue[Scope] = queue.SimpleQueue()
    for scope in scopes:
        waiting.put(scope)
    ended.put(_Ended(cloud, None, scopes))
    for number in range(min(workers, len(scopes))):
        _start(f"{cloud} {number}", _fetch_waiting, cloud, source, waiting, ended)


def _fetch_waiting(
    cloud: str, source: CloudSource, waiting: queue.SimpleQueue[Scope], ended: queue.SimpleQueue[_Ended]
) -> None:
    while True:
        try:
            scope = waiting.get_nowait()
        except queue.Empty:
            return
        result: FetchResult | ProviderError
        try:
            result = source.provider.fetch(scope, source.history_since(scope))
        except ProviderError as error:
            result = error
        except Exception as error:
            result = _bug(cloud, error)
        ended.put(_Ended(cloud, scope, result))


def _bug(cloud: str, error: Exception) -> ProviderError:
    """Return the error for an adapter that breaks its contract; it must not stop the other clouds.

    The exception's name and place are kept so that the bug can be found. Its message is left out: it may hold what the
    cloud said, secrets included.
    """
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = "" if frame is None else f" in {frame.tb_frame.f_code.co_name}, line {frame.tb_lineno}"
    return ProviderError(cloud, f"the adapter failed: {type(error).__name__}{where}", remedy="report this as a bug")


class _State:
    """The state of one cloud so far; used by the collecting thread only."""

    def __init__(self, cloud: str) -> None:
        self._cloud = cloud
        self._scopes: tuple[Scope, ...] | None = None
        self._results: dict[Scope, FetchResult] = {}
        self._errors: dict[Scope, ProviderError] = {}
        self._error: ProviderError | None = None
        self._seconds: float | None = None

    @property
    def finished(self) -> bool:
        return self._seconds is not None

    def take(self, event: _Ended, seconds: float) -> FetchProgress:
        if event.scope is not None and isinstance(event.result, FetchResult):
            self._results[event.scope] = event.result
        elif event.scope is not None and isinstance(event.result, ProviderError):
            self._errors[event.scope] = event.result
        elif isinstance(event.result, ProviderError):
            self._error = event.result
        elif isinstance(event.result, tuple):
            self._scopes = event.result
        done = len(self._results) + len(self._errors)
        if self._error is not None or (self._scopes is not None and done == len(self._scopes)):
            self._seconds = seconds
        total = None if self._scopes is None else len(self._scopes)
        return FetchProgress(self._cloud, len(self._results), len(self._errors), total, event.scope)

    def outcome(self, limit_s: float, seconds: float) -> CloudOutcome:
        errors = dict(self._errors)
        error = self._error
        late = TransientError(self._cloud, f"not finished within {limit_s:g} s")
        if self._scopes is None and error is None:
            error = late
        for scope in self._scopes or ():
            if scope not in self._results and scope not in errors:
                errors[scope] = late
        ended = self._seconds if self._seconds is not None else seconds
        return CloudOutcome(
            self._cloud, dict(sorted(self._results.items())), dict(sorted(errors.items())), error, None, ended
        )
