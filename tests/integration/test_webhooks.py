"""Webhooks: events follow from what the state records, and come signed, in order, once, whatever fails."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.config.settings_files import load_deploy
from router.console import webhooks
from router.console.webhooks import DEAD_AFTER, FIRST_PAUSE, LONGEST_PAUSE, Webhook, WebhookSender, open_webhooks
from router.controller.accept.accept import APPLY
from router.controller.accept.approval import APPROVE
from router.deploy.console_settings import WebhookEntry, WebhookEvent
from router.ledger.month import Month
from router.planning.document.plan_json import plan_content, plan_to_json
from router.state.store import StateStore
from router.state.webhook_deliveries import DeliveryState
from tests.support.listeners import Receiver, webhook_receiver
from tests.support.scenes import NORTH, a_job, plan_of
from tests.support.state_values import attempt, node

SECRET = "correct-horse-battery-staple"
START = datetime.fromisoformat("2026-12-01T06:00:00+00:00")
SECOND = timedelta(seconds=1)
PLAN = plan_of([a_job(team="red")], [NORTH])


class Clock:
    """A time of day that tests move."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with StateStore.open(f"sqlite:///{tmp_path}/state.db", now=START) as opened:
        yield opened


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with webhook_receiver(SECRET) as made:
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def hook_of(receiver: Receiver, *events: WebhookEvent) -> Webhook:
    return Webhook(receiver.url, frozenset(events or WebhookEvent), SECRET.encode())


def sender_of(store: StateStore, clock: Clock, *hooks: Webhook) -> WebhookSender:
    """A sender that has seen the state before anything happens."""
    made = WebhookSender(store, hooks, clock)
    made.derive()
    return made


def put_plan(store: StateStore, clock: Clock) -> str:
    digest: str = plan_content(PLAN)["digest"]
    store.made_plans.put(digest, plan_to_json(PLAN), PLAN.as_of, clock(), "ana@host", "night")
    return digest


def approve(store: StateStore, clock: Clock, digest: str) -> None:
    store.audit.add("ana@host", APPROVE, digest, Usd.parse("12.5"), clock(), by="ana", note="SECRET-NOTE")


def send(sender: WebhookSender) -> int:
    sender.derive()
    return sender.send_due()


def test_every_kind_of_event_follows_from_the_state(store: StateStore, receiver: Receiver, clock: Clock) -> None:
    one = attempt("j-1-0a", job="j", team="red")
    store.attempts.add(one, [node(one.id, 0)])
    sender = sender_of(store, clock, hook_of(receiver))
    digest = put_plan(store, clock)
    clock.now += SECOND
    approve(store, clock, digest)
    clock.now += SECOND
    store.audit.add("ana@host", APPLY, digest, Usd.parse("12.5"), clock(), gangs=1)
    store.audit.add("ana@host", "destroy", "", Usd(0), clock())
    clock.now += SECOND
    for what in ("releasing", "released"):
        store.journal.note(one.id, what, clock(), reason="interrupted")
        store.journal.note("j-9-0z", what, clock(), reason="finished")
    clock.now += SECOND
    store.periods.close(Month(2026, 11), who="finance@host", at=clock())
    assert send(sender) == 5
    assert receiver.kinds == [each.value for each in WebhookEvent]
    plan, approved, applied, interrupted, closed = (each["data"] for each in receiver.taken)
    assert (plan["digest"], plan["jobs"], plan["teams"]) == (digest, 1, ["red"])
    assert (approved["name"], approved["at_risk_usd"]) == ("ana", "12.50")
    assert (applied["digest"], applied["who"]) == (digest, "ana@host")
    assert (interrupted["attempt"], interrupted["job"], interrupted["reason"]) == (one.id, "j", "interrupted")
    assert (closed["month"], closed["who"]) == ("2026-11", "finance@host")
    assert receiver.refused == 0
    # Nothing comes twice, also after the cursor was written anew.
    clock.now += LONGEST_PAUSE
    assert send(sender) == 0
    assert len(receiver.calls) == len({delivery for delivery, _ in receiver.calls}) == 5


