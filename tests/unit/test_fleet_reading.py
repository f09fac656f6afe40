"""What clouds answer about tagged things, read without a cloud: odd rows, odd words, order."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from providers.aws.fleet import AwsFleet
from providers.aws.inventory import InventoryClient
from providers.aws.parse import inventory as aws
from providers.azure.calls import AzureCalls
from providers.azure.inventory import InventoryAccount
from providers.azure.parse import inventory as azure
from providers.errors import ProviderError, UnreadableError
from providers.fleet import AttemptTags, CloudResource, ResourceKind, read_attempt_tags, sort_resources
from providers.gcp import inventory as gcp
from providers.session import Settings
from tests.contract.fleet_contract import OURS, session

TAGS = {"stepfare_attempt": "llama-1", "stepfare_state": OURS, "stepfare_rank": "3"}
ROWS = [{"Key": key, "Value": value} for key, value in TAGS.items()]
ONE = CloudResource(
    "aws", "us-east-1", None, "i-1", "llama-1", OURS, 0, ResourceKind.MACHINE, "machine", None, billed=True
)


def test_marks_are_read_from_tags() -> None:
    assert read_attempt_tags(TAGS) == AttemptTags("llama-1", OURS, 3)
    assert read_attempt_tags({"stepfare_attempt": "llama-1", "stepfare_rank": "third"}) == AttemptTags(
        "llama-1", "", None
    )
    assert read_attempt_tags({"stepfare_attempt": "llama-1", "stepfare_rank": "³"}) == AttemptTags("llama-1", "", None)
    assert read_attempt_tags({"stepfare_attempt": "", "stepfare_state": OURS}) is None
    assert read_attempt_tags({}) is None


def test_machines_come_first_then_by_place_attempt_and_rank() -> None:
    network = replace(ONE, kind=ResourceKind.OTHER, machine_id="vpc-1", region="eu-west-1", rank=None)
    tenth, second = replace(ONE, rank=10, machine_id="i-a"), replace(ONE, rank=2, machine_id="i-b")
    elsewhere = replace(ONE, region="us-west-2")
    assert sort_resources([network, elsewhere, tenth, second]) == (second, tenth, elsewhere, network)


def test_what_goes_with_an_instance_is_known() -> None:
    kept = {"Ebs": {"VolumeId": "vol-kept", "DeleteOnTermination": False}}
    goes = {"Ebs": {"VolumeId": "vol-goes", "DeleteOnTermination": True}}
    card = {"NetworkInterfaceId": "eni-1", "Attachment": {"DeleteOnTermination": True}}
    row = {
        "InstanceId": "i-1", "State": {"Name": "running"}, "Tags": ROWS, "BlockDeviceMappings": [kept, goes, {}],
        "NetworkInterfaces": [card, {}], "SpotInstanceRequestId": "sir-1", "LaunchTime": "yesterday",
        "Placement": {"AvailabilityZone": "us-east-1a", "AvailabilityZoneId": "use1-az4"},
    }  # fmt: skip
    (found,), with_it = aws.read_machines("aws", "us-east-1", [{"Instances": [row]}, {}], {})
    assert (found.zone, found.rank, found.since) == ("use1-az4", 3, None)
    assert with_it == {"vol-goes", "eni-1", "sir-1"}
    volumes = [{"VolumeId": name, "Tags": ROWS} for name in ("vol-kept", "vol-goes")]
    assert [one.machine_id for one in aws.read_volumes("aws", "us-east-1", volumes, with_it)] == ["vol-kept"]
    request = {"SpotInstanceRequestId": "sir-1", "State": "active", "Tags": ROWS}
    assert list(aws.read_requests("aws", "us-east-1", [request], with_it)) == []
    (waiting,) = aws.read_requests("aws", "us-east-1", [request], frozenset())
    assert waiting.what == "spot request, active"
    card_row = {"NetworkInterfaceId": "eni-2", "TagSet": ROWS}
    assert [one.machine_id for one in aws.read_interfaces("aws", "us-east-1", [card_row], with_it)] == ["eni-2"]


@pytest.mark.parametrize(
    ("state", "known", "going", "billed"),
    [
        ("pending", 1, False, True),
        ("stopped", 1, False, True),
        ("shutting-down", 1, True, False),
        ("terminated", 0, False, False),
    ],
)
def test_states_of_an_instance(state: str, known: int, going: bool, billed: bool) -> None:
    row = {"InstanceId": "i-1", "State": {"Name": state}, "Tags": ROWS}
    found, _ = aws.read_machines("aws", "us-east-1", [{"Instances": [row]}], {})
    assert len(found) == known
    assert all((one.going, one.billed) == (going, billed) for one in found)


def test_gateways_that_failed_cost_nothing_and_those_deleted_are_gone() -> None:
    rows = [
        {"NatGatewayId": f"nat-{state}", "State": state, "Tags": ROWS}
        for state in ("available", "failed", "deleting", "deleted")
    ]
    found = list(aws.read_gateways("aws", "us-east-1", rows))
    assert [(one.machine_id, one.billed, one.going) for one in found] == [
        ("nat-available", True, False),
        ("nat-failed", False, False),
        ("nat-deleting", False, True),
    ]


@pytest.mark.parametrize(
    ("arn", "what", "id_"),
    [
        ("arn:aws:ec2:us-east-1:123456789012:launch-template/lt-1", "launch template", "lt-1"),
        ("arn:aws:ec2:us-east-1:123456789012:security-group/sg-1", "security group", "sg-1"),
        (
            "arn:aws:iam::123456789012:instance-profile/stepfare-llama-1",
            "iam instance profile",
            "arn:aws:iam::123456789012:instance-profile/stepfare-llama-1",
        ),
    ],
)
def test_arns_are_read(arn: str, what: str, id_: str) -> None:
    (one,) = aws.read_tagged("aws", "us-east-1", [{"ResourceARN": arn, "Tags": ROWS}])
    assert (one.what, one.machine_id, one.billed, one.rank) == (what, id_, False, None)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"ResourceARN": "nonsense", "Tags": ROWS},
        {"ResourceARN": "arn:aws:sqs:us-east-1:1:queue", "Tags": ROWS},
        {"ResourceARN": "arn:aws:ec2:us-east-1:1:instance/i-1", "Tags": ROWS},
        {"ResourceARN": "arn:aws:ec2:us-east-1:1:vpc/vpc-1", "Tags": []},
    ],
)
def test_rows_that_are_nothing_of_ours_are_passed_over(row: dict[str, Any]) -> None:
    assert list(aws.read_tagged("aws", "us-east-1", [row])) == []
    assert list(aws.read_addresses("aws", "us-east-1", [row])) == []


def test_pages_that_go_round_in_a_circle_end(monkeypatch: pytest.MonkeyPatch) -> None:
    client = InventoryClient("aws", session("aws", Settings()))
    answer = {"ResourceTagMappingList": [], "PaginationToken": "again"}
    monkeypatch.setattr(client, "_ask", lambda *_, **__: answer)
    with pytest.raises(UnreadableError):
        client.tagged("us-east-1")


def test_patience_ends_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    given = session("aws", Settings())
    fleet = AwsFleet("aws", given, patience_s=60.0, pause_s=0.01)
    in_use = ProviderError("aws", "sg-1", code="DependencyViolation")

    def end() -> None:
        given.caller.cancel()
        raise in_use

    error = fleet._end_with_retries(end, float("inf"))
    assert error is not None
    assert error.code == "DependencyViolation"


def test_rows_of_compute_engine_without_labels_or_address() -> None:
    assert gcp.read_machines("gcp", [{"name": "x", "labels": {"team": "research"}}, {}]) == ((), frozenset())
    (one,), _ = gcp.read_machines("gcp", [{"labels": TAGS}])
    assert (one.zone, one.region, one.machine_id, one.since) == (None, "", "", None)
    assert gcp.path_of("elsewhere") == "elsewhere"
    assert gcp.attempt_of({}) == ""
    assert list(gcp.read_named("gcp", "network", [{"name": "stepfare-"}, {"name": "default"}, {}])) == []


def test_rows_of_resource_manager_without_tags_or_id() -> None:
    assert azure.read_groups("azure", [{"tags": None}, {"tags": TAGS}, {"tags": TAGS, "id": "/odd"}]) == {}
    assert list(azure.read_machines("azure", [{"tags": TAGS}, {"id": "/x"}], {})) == []
    scale_set = {"id": "/s", "tags": TAGS}
    found = list(azure.read_members("azure", scale_set, [{"instanceId": "seven"}, {}], {}))
    assert [(one.rank, one.machine_id, one.since) for one in found] == [(None, "/s/virtualMachines/seven", None)]
    assert azure.attempt_of({}) == ""


@pytest.mark.parametrize("body", [b"[1]", b"<html>"])
def test_an_azure_answer_that_is_no_object_is_unreadable(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer:
        def json(self) -> object:
            return json.loads(body)

    settings = Settings(endpoints={"management": "http://127.0.0.1:1"}, options={"subscription": "s"})
    estate = InventoryAccount(AzureCalls("azure", session("azure", settings)))
    monkeypatch.setattr(estate, "_send", lambda *_: Answer())
    estate._calls._caller._attempts = 1
    with pytest.raises(UnreadableError):
        estate.group("/subscriptions/s/resourceGroups/g")
