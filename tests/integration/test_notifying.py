"""Messages to people: over real HTTP and SMTP, through the library, out of a real state."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pricing.problems import InvalidInputError
from router.controller.history.events import EventLevel, GangEvent
from router.controller.history.lifecycle import GAVE_UP
from router.controller.report.notify import (
    MOST_WAITING,
    NEWS_WINDOW,
    TOLD,
    TRIES,
    Channel,
    Notifier,
    open_channels,
    run_notifier,
)
from router.deploy.deploy_settings import Deploy
from router.deploy.notify_settings import EventKind, NotifyEntry
from router.state.records import NoticeRecord, Phase
from router.state.store import StateStore
from tests.support.coordinations import Clock
from tests.support.listeners import mailbox, webhook
from tests.support.new_state import open_state
from tests.support.service import closed_port
from tests.support.state_values import HOUR, NOW, attempt, node

CANARY = "canary-88d1f0"


@dataclass
class Scene:
    """A state, a clock, and what was said about channels."""

    store: StateStore
    clock: Clock = field(default_factory=lambda: Clock(NOW))
    said: list[str] = field(default_factory=list)
    heard: list[GangEvent] = field(default_factory=list)

    def notifier(self, *to: Channel, wanted: Any = tuple(EventKind)) -> Notifier:
        """One that knows nothing but what is in the state."""
        return Notifier(self.store, to, wanted, self.clock, self.said.append, self.heard.append, self.clock.ticks)

    def interrupted(self, name: str = "a1") -> None:
        """A gang that trains, one machine of which is taken back."""
        self.store.attempts.add(attempt(name, phase=Phase.RUNNING, met_at=NOW), [node(name)])
        self.store.notices.add(NoticeRecord(name, 0, "n", "interruption", "aws", 120.0, "preempted", self.clock()))


@dataclass
class Fake:
    """A channel in memory; ``works`` False refuses."""

    works: bool = True
    sent: list[tuple[str, str, EventLevel]] = field(default_factory=list)
    tries: int = 0

    @property
    def channel(self) -> Channel:
        return Channel("fake", self.send)

    def send(self, *message: Any) -> bool:
        self.tries += 1
        if self.works:
            self.sent.append(message)
        return self.works


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with open_state(tmp_path / "state.db", NOW) as store:
        yield Scene(store)


def test_a_webhook_hears_of_an_interruption_once(scene: Scene) -> None:
    scene.interrupted()
    with webhook() as hook:
        notifier = scene.notifier(*open_channels([hook.url]))
        for _ in range(3):
            notifier.look()
            notifier.send()
        again = scene.notifier(*open_channels([hook.url]))
        again.look()
        again.send()
    (message,) = hook.came
    assert message["title"] == "stepfare: llama: interrupted"
    assert message["message"] == (
        "llama (a1) is interrupted in aws us-east-1: the machine of rank 0 is preempted in 120 s"
    )
    assert message["type"] == "warning"
    assert [entry.details for entry in scene.store.journal.entries("a1") if entry.what == TOLD] == [
        {"event": "interrupted"}
    ]
    assert scene.said == []


def test_a_mail_server_hears_of_it(scene: Scene) -> None:
    scene.interrupted()
    with mailbox() as box:
        url = f"mailto://127.0.0.1:{box.port}?from=stepfare@example.com&to=ops@example.com&mode=insecure"
        notifier = scene.notifier(*open_channels([url]))
        notifier.look()
        notifier.send()
    (mail,) = box.came
    assert mail["Subject"] == "stepfare: llama: interrupted"
    assert "ops@example.com" in mail["To"]
    assert scene.said == []


def test_a_webhook_that_is_away_is_tried_again(scene: Scene) -> None:
    scene.interrupted()
    with webhook() as hook:
        hook.statuses = [500, 503]
        notifier = scene.notifier(*open_channels([hook.url]))
        notifier.look()
        for _ in range(4):
            notifier.send()
            scene.clock.move(10)
    assert len(hook.came) == 1
    assert scene.said == [
        "notify.urls[0] (json) does not take a message; trying again",
        "notify.urls[0] (json) takes messages again",
    ]


def test_nothing_that_is_said_of_a_channel_shows_its_address(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"json://user:{CANARY}@127.0.0.1:{closed_port()}/{CANARY}"
    (channel,) = open_channels([url])
    assert not channel.send("title", "text", EventLevel.INFO)
    assert CANARY not in repr(channel)
    assert CANARY not in caplog.text
    for bad in (f"nosuch://{CANARY}", CANARY, f"slack://{CANARY}"):
        with pytest.raises(InvalidInputError, match=r"notify\.urls\[1\]") as caught:
            open_channels([url, bad])
        assert CANARY not in str(caught.value)


def test_a_channel_that_fails_is_given_up_and_holds_up_no_other(scene: Scene) -> None:
    scene.interrupted()
    bad, good = Fake(works=False), Fake()
    notifier = scene.notifier(bad.channel, good.channel)
    notifier.look()
    for _ in range(1000):
        notifier.send()
        scene.clock.move(1)
    assert (bad.tries, good.tries) == (TRIES, 1)
    assert scene.said == ["fake does not take a message; trying again", "fake was not told of 1 event"]
    assert [entry.what for entry in scene.store.journal.entries("a1")] == [TOLD]


def test_pauses_grow(scene: Scene) -> None:
    scene.interrupted()
    bad = Fake(works=False)
    notifier = scene.notifier(bad.channel)
    notifier.look()
    at = []
    for second in range(100):
        before = bad.tries
        notifier.send()
        at += [second] if bad.tries > before else []
        scene.clock.move(1)
    assert at == [0, 1, 6, 21, 81]


def test_a_storm_is_one_message(scene: Scene) -> None:
    for number in range(60):
        scene.interrupted(f"a{number}")
    fake = Fake()
    notifier = scene.notifier(fake.channel)
    notifier.look()
    notifier.send()
    ((title, text, _),) = fake.sent
    assert title == "stepfare: llama: 60 events"
    assert "and 40 more" in text


def test_what_waits_is_bounded(scene: Scene) -> None:
    bad = Fake(works=False)
    notifier = scene.notifier(bad.channel)
    scene.interrupted()
    events = [GangEvent("a1", "llama", EventKind.LATE, EventLevel.INFO, f"{i}") for i in range(2)]
    notifier.tell(replace(events[0], attempt=f"x{i}") for i in range(MOST_WAITING + 50))
    assert len(notifier._queues[0].waiting) == MOST_WAITING
    assert len(notifier._open) == MOST_WAITING


def test_only_what_is_wanted_is_sent_and_everything_heard(scene: Scene) -> None:
    scene.interrupted()
    fake = Fake()
    notifier = scene.notifier(fake.channel, wanted=[EventKind.LATE])
    notifier.look()
    notifier.send()
    assert fake.sent == []
    assert [event.what for event in scene.heard] == [EventKind.INTERRUPTED]
    scene.clock.move(6 * 3600)
    notifier.look()
    notifier.send()
    assert [title for title, _, _ in fake.sent] == ["stepfare: llama: late"]


def test_what_ended_long_ago_is_no_news(scene: Scene) -> None:
    for name, hours in (("old", 2), ("new", 0.5)):
        gone = NOW - hours * HOUR
        made = attempt(name, phase=Phase.FAILED, reason="failed", message="it crashed", gone_at=gone)
        scene.store.attempts.add(made, [])
    for name, at in (("given-old", NOW - 2 * NEWS_WINDOW), ("given-new", NOW)):
        made = attempt(name, phase=Phase.FAILED, reason="short", gone_at=NOW - 5 * HOUR)
        scene.store.attempts.add(made, [])
        scene.store.journal.note(name, GAVE_UP, at, why="no place")
    scene.notifier().look()
    assert {event.attempt for event in scene.heard} == {"new", "given-new"}
    scene.store.journal.note("given-old", GAVE_UP, NOW, why="no place")
    notifier = scene.notifier()
    notifier.look()
    notifier.look()
    assert [event.attempt for event in scene.heard[2:]].count("given-old") == 1


def _site(scene: Scene, urls: tuple[str, ...], environment: dict[str, str]) -> Any:
    deploy = Deploy(notify=NotifyEntry(urls=urls))
    told: list[tuple[str, str]] = []
    return SimpleNamespace(
        store=scene.store,
        deploy=deploy,
        environment=environment,
        clock=scene.clock,
        told=told,
        tell=lambda job, text: told.append((job, text)),
    )


def test_beside_a_command_it_works_by_itself(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.controller.report.notify.LOOK_SECONDS", 0.02)
    scene.interrupted()
    heard = threading.Event()
    with webhook() as hook:
        site = _site(scene, ("env:HOOK",), {"HOOK": hook.url})
        with run_notifier(site, lambda _: heard.set()):
            assert heard.wait(30)
    assert [message["title"] for message in hook.came] == ["stepfare: llama: interrupted"]
    assert site.told == []


def test_a_state_that_is_away_is_said_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.controller.report.notify.LOOK_SECONDS", 0.02)
    site = _site(scene, (), {})
    scene.store.close()
    with run_notifier(site):
        threading.Event().wait(0.3)
    ((job, text),) = site.told
    assert job == "notify"
    assert text.startswith("cannot look for news: ")


def test_an_address_that_is_not_set_is_said_at_the_start(scene: Scene) -> None:
    with pytest.raises(InvalidInputError, match="HOOK"), run_notifier(_site(scene, ("env:HOOK",), {})):
        raise AssertionError


def test_without_the_library_its_extra_is_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "apprise", None)
    assert open_channels([]) == ()
    with pytest.raises(InvalidInputError, match="apprise") as caught:
        open_channels(["json://127.0.0.1"])
    assert "stepfare[notify]" in caught.value.problems[0].remedy
