"""Several clouds at once: what one loses is lost for it alone, and time is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import datetime

import pytest

from providers.caller import Caller
from providers.collector import CloudOutcome, CloudSource, FetchProgress, fetch_clouds
from providers.errors import CredentialsError, ProviderError, TransientError
from providers.protocol import (
    AccountAllowances,
    Diagnosis,
    FetchResult,
    GangQuery,
    Provider,
    Scope,
    StockHint,
)


class Scripted:
    """A cloud whose scopes do what they are told: a harvest, an error, any exception, or waiting."""

    def __init__(self, cloud: str, scopes: dict[str, object], listing: Exception | None = None) -> None:
        self.cloud, self._scopes, self._listing = cloud, scopes, listing
        self.since: list[datetime | None] = []

    def scopes(self) -> Sequence[Scope]:
        if self._listing is not None:
            raise self._listing
        return tuple(Scope(self.cloud, name) for name in sorted(self._scopes))

    def fetch(self, scope: Scope, history_since: datetime | None) -> FetchResult:
        self.since.append(history_since)
        what = self._scopes[scope.region]
        if isinstance(what, Exception):
            raise what
        if isinstance(what, threading.Event):
            what.wait(30)
        return FetchResult(rows_read=1)

    def stock(self, queries: Sequence[GangQuery]) -> Sequence[StockHint]:
        return ()

    def allowances(self, regions: Sequence[str]) -> AccountAllowances:
        return AccountAllowances()

    def diagnose(self) -> Diagnosis:
        return Diagnosis(None, None, (), None, None, ())


def run(*providers: Provider, limit_s: float = 20.0) -> tuple[dict[str, CloudOutcome], list[FetchProgress]]:
    seen: list[FetchProgress] = []
    sources = {p.cloud: CloudSource(p, Caller(p.cloud, limit_s), lambda _: None) for p in providers}
    return fetch_clouds(sources, limit_s, seen.append), seen


def test_each_scope_is_fetched_once() -> None:
    outcomes, seen = run(Scripted("a", dict.fromkeys("xyz")), Scripted("b", {"": None}))
    assert [str(scope) for scope in outcomes["a"].results] == ["a/x", "a/y", "a/z"]
    assert [str(scope) for scope in outcomes["b"].results] == ["b"]
    assert [p.done for p in seen if p.cloud == "a"] == [0, 1, 2, 3]
    assert {p.total for p in seen if p.cloud == "a"} == {3}


def test_a_failing_scope_costs_that_scope_only() -> None:
    error = TransientError("a", "503")
    outcomes, _ = run(Scripted("a", {"x": None, "y": error}), Scripted("b", {"": None}))
    assert outcomes["a"].errors == {Scope("a", "y"): error}
    assert list(outcomes["a"].results) == [Scope("a", "x")]
    assert outcomes["b"].errors == {}


def test_a_cloud_that_cannot_say_what_it_has() -> None:
    error = CredentialsError("a", "none", none_found=True)
    outcomes, _ = run(Scripted("a", {}, error), Scripted("b", {"": None}))
    assert outcomes["a"].error is error
    assert outcomes["b"].results


def test_a_broken_adapter_is_an_error_that_does_not_repeat_what_the_cloud_said() -> None:
    outcomes, _ = run(Scripted("a", {"x": ValueError("token=hunter2")}), Scripted("b", {}, KeyError("hunter2")))
    for error in (outcomes["a"].errors[Scope("a", "x")], outcomes["b"].error):
        assert isinstance(error, ProviderError)
        assert "the adapter failed" in str(error)
        assert "hunter2" not in str(error) + repr(error)


def test_what_takes_too_long_is_unfinished_and_not_waited_for() -> None:
    stuck = threading.Event()
    begin = time.monotonic()
    outcomes, _ = run(Scripted("a", {"x": None, "y": stuck}), limit_s=0.3)
    assert time.monotonic() - begin < 10
    stuck.set()
    assert isinstance(outcomes["a"].errors[Scope("a", "y")], TransientError)
    assert list(outcomes["a"].results) == [Scope("a", "x")]


def test_ctrl_c_cancels_every_call() -> None:
    stuck = threading.Event()
    provider = Scripted("a", {"x": None, "y": stuck})
    caller = Caller("a", 60)

    def interrupt(progress: FetchProgress) -> None:
        if progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_clouds({"a": CloudSource(provider, caller, lambda _: None)}, 60, interrupt)
    stuck.set()
    with pytest.raises(TransientError, match="stopped"):
        caller.call("api", lambda: 1, lambda error: ProviderError("a", "x"))


def test_history_is_asked_for_scope_by_scope() -> None:
    provider = Scripted("a", {"x": None})
    since = datetime(2026, 11, 1)  # noqa: DTZ001  handed on untouched
    fetch_clouds(
        {"a": CloudSource(provider, Caller("a", 9), lambda scope: since if scope.region == "x" else None)}, 9, print
    )
    assert provider.since == [since]
