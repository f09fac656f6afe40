"""How a cloud is called: what is tried again, how long is waited, and when it is given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tenacity import wait_none

from providers import caller as calling
from providers.caller import Caller, parse_retry_after
from providers.errors import (
    CredentialsError,
    NotReachedError,
    ProviderError,
    ThrottledError,
    TransientError,
    UnreadableError,
)
from tests.support.busy import in_time


@pytest.fixture(autouse=True)
def _no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cloud asks for is still waited."""
    monkeypatch.setattr(calling, "_JITTER", wait_none())
    monkeypatch.setattr(calling, "_SPREAD", wait_none())


def answers(*results: object) -> Callable[[], object]:
    """Gives one result after another, the last for ever; exceptions are raised."""
    left = list(results)

    def ask() -> object:
        result = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(result, Exception):
            raise result
        return result

    return ask


def never(error: Exception) -> ProviderError:
    raise AssertionError("not to be translated") from error


def test_a_temporary_failure_is_tried_again() -> None:
    caller = Caller("c", 30)
    assert caller.call("api", answers(TransientError("c", "503"), UnreadableError("c", "half"), 7), never) == 7
    assert (caller.calls, caller.retries) == ({"api": 3}, {"api": 2})


def test_what_cannot_be_mended_is_not_tried_again() -> None:
    caller = Caller("c", 30)
    with pytest.raises(CredentialsError):
        caller.call("api", answers(CredentialsError("c", "expired")), never)
    assert caller.calls == {"api": 1}


def test_it_gives_up_after_so_many_attempts() -> None:
    caller = Caller("c", 30, attempts=3)
    with pytest.raises(ThrottledError):
        caller.call("api", answers(ThrottledError("c", "slow down", retry_after_s=0.01)), never)
    assert caller.calls == {"api": 9}  # throttling is borne three times as long
    with pytest.raises(TransientError):
        caller.call("other", answers(TransientError("c", "503")), never)
    assert caller.calls["other"] == 3


def test_a_service_that_is_down_is_not_tried_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "_DOWN_AFTER_S", 0.0)
    caller = Caller("c", 60, attempts=4)
    for _ in range(10):
        with pytest.raises(TransientError):
            caller.call("api", answers(TransientError("c", "502")), never)
    assert caller.calls == {"api": 12 + 7}  # four each of three calls, then one each
    caller.call("api", answers(1), never)
    assert caller.call("api", answers(TransientError("c", "502"), 2), never) == 2


def test_it_waits_as_long_as_the_cloud_asks() -> None:
    caller = Caller("c", 30)
    begin = time.monotonic()
    caller.call("api", answers(ThrottledError("c", "slow down", retry_after_s=0.8), 1), never)
    assert time.monotonic() - begin >= 0.8


def test_other_threads_leave_a_throttling_cloud_alone_too() -> None:
    caller = Caller("c", 30)
    throttled, times = threading.Event(), []

    def first() -> None:
        def ask() -> int:
            if not throttled.is_set():
                throttled.set()
                raise ThrottledError("c", "slow down", retry_after_s=0.7)
            return 1

        caller.call("api", ask, never)

    begin = time.monotonic()
    thread = threading.Thread(target=first)
    thread.start()
    throttled.wait(5)
    time.sleep(0.05)  # until the error has been noted
    caller.call("api", lambda: times.append(time.monotonic() - begin), never)
    thread.join(5)
    assert times[0] >= 0.7


def test_foreign_errors_are_translated_and_their_cause_is_dropped() -> None:
    def translate(error: Exception) -> ProviderError:
        assert isinstance(error, KeyError)
        return CredentialsError("c", "no key")

    with pytest.raises(CredentialsError) as caught:
        Caller("c", 30).call("api", answers(KeyError("secret-token")), translate)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_service_that_cannot_be_reached_is_asked_once() -> None:
    caller = Caller("c", 30)
    for _ in range(3):
        with pytest.raises(NotReachedError):
            caller.call("api", answers(NotReachedError("c", "no route")), never)
    assert caller.calls == {"api": 1}
    assert caller.call("other", answers(2), never) == 2


def test_a_connection_lost_midway_is_tried_again_and_then_given_up() -> None:
    caller = Caller("c", 30)
    caller.call("api", answers(1), never)
    assert caller.call("api", answers(NotReachedError("c", "reset"), 2), never) == 2
    with pytest.raises(NotReachedError):
        caller.call("api", answers(NotReachedError("c", "refused")), never)
    assert caller.calls == {"api": 6}
    with pytest.raises(NotReachedError, match="cannot be connected to"):
        caller.call("api", answers(3), never)


def test_the_time_limit_ends_waiting_and_calling() -> None:
    caller = Caller("c", 0.3)
    begin = time.monotonic()
    with pytest.raises((ThrottledError, TransientError)):
        caller.call("api", answers(ThrottledError("c", "slow down", retry_after_s=60)), never)
    assert in_time(begin, 5)
    with pytest.raises(TransientError, match="time limit"):
        caller.call("api", answers(1), never)


def test_cancelling_wakes_who_waits() -> None:
    caller = Caller("c", 60)
    threading.Timer(0.2, caller.cancel).start()
    begin = time.monotonic()
    with pytest.raises(ProviderError):
        caller.call("api", answers(ThrottledError("c", "slow down", retry_after_s=50)), never)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    ("header", "date", "seconds"),
    [
        ("3", "", 3.0),
        ("0.5", None, 0.5),
        (None, None, None),
        ("", "", None),
        ("Sat, 21 Nov 2026 18:00:30 GMT", "Sat, 21 Nov 2026 18:00:00 GMT", 30.0),
        ("Sat, 21 Nov 2026 17:00:00 GMT", "Sat, 21 Nov 2026 18:00:00 GMT", 0.0),
        ("Sat, 21 Nov 2026 18:00:30 GMT", "", None),
        ("soon", "Sat, 21 Nov 2026 18:00:00 GMT", None),
        ("-5", "", None),
    ],
)
def test_retry_after_forms(header: str | None, date: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, date) == seconds