def test_what_happened_before_the_first_start_and_unwanted_events_are_not_told(
    store: StateStore, receiver: Receiver, clock: Clock
) -> None:
    digest = put_plan(store, clock)
    clock.now += timedelta(minutes=11)
    sender = sender_of(store, clock, hook_of(receiver, WebhookEvent.PLAN_APPROVED))
    store.audit.add("ana@host", APPLY, digest, Usd(0), clock())
    approve(store, clock, digest)
    assert send(sender) == 1
    assert receiver.kinds == ["plan.approved"]


def test_a_receiver_that_fails_gets_all_events_later_in_their_order(
    store: StateStore, receiver: Receiver, clock: Clock
) -> None:
    sender = sender_of(store, clock, hook_of(receiver))
    receiver.statuses = [503, 503]
    digest = put_plan(store, clock)
    clock.now += SECOND
    approve(store, clock, digest)
    assert send(sender) == 0
    assert len(receiver.calls) == 1
    clock.now += FIRST_PAUSE - SECOND
    assert send(sender) == 0
    assert len(receiver.calls) == 1
    clock.now += SECOND
    assert send(sender) == 0
    clock.now += 2 * FIRST_PAUSE
    assert send(sender) == 2
    assert receiver.kinds == ["plan.made", "plan.approved"]
    ids = [delivery for delivery, _ in receiver.calls]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert [each.tries for each in store.webhooks.all()] == [1, 3]


def test_an_event_that_is_refused_holds_up_no_other(store: StateStore, receiver: Receiver, clock: Clock) -> None:
    sender = sender_of(store, clock, hook_of(receiver))
    receiver.statuses = [400, 204]
    digest = put_plan(store, clock)
    approve(store, clock, digest)
    assert send(sender) == 1
    clock.now += FIRST_PAUSE
    assert send(sender) == 1
    assert len(receiver.calls) == 3


def test_another_server_goes_on_where_one_was_killed(store: StateStore, receiver: Receiver, clock: Clock) -> None:
    hook = hook_of(receiver)
    digest = (sender_of(store, clock, hook), put_plan(store, clock))[1]
    approve(store, clock, digest)
    sender_of(store, clock, hook)
    first, second = store.webhooks.due(clock())
    # Killed after a try was counted, and after another one had derived the same events.
    store.webhooks.begin(first.id)
    store.webhooks.put([], json.dumps(json.loads(store.webhooks.cursor() or "") | {"audit": 0, "journal": 0}))
    assert send(sender_of(store, clock, hook)) == 2
    assert [delivery for delivery, _ in receiver.calls] == [first.id, second.id]


def test_a_delivery_is_given_up_after_a_day(store: StateStore, receiver: Receiver, clock: Clock) -> None:
    sender = sender_of(store, clock, hook_of(receiver))
    put_plan(store, clock)
    receiver.statuses = [500] * 100
    end = clock() + DEAD_AFTER + LONGEST_PAUSE
    while clock() <= end:
        send(sender)
        clock.now += timedelta(minutes=10)
    (delivery,) = store.webhooks.all()
    assert (delivery.state, delivery.message) == (DeliveryState.DEAD, "it answered 500")
    assert 20 < delivery.tries < 40


def test_redirects_are_not_followed(store: StateStore, receiver: Receiver, clock: Clock) -> None:
    sender = sender_of(store, clock, hook_of(receiver))
    put_plan(store, clock)
    receiver.statuses = [302]
    assert send(sender) == 0
    assert len(receiver.calls) == 1
    assert store.webhooks.all()[0].message == "it answered 302"


