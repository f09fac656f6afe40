"""EventBridge's messages about instances, read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.aws.parse.queue_messages import HEALTH, REBALANCE, RECLAIMED, STATE_CHANGE, WARNING, read_messages
from providers.notices import CloudNotice, QueueBatch, QueueMessage
from providers.protocol import NoticeKind
from router.agent.imds import MachineNotice
from router.agent.imds_aws import Ec2InstanceWatch
from tests.support.narrowed import present

AT = datetime(2026, 11, 21, 18, tzinfo=UTC)


def message(subject: str = WARNING, /, **changes: Any) -> dict[str, Any]:
    """As the documentation of each has it."""
    details = {
        WARNING: {"instance-id": "i-0a", "instance-action": "terminate"},
        REBALANCE: {"instance-id": "i-0a"},
        STATE_CHANGE: {"instance-id": "i-0a", "state": "shutting-down"},
        RECLAIMED: {"instance-id": "i-0a", "instance-action": "terminate", "azId": "use1-az4"},
        HEALTH: {
            "service": "EC2",
            "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "startTime": "Sat, 05 Dec 2026 18:00:00 GMT",
            "affectedEntities": [{"entityValue": "i-0a"}, {"entityValue": "i-0b", "tags": {}}],
        },
    }
    event = {
        "version": "0",
        "id": "12345678-1234-1234-1234-123456789012",
        "detail-type": subject,
        "source": "aws.ec2",
        "account": "123456789012",
        "time": "2026-11-21T18:00:00Z",
        "region": "us-east-1",
        "resources": ["arn:aws:ec2:us-east-1a:instance/i-0a"],
        "detail": details.get(subject, {}),
    } | changes
    return {"MessageId": "m", "ReceiptHandle": "r-1", "Body": json.dumps(event)}


def one(*given_: Any, **changes: Any) -> CloudNotice | None:
    (letter,) = read_messages("aws", [message(*given_, **changes)]).letters
    assert letter.receipt == "r-1"
    assert len(letter.notices) <= 1
    return next(iter(letter.notices), None)


def test_a_warning_has_the_name_that_the_machine_hears_it_by() -> None:
    what = "the machine will be told to terminate at 2026-11-21T18:02:00Z"
    id_ = "terminate-2026-11-21T18:02:00Z"
    assert one() == CloudNotice("aws", "i-0a", NoticeKind.INTERRUPTION, 120.0, AT, id_, what)
    heard: list[MachineNotice] = []
    answers = {"/latest/meta-data/spot/instance-action": {"action": "terminate", "time": "2026-11-21T18:02:00Z"}}
    _instance(answers).look(heard.append)
    assert [(notice.id, notice.what) for notice in heard] == [(id_, what)]


def _instance(answers: dict[str, Any]) -> Ec2InstanceWatch:
    """That of an agent whose service answers so."""

    class Answer:
        status, headers, at = 200, dict[str, str](), 0.0

        def __init__(self, text: str) -> None:
            self.text = text

        def left(self, _: object) -> float:
            return 118.0

    class Asked(Ec2InstanceWatch):
        def _get(self, path: str) -> Any:
            return Answer(json.dumps(answers[path])) if path in answers else None

    return Asked("aws", None, 5.0)  # type: ignore[arg-type]


def test_a_recommendation_has_it_too() -> None:
    notice = one(REBALANCE)
    heard: list[MachineNotice] = []
    path = "/latest/meta-data/events/recommendations/rebalance"
    _instance({path: {"noticeTime": "2026-11-21T18:00:00Z"}}).look(heard.append)
    assert notice is not None
    assert [(n.id, n.kind, n.what) for n in heard] == [(notice.id, notice.kind.value, notice.what)]
    assert (notice.seconds, notice.is_going) == (None, False)


def test_hibernation_begins_at_once() -> None:
    notice = present(one(detail={"instance-id": "i-0a", "instance-action": "hibernate"}))
    assert (notice.seconds, notice.id) == (0.0, "hibernate-2026-11-21T18:00:00Z")


@pytest.mark.parametrize("state", ["shutting-down", "stopping", "stopped", "terminated"])
def test_a_machine_that_goes(state: str) -> None:
    notice = present(one(STATE_CHANGE, detail={"instance-id": "i-0a", "state": state}))
    assert (notice.kind, notice.seconds, notice.is_going) == (NoticeKind.INTERRUPTION, 0.0, True)
    assert notice.what == f"the machine is {state}"


def test_a_reservation_that_is_reclaimed_warns_as_spot_does() -> None:
    assert one(RECLAIMED) == one(WARNING)


def test_an_envelope_of_sns_holds_the_event() -> None:
    plain = message()
    envelope = {"Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:x", "Message": plain["Body"]}
    assert read_messages("aws", [plain | {"Body": json.dumps(envelope)}]) == read_messages("aws", [plain])
    other = {"Type": "Notification", "Message": "hello"}
    assert read_messages("aws", [plain | {"Body": json.dumps(other)}]) == QueueBatch((), 1)


def test_a_retirement_that_health_schedules_is_maintenance_of_each_machine() -> None:
    (letter,) = read_messages("aws", [message(HEALTH)]).letters
    assert [(notice.machine_id, notice.kind, notice.seconds) for notice in letter.notices] == [
        ("i-0a", NoticeKind.MAINTENANCE, 14 * 86_400.0),
        ("i-0b", NoticeKind.MAINTENANCE, 14 * 86_400.0),
    ]
    assert letter.notices[0].what == "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED at 2026-12-05T18:00:00Z"


@pytest.mark.parametrize(
    "changes", [{"service": "RDS"}, {"eventTypeCategory": "accountNotification"}, {"statusCode": "closed"}]
)
def test_other_events_of_health_concern_nobody(changes: dict[str, str]) -> None:
    detail = json.loads(message(HEALTH)["Body"])["detail"] | changes
    assert one(HEALTH, detail=detail) is None


def test_what_concerns_nobody_is_a_letter_without_a_notice() -> None:
    assert one(STATE_CHANGE, detail={"instance-id": "i-0a", "state": "running"}) is None
    assert one("EBS Volume Notification") is None


def test_a_time_in_another_zone_is_the_same_time() -> None:
    assert one(time="2026-11-21T19:00:00+01:00") == one()


@pytest.mark.parametrize(
    "changes",
    [
        {"time": "yesterday"},
        {"time": "2026-11-21T18:00:00"},
        {"time": None},
        {"detail": []},
        {"detail": {}},
        {"time": "9999-12-31T23:59:59Z"},
        {"detail": {"instance-id": 7, "instance-action": "stop"}},
        {"detail": {"instance-id": "i-0a", "instance-action": "x\x1b[2J"}},
    ],
)
def test_what_cannot_be_read_is_counted(changes: dict[str, Any]) -> None:
    batch = read_messages("aws", [message(**changes), message()])
    assert (len(batch.letters), batch.unreadable) == (1, 1)


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_nothing_breaks_it(body: str) -> None:
    assert read_messages("aws", [{"ReceiptHandle": "r", "Body": body}]) in (
        QueueBatch((), 1),
        QueueBatch((QueueMessage("r"),)),
    )


def test_a_receipt_is_not_shown() -> None:
    assert "r-1" not in repr(read_messages("aws", [message()]))
