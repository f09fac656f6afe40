"""From EventBridge over SQS into the state: moto plays both, the rule is that of docs/accounts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import botocore.handlers
import botocore.session
import pytest

from pricing.book_file import embedded_book
from providers.caller import Caller
from providers.errors import CredentialsError, ProviderError
from providers.notices import NoticeQueue
from providers.registry import open_notices
from providers.session import QUEUE_OPTION, Session
from router.app.controller import interruption_queues
from router.app.settings import read_settings
from router.controller.report.cloud_notices import CloudQueueListener, listen_for_notices
from router.state.records import NoticeRecord, Phase
from router.state.store import StateStore
from tests.support.aws_service import make_app
from tests.support.aws_service_session import NOW, NOW_TEXT, nobody, settings, somebody
from tests.support.coordinations import Clock
from tests.support.narrowed import present
from tests.support.new_state import open_state
from tests.support.repository import ROOT
from tests.support.service import CALL_LIMIT_S, closed_port, in_thread
from tests.support.state_values import attempt, node

WARNING, REBALANCE = "EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"
STATE = "EC2 Instance State-change Notification"
RECLAIMED, HEALTH = "EC2 Capacity Reservation Instance Interruption Warning", "AWS Health Event"
SNIPPET = json.loads((ROOT / "docs" / "accounts" / "aws-interruptions.tf.json").read_text(encoding="utf-8"))
PATTERN = SNIPPET["resource"]["aws_cloudwatch_event_rule"]["notices"]["event_pattern"]


@pytest.fixture(autouse=True)
def _account(monkeypatch: pytest.MonkeyPatch) -> None:
    somebody(monkeypatch)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with in_thread(make_app(regions=1, now=NOW_TEXT, history_rows=0)) as address:
        yield address


@dataclass
class Cloud:
    """A rule, a queue that it fills, and a queue for what nobody could read."""

    url: str
    name: str
    address: str = ""
    sqs: Any = field(init=False)
    bridge: Any = field(init=False)

    def __post_init__(self) -> None:
        session = botocore.session.Session()
        self.sqs = session.create_client("sqs", "us-east-1", endpoint_url=self.url)
        self.bridge = session.create_client("events", "us-east-1", endpoint_url=self.url)
        self.dead = self.sqs.create_queue(QueueName=f"{self.name}-dead")["QueueUrl"]
        redrive = json.dumps({"deadLetterTargetArn": self.arn(self.dead), "maxReceiveCount": 3})
        attributes = {"VisibilityTimeout": "0", "RedrivePolicy": redrive}
        self.address = self.sqs.create_queue(QueueName=self.name, Attributes=attributes)["QueueUrl"]
        self.bridge.put_rule(Name=self.name, EventPattern=PATTERN)
        self.bridge.put_targets(Rule=self.name, Targets=[{"Id": "1", "Arn": self.arn(self.address)}])

    def arn(self, queue: str) -> str:
        arn: str = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]["QueueArn"]
        return arn

    def event(self, subject: str, detail: Mapping[str, object], *, at: datetime = NOW, source: str = "aws.ec2") -> None:
        """As EC2 would send it."""
        entry = {"Source": source, "DetailType": subject, "Detail": json.dumps(detail), "Time": at, "Resources": []}
        self.bridge.put_events(Entries=[entry])

    def warn(self, machine: str, *, at: datetime = NOW) -> None:
        """Two minutes before it is terminated."""
        self.event(WARNING, {"instance-id": machine, "instance-action": "terminate"}, at=at)

    def waiting(self, queue: str = "") -> int:
        name = "ApproximateNumberOfMessages"
        asked = {"QueueUrl": queue or self.address, "AttributeNames": [name]}
        return int(self.sqs.get_queue_attributes(**asked)["Attributes"][name])

    def opened(self, url: str = "") -> NoticeQueue:
        """The queue as stepfare reads it, at another address if one is given."""
        made = replace(settings(url or self.url), options={QUEUE_OPTION: self.address})
        return present(
            open_notices("aws", Session(made, embedded_book(), NOW, Caller("aws", CALL_LIMIT_S, attempts=2)))
        )


@dataclass
class Scene:
    """A gang of two that trains on i-0 and i-1."""

    store: StateStore
    cloud: Cloud
    clock: Clock
    said: list[tuple[str, str]] = field(default_factory=list)

    def hearing(self) -> CloudQueueListener:
        return CloudQueueListener(self.store, self.cloud.opened(), self.clock, self.clock, self.tell)

    def poll(self) -> int:
        """Let a new reader look once, and return the number of notices that it stored."""
        before = len(self.store.notices.find())
        self.hearing().poll(0)
        return len(self.store.notices.find()) - before

    def tell(self, job: str, text: str) -> None:
        self.said.append((job, text))


@pytest.fixture
def scene(tmp_path: Path, url: str) -> Iterator[Scene]:
    with open_state(tmp_path / "state.db", NOW) as store:
        one = attempt("a1", phase=Phase.RUNNING, met_at=NOW)
        store.attempts.add(one, [node("a1", rank, machine_id=f"i-{rank}", made_at=NOW) for rank in (0, 1)])
        yield Scene(store, Cloud(url, f"stepfare-{tmp_path.name.replace('_', '-')}"[:60]), Clock(NOW))


def test_a_warning_becomes_a_notice_and_an_order_to_save(scene: Scene) -> None:
    scene.cloud.warn("i-1")
    scene.clock.move(8)
    assert scene.poll() == 1
    (notice,) = scene.store.notices.find()
    assert notice == NoticeRecord(
        "a1",
        1,
        "terminate-2026-11-21T18:02:00Z",
        "interruption",
        "aws",
        112.0,
        "the machine will be told to terminate at 2026-11-21T18:02:00Z",
        scene.clock(),
    )
    one = present(scene.store.attempts.get("a1"))
    assert (one.phase, one.order_id, one.order_seconds) == (Phase.NOTICED, notice.id, 110.0)
    assert scene.said == [("llama", f"a1: aws says of rank 1: {notice.what}")]
    assert scene.cloud.waiting() == 0
    assert scene.poll() == 0


def test_what_the_agent_said_already_is_not_said_twice(scene: Scene) -> None:
    told = NoticeRecord("a1", 0, "terminate-x", "interruption", "aws", 118.0, "preempted", NOW)
    scene.store.notices.add(told)
    scene.cloud.warn("i-0")
    scene.cloud.event(STATE, {"instance-id": "i-0", "state": "shutting-down"})
    scene.cloud.event(REBALANCE, {"instance-id": "i-0"})
    scene.clock.move(100)
    assert (scene.poll(), scene.cloud.waiting()) == (1, 0)
    assert [notice.kind for notice in scene.store.notices.find()] == ["interruption", "rebalance"]
    assert scene.store.notices.find()[1].seconds is None
    one = present(scene.store.attempts.get("a1"))
    assert one.phase is Phase.RUNNING
    scene.clock.move(3600)
    scene.cloud.warn("i-0", at=scene.clock())
    assert scene.poll() == 1


def test_a_machine_that_goes_already_is_told_of_but_asked_for_nothing(scene: Scene) -> None:
    scene.cloud.event(STATE, {"instance-id": "i-0", "state": "running"})
    scene.cloud.event(STATE, {"instance-id": "i-0", "state": "shutting-down"})
    assert (scene.poll(), scene.cloud.waiting()) == (1, 0)
    one = present(scene.store.attempts.get("a1"))
    assert (one.phase, one.order_id) == (Phase.RUNNING, "")
    assert [(notice.seconds, notice.what) for notice in scene.store.notices.find()] == [
        (0.0, "the machine is shutting-down")
    ]


def test_a_retirement_of_several_machines_is_told_of_each_of_ours(scene: Scene) -> None:
    change = {
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "startTime": (NOW + timedelta(days=14)).strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "affectedEntities": [{"entityValue": machine} for machine in ("i-0", "i-7", "i-1")],
    }
    scene.cloud.event(HEALTH, change, source="aws.health")
    # The third may be a machine that is being made: the message is read again, and nothing is told twice.
    assert (scene.poll(), scene.cloud.waiting()) == (2, 1)
    scene.clock.move(121)
    assert (scene.poll(), scene.cloud.waiting()) == (0, 0)
    assert {(notice.rank, notice.kind) for notice in scene.store.notices.find()} == {
        (0, "maintenance"),
        (1, "maintenance"),
    }


def test_machines_of_nobody_wait_a_little_for_somebody_to_know_them(scene: Scene) -> None:
    scene.cloud.warn("i-7")
    assert (scene.poll(), scene.cloud.waiting()) == (0, 1)
    made = attempt("a2", phase=Phase.PROVISIONING)
    scene.store.attempts.add(made, [node("a2", machine_id="i-7", made_at=NOW)])
    assert scene.poll() == 1
    scene.cloud.warn("i-8")
    scene.clock.move(121)
    assert (scene.poll(), scene.cloud.waiting()) == (0, 0)


def test_what_we_end_ourselves_is_no_news(scene: Scene) -> None:
    scene.store.attempts.update("a1", lambda one: replace(one, phase=Phase.RELEASING))
    scene.cloud.event(STATE, {"instance-id": "i-0", "state": "shutting-down"})
    scene.clock.move(600)
    assert (scene.poll(), scene.cloud.waiting()) == (0, 0)


def test_what_cannot_be_read_ends_with_the_dead_letters(scene: Scene) -> None:
    scene.cloud.sqs.send_message(QueueUrl=scene.cloud.address, MessageBody="{not json")
    scene.cloud.warn("i-0")
    assert (scene.hearing().poll(0), len(scene.store.notices.find())) == (1, 1)
    for _ in range(3):
        scene.poll()
    assert (scene.cloud.waiting(), scene.cloud.waiting(scene.cloud.dead)) == (0, 1)


def test_other_events_do_not_reach_the_queue(scene: Scene) -> None:
    scene.cloud.event(WARNING, {"instance-id": "i-0"}, source="somebody.else")
    scene.cloud.event("EBS Volume Notification", {"event": "createVolume"})
    assert scene.cloud.waiting() == 0


@pytest.mark.slow
def test_many_at_once(scene: Scene) -> None:
    machines = 25
    made = attempt("a2", phase=Phase.RUNNING, machines=machines)
    scene.store.attempts.add(made, [node("a2", rank, machine_id=f"i-b{rank}", made_at=NOW) for rank in range(machines)])
    for rank in range(machines):
        scene.cloud.warn(f"i-b{rank}")
    kept = 0
    while taken := scene.poll():
        kept += taken
    assert (kept, len(scene.store.notices.find("a2")), scene.cloud.waiting()) == (machines, machines, 0)


def test_what_was_not_kept_stays(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    hearing = scene.hearing()
    scene.cloud.warn("i-0")
    overview = scene.store.overview
    monkeypatch.setattr(overview, "alive", lambda: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        hearing.poll(0)
    assert scene.cloud.waiting() == 1


def test_the_calls_made_are_exactly_those_that_the_policy_allows(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[str] = set()
    note: Callable[..., None] = lambda model, **_: made.add(f"sqs:{model.name}")  # noqa: E731
    monkeypatch.setattr(
        botocore.handlers, "BUILTIN_HANDLERS", [*botocore.handlers.BUILTIN_HANDLERS, ("before-call", note)]
    )
    queue = scene.cloud.opened()
    made.clear()
    scene.cloud.warn("i-0")
    CloudQueueListener(scene.store, queue, scene.clock, scene.clock, scene.tell).poll(0)
    policy = json.loads(files("providers.aws").joinpath("interruptions.json").read_text(encoding="utf-8"))
    (statement,) = policy["Statement"]
    # One permission for one message and for many.
    assert {name.replace("MessageBatch", "Message") for name in made} == set(statement["Action"])
    assert statement["Resource"] == "arn:aws:sqs:*:*:stepfare-*"


def test_a_permission_that_is_missing_is_named(url: str, scene: Scene) -> None:
    fault = {"match": "ReceiveMessage", "kind": "forbidden"}
    with in_thread(make_app(regions=1, now=NOW_TEXT, history_rows=0, faults=[fault])) as address:
        refused = scene.cloud.opened(address)
        with pytest.raises(ProviderError, match="ReceiveMessage") as caught:
            refused.receive(0)
    assert "interruptions.json" in caught.value.remedy


def test_without_credentials_it_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody(monkeypatch)
    with pytest.raises(CredentialsError):
        scene.cloud.opened().receive(0)


def test_a_cloud_without_a_queue_has_none() -> None:
    session = Session(settings("http://127.0.0.1:1"), embedded_book(), NOW, Caller("aws", 1.0))
    assert open_notices("aws", session) is None
    assert open_notices("gcp", session) is None


def test_a_queue_that_comes_back_is_read_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.controller.report.cloud_notices._FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr("router.controller.report.cloud_notices.WAIT_S", 0.0)
    calls: list[int] = []
    back = threading.Event()

    def open_queue() -> NoticeQueue:
        calls.append(1)
        if len(calls) < 3:
            return scene.cloud.opened(f"http://127.0.0.1:{closed_port()}")
        back.set()
        return scene.cloud.opened()

    scene.cloud.warn("i-0")
    with listening_to(scene, open_queue):
        assert back.wait(30)
        limit = threading.Event()
        for _ in range(300):
            if scene.store.notices.find():
                break
            limit.wait(0.05)
    assert [notice.rank for notice in scene.store.notices.find()] == [0]
    texts = [text for name, text in scene.said if name == "aws"]
    assert len(texts) == 2
    assert texts[0].startswith("its queue cannot be read: ")
    assert texts[1] == "its queue can be read again"


@contextmanager
def listening_to(scene: Scene, queue: Callable[[], NoticeQueue]) -> Iterator[None]:
    with listen_for_notices(scene.store, {"aws": queue}, scene.clock, scene.clock, scene.tell):
        yield


def test_the_snippet_and_the_code_agree() -> None:
    queue = SNIPPET["resource"]["aws_sqs_queue"]["notices"]
    assert queue["name"] == "${var.name}"
    assert SNIPPET["variable"]["name"]["default"].startswith("stepfare-")
    assert json.loads(PATTERN) == {
        "source": ["aws.ec2", "aws.health"],
        "detail-type": [WARNING, RECLAIMED, REBALANCE, STATE, HEALTH],
    }
    receives = json.loads(queue["redrive_policy"])["maxReceiveCount"]
    # A machine that is not known yet is read again and again, and must not be taken for dead.
    assert receives * queue["visibility_timeout_seconds"] > timedelta(minutes=2).total_seconds()


def test_the_queues_of_the_deploy_file_are_opened(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path))
    queue = f"http://127.0.0.1:1/{scene.cloud.address.partition('://')[2].partition('/')[2]}"
    deploy = {"clouds": {"aws": {"regions": {"us-east-1": {"interruption_queue": queue}}}}}
    (tmp_path / "deploy.yaml").write_text(json.dumps(deploy), encoding="utf-8")
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(json.dumps({"clouds": {"aws": {"endpoints": {"sqs": scene.cloud.url}}}}), encoding="utf-8")
    queues = interruption_queues(read_settings({}, clouds=clouds), scene.clock)
    assert list(queues) == ["aws us-east-1"]
    scene.cloud.warn("i-1")
    heard = queues["aws us-east-1"]().receive(0)
    assert [notice.machine_id for letter in heard.letters for notice in letter.notices] == ["i-1"]