def test_a_hook_that_the_deploy_file_no_longer_names_is_told_nothing(
    store: StateStore, receiver: Receiver, clock: Clock
) -> None:
    sender_of(store, clock, hook_of(receiver))
    put_plan(store, clock)
    sender_of(store, clock, hook_of(receiver))
    with webhook_receiver(SECRET) as other:
        assert send(WebhookSender(store, [hook_of(other)], clock)) == 1
        assert len(other.calls) == 1
    assert receiver.calls == []
    assert {each.state for each in store.webhooks.all()} == {DeliveryState.DEAD, DeliveryState.DELIVERED}


def test_neither_payloads_nor_logs_hold_secrets(
    store: StateStore, receiver: Receiver, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    nowhere = Webhook("http://127.0.0.1:9/private-path", frozenset(WebhookEvent), SECRET.encode(), 1)
    sender = sender_of(store, clock, hook_of(receiver), nowhere)
    approve(store, clock, put_plan(store, clock))
    receiver.statuses = [500]
    while clock() < START + DEAD_AFTER + LONGEST_PAUSE:
        send(sender)
        clock.now += LONGEST_PAUSE
    said = "\n".join(
        [*receiver.bodies, *(record.getMessage() for record in caplog.records if record.name.startswith("stepfare"))]
    )
    stored = " ".join(f"{each.payload} {each.message} {each.hook}" for each in store.webhooks.all())
    assert "is given up" in said
    for text in (said, stored, repr(nowhere)):
        for hidden in (SECRET, "private", "SECRET-NOTE"):
            assert hidden not in text


def test_two_servers_deliver_once(
    store: StateStore, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, came = Clock(), threading.Event()
    monkeypatch.setattr(webhooks, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(webhooks, "WAIT_SECONDS", 0.005)
    hook = hook_of(receiver)
    sender_of(store, clock, hook)
    with (
        StateStore.open(f"sqlite:///{tmp_path}/state.db", now=START) as other,
        WebhookSender(store, [hook], clock).running(),
        WebhookSender(other, [hook], clock).running(),
    ):
        digest = put_plan(store, clock)
        for _ in range(5):
            approve(store, clock, digest)
        for _ in range(1000):
            if len(receiver.taken) >= 6:
                break
            came.wait(0.01)
        came.wait(0.05)
    assert sorted(receiver.kinds) == ["plan.approved"] * 5 + ["plan.made"]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("url: http://ci.example.com/hook", "is no https URL"),
        ("url: ftp://127.0.0.1/hook", "is no https URL"),
        ("url: https://user:pass-word@ci.example.com/", "holds more than host"),
        ("url: 'https://[::1/'", "is no URL"),
        ("url: https://ci.example.com/\n    events: [plan.eaten]", "events"),
        ("url: https://ci.example.com/\n    secret: plain-text-secret-of-many-letters", "is no reference"),
    ],
)
def test_the_deploy_file_takes_safe_addresses_and_references_alone(tmp_path: Path, written: str, words: str) -> None:
    file = tmp_path / "deploy.yaml"
    secret = "" if "secret:" in written else "\n    secret: env:HOOK"
    file.write_text(f"webhooks:\n  - {written}{secret}\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match=words) as error:
        load_deploy(file, named=True)
    assert "pass-word" not in str(error.value)
    assert "plain-text-secret" not in str(error.value)


def test_a_secret_is_read_where_it_is_and_must_be_long() -> None:
    entry = WebhookEntry.model_validate({"url": "https://ci.example.com/", "secret": "env:HOOK"})
    assert open_webhooks([entry], {"HOOK": SECRET})[0].key == SECRET.encode()
    assert open_webhooks([entry], {"HOOK": "whsec_" + "QUJD" * 8})[0].key == b"ABC" * 8
    for environment, words in (({}, "not set"), ({"HOOK": "short"}, "less than"), ({"HOOK": "whsec_x!"}, "base64")):
        with pytest.raises(InvalidInputError, match=words) as error:
            open_webhooks([entry], environment)
        assert "short" not in str(error.value).replace("less than", "")
