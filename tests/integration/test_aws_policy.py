"""The IAM policy allows what the adapter does and nothing else, and the doctor says what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from importlib.resources import files
from typing import Any

import botocore.handlers
import pytest

from pricing.places import Market
from providers.errors import CredentialsError, PermissionDeniedError
from providers.protocol import GangQuery, Provider
from tests.support.aws_service import make_app
from tests.support.aws_service_session import CANARY, NOW, NOW_TEXT, nobody, provider, somebody
from tests.support.service import closed_port, in_thread

QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/notices"
POLICY = json.loads(files("providers.aws").joinpath("policy.json").read_text(encoding="utf-8"))
ALLOWED = {action for statement in POLICY["Statement"] for action in statement["Action"]}
DOCTOR_ALONE = {"sqs:ReceiveMessage", "sts:GetCallerIdentity"}
# Where IAM calls a service otherwise than the SDK calls its endpoint.
IAM_NAMES = {"api.pricing": "pricing"}


@pytest.fixture(autouse=True)
def _account(monkeypatch: pytest.MonkeyPatch) -> None:
    somebody(monkeypatch)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    faults = [{"match": "", "kind": "new_type"}]
    with in_thread(make_app(regions=["us-west-2"], now=NOW_TEXT, history_rows=400, faults=faults)) as address:
        yield address


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Operations that the SDK was asked for, as it announces them itself before each call."""
    operations: set[str] = set()

    def note(model: Any, **_: Any) -> None:
        prefix = model.service_model.endpoint_prefix
        operations.add(f"{IAM_NAMES.get(prefix, prefix)}:{model.name}")

    monkeypatch.setattr(
        botocore.handlers, "BUILTIN_HANDLERS", [*botocore.handlers.BUILTIN_HANDLERS, ("before-call", note)]
    )
    return operations


def _use_all_but_the_doctor(asked: Provider) -> None:
    for scope in asked.scopes():
        asked.fetch(scope, NOW - timedelta(days=40))
    asked.stock([GangQuery("p5.48xlarge", 2, market, ("us-west-2",)) for market in Market])
    asked.allowances(("us-west-2",))


def _queue_for_it(url: str) -> None:
    sqs: Any = botocore.session.Session().create_client("sqs", "us-east-1", endpoint_url=url)
    sqs.create_queue(QueueName="notices")


def test_the_calls_made_are_exactly_those_that_the_policy_allows(url: str, made: set[str]) -> None:
    _queue_for_it(url)
    made.clear()
    _use_all_but_the_doctor(provider(url))
    assert made == ALLOWED - DOCTOR_ALONE
    made.clear()
    diagnosis = provider(url, options={"notice_queue_url": QUEUE}).diagnose()
    assert made == ALLOWED
    assert {check.permission for check in diagnosis.checks} >= ALLOWED


def test_the_policy_lets_nothing_be_changed() -> None:
    assert POLICY["Version"] == "2012-10-17"
    assert all(statement["Effect"] == "Allow" for statement in POLICY["Statement"])
    verbs = ("Describe", "Get", "List", "Receive")
    assert [action for action in ALLOWED if not action.partition(":")[2].startswith(verbs)] == []
    assert len({statement["Sid"] for statement in POLICY["Statement"]}) == len(POLICY["Statement"])


def test_a_healthy_account_passes_every_check(url: str) -> None:
    diagnosis = provider(url).diagnose()
    assert [check for check in diagnosis.checks if check.error is not None] == []
    assert diagnosis.identity is not None
    assert "(account 123456789012)" in diagnosis.identity
    assert diagnosis.identity_error is None
    assert diagnosis.clock_ahead is not None
    assert abs(diagnosis.clock_ahead) < timedelta(seconds=30)
    assert diagnosis.latency is not None
    assert timedelta(0) < diagnosis.latency < timedelta(seconds=5)
    assert any("spot prices per zone" in source for source in diagnosis.sources)


@pytest.mark.parametrize("permission", sorted(ALLOWED - DOCTOR_ALONE))
def test_a_permission_that_is_missing_is_named(permission: str, url: str) -> None:
    fault = {"match": permission.partition(":")[2] + " ", "kind": "forbidden"}
    with in_thread(make_app(regions=["us-west-2"], now=NOW_TEXT, history_rows=0, faults=[fault])) as address:
        diagnosis = provider(address, attempts=1).diagnose()
    (failed,) = (check for check in diagnosis.checks if check.error is not None)
    assert failed.permission == permission
    assert isinstance(failed.error, PermissionDeniedError)
    assert failed.error.permission == permission
    assert CANARY not in repr(diagnosis)


@pytest.mark.parametrize("seconds", [600, -600])
def test_a_clock_that_is_ten_minutes_off_is_found(seconds: int) -> None:
    fault = {"match": "", "kind": "clock", "offset_s": seconds}
    with in_thread(make_app(regions=["us-west-2"], now=NOW_TEXT, history_rows=0, faults=[fault])) as address:
        ahead = provider(address).diagnose().clock_ahead
    assert ahead is not None
    assert abs(ahead + timedelta(seconds=seconds)) < timedelta(seconds=30)


def test_a_clock_that_the_cloud_refuses_is_found_all_the_same() -> None:
    """Every signed call is refused then; the public files are not signed."""
    clock = {"match": "", "kind": "clock", "offset_s": 900}
    refused = [
        {"match": word, "kind": "refused", "code": "RequestTimeTooSkewed", "status": 403}
        for word in ("Describe", "GetC", "GetP", "GetS", "List")
    ]
    with in_thread(make_app(regions=1, now=NOW_TEXT, history_rows=0, faults=[clock, *refused])) as address:
        asked = provider(address, attempts=1)
        diagnosis = asked.diagnose()
        with pytest.raises(CredentialsError) as caught:
            asked.scopes()
    assert diagnosis.clock_ahead is not None
    assert abs(diagnosis.clock_ahead + timedelta(minutes=15)) < timedelta(seconds=30)
    assert isinstance(diagnosis.identity_error, CredentialsError)
    assert "clock" in diagnosis.identity_error.remedy
    assert "clock" in caught.value.remedy


def test_without_credentials_the_doctor_says_what_the_public_files_give(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody(monkeypatch)
    diagnosis = provider(url).diagnose()
    assert diagnosis.identity is None
    assert isinstance(diagnosis.identity_error, CredentialsError)
    assert [check.error for check in diagnosis.checks] == [None, None]
    assert any("public price list" in source for source in diagnosis.sources)
    unwanted = provider(url, credentials=False).diagnose()
    assert (unwanted.identity, unwanted.identity_error) == (None, None)


def test_with_no_network_the_doctor_ends_and_says_so() -> None:
    diagnosis = provider(f"http://127.0.0.1:{closed_port()}").diagnose()
    assert all(check.error is not None for check in diagnosis.checks)
    assert (diagnosis.identity, diagnosis.clock_ahead, diagnosis.latency) == (None, None, None)
    assert diagnosis.sources == ("nothing: no source could be reached or is permitted",)
