"""Machines and what is made for them, found and released in an AWS account: the real SDK on moto over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from providers.aws import inventory as estate_calls
from providers.aws.fleet import AwsFleet
from providers.errors import (
    AccountNotUsedError,
    CredentialsError,
    NotReachedError,
    PermissionDeniedError,
    ProviderError,
    SdkMissingError,
)
from providers.fleet import CloudResource, ResourceKind
from providers.registry import open_fleet
from providers.session import Settings
from tests.contract.fleet_contract import OURS, THEIRS, session
from tests.support.aws_estate import Estate, estate, specification
from tests.support.aws_service_session import nobody, somebody
from tests.support.service import closed_port

HOME = "us-east-1"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Estate]:
    somebody(monkeypatch)
    with estate() as served:
        yield served


def fleet(app: Estate, **options: Any) -> AwsFleet:
    settings = Settings(endpoints={"ec2": app.url, "tag": app.url}, read_timeout_s=10.0)
    return AwsFleet("aws", session("aws", settings), **{"pause_s": 0.02, "patience_s": 5.0, **options})


def others(found: Sequence[CloudResource]) -> dict[str, CloudResource]:
    return {one.what.partition(",")[0]: one for one in found if one.kind is ResourceKind.OTHER}


@pytest.mark.slow
def test_sixty_machines_come_over_several_pages(app: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estate_calls, "_PAGE", 25)
    ours, theirs = app.machines("llama-1", OURS, range(60)), app.machines("llama-1", THEIRS, range(2))
    plain = app.machine({"team": "research"})
    app.calls.clear()
    findings = fleet(app).found([HOME])
    assert app.calls.count(f"DescribeInstances {HOME}") == 3
    assert findings.gaps == ()
    mine = [one for one in findings.resources if one.state_id == OURS]
    assert sorted(one.rank for one in mine if one.rank is not None) == list(range(60))
    assert {one.machine_id for one in mine} == set(ours)
    assert [one.zone for one in findings.resources] == ["use1-az6"] * 62
    assert fleet(app).release(mine) == (None,) * 60
    assert app.running() == {*theirs, plain}
    assert [one for one in fleet(app).found([HOME]).resources if one.state_id == OURS] == []


def test_a_machine_says_what_it_is(app: Estate) -> None:
    (made,) = app.machines("llama-1", OURS, [7])
    (one,) = fleet(app).found([HOME]).resources
    assert (one.kind, one.what, one.machine_id, one.rank) == ("machine", "ec2 instance p5.48xlarge", made, 7)
    assert one.since is not None
    assert one.billed


@pytest.mark.slow
def test_all_regions_of_the_account_are_asked(app: Estate) -> None:
    made = {region: app.machines("llama-1", OURS, [0], region=region) for region in ("eu-west-1", "us-west-2")}
    app.calls.clear()
    findings = fleet(app).found([])
    assert {one.region: [one.machine_id] for one in findings.resources} == made
    asked = {call.split()[1] for call in app.calls if call.startswith("DescribeInstances ")}
    assert len(asked) > 10
    assert fleet(app).release(findings.resources) == (None, None)
    assert app.running(*made) == set()


def test_a_region_that_is_denied_is_a_gap(app: Estate) -> None:
    app.machines("llama-1", OURS, [0], region="us-west-2")
    app.machines("llama-1", OURS, [1], region=HOME)
    app.refusals["DescribeInstances us-west-2"] = "UnauthorizedOperation"
    findings = fleet(app).found([HOME, "us-west-2"])
    assert [one.region for one in findings.resources if one.kind is ResourceKind.MACHINE] == [HOME]
    (gap,) = findings.gaps
    assert gap.subject == "machines in us-west-2"
    assert isinstance(gap.error, PermissionDeniedError)
    assert gap.error.permission == "ec2:DescribeInstances"
    assert "providers/aws/provisioner.json" in gap.error.remedy


def test_a_region_that_is_off_is_one_gap(app: Estate) -> None:
    app.refusals[" me-south-1"] = ""
    for action in ("Describe", "GetResources"):
        app.refusals[action] = "OptInRequired"
    findings = fleet(app).found(["me-south-1"])
    assert findings.resources == ()
    assert [gap.subject for gap in findings.gaps] == ["machines in me-south-1"]


@pytest.mark.parametrize(
    ("action", "permission", "subject"),
    [
        ("DescribeSpotInstanceRequests", "ec2:DescribeSpotInstanceRequests", "spot requests"),
        ("DescribeNatGateways", "ec2:DescribeNatGateways", "nat gateways"),
        ("DescribeAddresses", "ec2:DescribeAddresses", "elastic ips"),
        ("DescribeVolumes", "ec2:DescribeVolumes", "volumes"),
        ("DescribeNetworkInterfaces", "ec2:DescribeNetworkInterfaces", "network interfaces"),
        ("GetResources", "tag:GetResources", "everything else"),
    ],
)
def test_a_kind_that_is_denied_is_a_gap(action: str, permission: str, subject: str, app: Estate) -> None:
    app.machines("llama-1", OURS, [0])
    app.refusals[action] = "AccessDeniedException" if action == "GetResources" else "UnauthorizedOperation"
    findings = fleet(app).found([HOME])
    assert len([one for one in findings.resources if one.kind is ResourceKind.MACHINE]) == 1
    (gap,) = findings.gaps
    assert gap.subject == f"{subject} in {HOME}"
    assert isinstance(gap.error, PermissionDeniedError)
    assert gap.error.permission == permission


def test_zones_that_cannot_be_asked_hide_no_machine(app: Estate) -> None:
    app.machines("llama-1", OURS, [0])
    app.refusals["DescribeAvailabilityZones"] = "UnauthorizedOperation"
    findings = fleet(app).found([HOME])
    assert ([one.zone for one in findings.resources], findings.gaps) == ([None], ())


class Things:
    """What the module makes beside machines."""

    def __init__(self, app: Estate) -> None:
        ec2 = self.ec2 = app.ec2()

        def tagged(kind: str) -> dict[str, Any]:
            return {"TagSpecifications": specification(kind, "llama-1", OURS)}

        self.vpc = ec2.create_vpc(CidrBlock="10.64.0.0/16", **tagged("vpc"))["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=self.vpc, CidrBlock="10.64.0.0/20", **tagged("subnet"))["Subnet"]
        self.address = ec2.allocate_address(Domain="vpc", **tagged("elastic-ip"))["AllocationId"]
        gateway = ec2.create_nat_gateway(SubnetId=subnet["SubnetId"], AllocationId=self.address, **tagged("natgateway"))
        self.gateway = gateway["NatGateway"]["NatGatewayId"]
        volume = ec2.create_volume(Size=50, AvailabilityZone=f"{HOME}a", **tagged("volume"))
        self.volume = volume["VolumeId"]
        interface = ec2.create_network_interface(SubnetId=subnet["SubnetId"], **tagged("network-interface"))
        self.interface = interface["NetworkInterface"]["NetworkInterfaceId"]
        self.group = ec2.create_security_group(
            GroupName="stepfare-llama-1", Description="gang", VpcId=self.vpc, **tagged("security-group")
        )["GroupId"]
        self.foreign = ec2.create_volume(Size=1, AvailabilityZone=f"{HOME}a")["VolumeId"]

    def volumes(self) -> set[str]:
        return {row["VolumeId"] for row in self.ec2.describe_volumes()["Volumes"]}


def test_what_was_made_for_machines_is_found_and_released_in_order(app: Estate) -> None:
    things = Things(app)
    (machine,) = app.machines("llama-1", OURS, [0])
    findings = fleet(app).found([HOME])
    found = others(findings.resources)
    assert findings.resources[0].machine_id == machine
    ids = {what: one.machine_id for what, one in found.items()}
    assert ids == {
        "nat gateway": things.gateway,
        "elastic ip": things.address,
        "volume of 50 GiB": things.volume,
        "network interface": things.interface,
        "security group": things.group,
        "vpc": things.vpc,
        "subnet": ids["subnet"],
    }
    billed = {what for what, one in found.items() if one.billed}
    assert billed == {"nat gateway", "elastic ip", "volume of 50 GiB"}
    assert {(one.attempt, one.state_id, one.rank) for one in found.values()} == {("llama-1", OURS, None)}

    app.calls.clear()
    backwards = list(reversed(findings.resources))
    answers = dict(zip(backwards, fleet(app).release(backwards), strict=True))
    by_hand = {one.what for one, error in answers.items() if error is not None and "by hand" in error.remedy}
    assert by_hand == {"vpc", "subnet"}
    assert [error for one, error in answers.items() if error is not None and one.what not in by_hand] == []
    endings = [
        "TerminateInstances",
        "DeleteNatGateway",
        "DeleteVolume",
        "DeleteNetworkInterface",
        "ReleaseAddress",
        "DeleteSecurityGroup",
    ]
    assert [call.split()[0] for call in app.calls if call.split()[0] in endings] == endings
    assert things.volumes() == {things.foreign}
    assert things.ec2.describe_addresses()["Addresses"] == []
    left = others(fleet(app).found([HOME]).resources)
    assert set(left) == {"vpc", "subnet"}


def test_a_launch_template_is_released_by_its_id(app: Estate) -> None:
    """moto's tagging API does not list them."""
    template = app.ec2().create_launch_template(
        LaunchTemplateName="stepfare-llama-1-0", LaunchTemplateData={"ImageId": "ami-12c6146b"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    one = CloudResource(
        "aws", HOME, None, template, "llama-1", OURS, None, ResourceKind.OTHER, "launch template", None, billed=False
    )
    assert fleet(app).release([one]) == (None,)
    assert app.ec2().describe_launch_templates()["LaunchTemplates"] == []
    assert fleet(app).release([one]) == (None,)


def test_what_a_machine_still_holds_is_tried_again(app: Estate) -> None:
    things = Things(app)
    app.machines("llama-1", OURS, [0])
    app.refusals["DeleteSecurityGroup"] = "DependencyViolation"
    app.times["DeleteSecurityGroup"] = 3
    chosen = [one for one in fleet(app).found([HOME]).resources if one.machine_id[:2] in ("i-", "sg")]
    app.calls.clear()
    assert fleet(app).release(chosen) == (None, None)
    assert app.calls.count(f"DeleteSecurityGroup {HOME}") == 4
    groups = app.ec2().describe_security_groups()["SecurityGroups"]
    assert things.group not in [group["GroupId"] for group in groups]


def test_what_something_else_holds_is_not_waited_for(app: Estate) -> None:
    Things(app)
    app.refusals["DeleteSecurityGroup"] = "DependencyViolation"
    chosen = [one for one in fleet(app).found([HOME]).resources if one.machine_id.startswith("sg-")]
    app.calls.clear()
    (error,) = fleet(app).release(chosen)
    assert error is not None
    assert "still in use" in str(error)
    assert "sweep again" in error.remedy
    assert app.calls.count(f"DeleteSecurityGroup {HOME}") == 1


def test_patience_ends(app: Estate) -> None:
    Things(app)
    app.machines("llama-1", OURS, [0])
    app.refusals["DeleteSecurityGroup"] = "DependencyViolation"
    chosen = [one for one in fleet(app).found([HOME]).resources if one.machine_id[:2] in ("i-", "sg")]
    first, second = fleet(app, patience_s=0.2).release(chosen)
    assert first is None
    assert second is not None
    assert second.code == "DependencyViolation"


def test_an_address_that_a_gateway_uses_is_not_torn_away(app: Estate) -> None:
    things = Things(app)
    found = others(fleet(app).found([HOME]).resources)
    (error,) = fleet(app).release([found["elastic ip"]])
    assert error is not None
    assert "still in use" in str(error)
    assert fleet(app).release([found["nat gateway"], found["elastic ip"]]) == (None, None)
    assert things.ec2.describe_addresses()["Addresses"] == []


def test_an_open_spot_request_is_found_and_cancelled(app: Estate) -> None:
    ec2 = app.ec2()
    made = ec2.request_spot_instances(
        InstanceCount=1,
        LaunchSpecification={"ImageId": "ami-12c6146b", "InstanceType": "p5.48xlarge"},
        TagSpecifications=specification("spot-instances-request", "llama-1", OURS),
    )["SpotInstanceRequests"][0]
    found = others(fleet(app).found([HOME]).resources)
    one = found["spot request"]
    assert (one.machine_id, one.billed) == (made["SpotInstanceRequestId"], False)
    assert fleet(app).release([one]) == (None,)
    assert others(fleet(app).found([HOME]).resources) == {}


def test_the_spot_request_of_a_machine_is_cancelled_first(app: Estate) -> None:
    machines = app.machines("llama-1", OURS, range(2))
    found = fleet(app).found([HOME]).resources
    app.calls.clear()
    app.bodies.clear()
    fleet(app).release(found)
    assert [call.split()[0] for call in app.calls] == ["DescribeSpotInstanceRequests", "TerminateInstances"]
    asked = app.bodies[0]
    assert {value[0] for name, value in asked.items() if ".Value" in name} == set(machines)


def test_requests_that_cannot_be_asked_keep_no_machine_alive(app: Estate) -> None:
    app.machines("llama-1", OURS, range(2))
    found = fleet(app).found([HOME]).resources
    app.refusals["DescribeSpotInstanceRequests"] = "UnauthorizedOperation"
    assert fleet(app).release(found) == (None, None)
    assert app.running() == set()


def test_one_bad_id_does_not_keep_the_others_alive(app: Estate) -> None:
    made = app.machines("llama-1", OURS, range(5))
    found = list(fleet(app).found([HOME]).resources)
    found[2] = replace(found[2], machine_id="i-00000000000000bad")
    assert fleet(app).release(found) == (None,) * 5
    assert app.running() == {made[2]}


def test_machines_that_may_not_be_ended_are_said_one_by_one(app: Estate) -> None:
    app.machines("llama-1", OURS, range(3))
    found = fleet(app).found([HOME]).resources
    app.refusals["TerminateInstances"] = "UnauthorizedOperation"
    answers = fleet(app).release(found)
    assert all(isinstance(error, PermissionDeniedError) for error in answers)
    assert all(error is not None and "provisioner.json" in error.remedy for error in answers)
    assert len(app.running()) == 3


def test_a_passing_fault_is_tried_again(app: Estate) -> None:
    app.machines("llama-1", OURS, [0])
    for action in ("DescribeInstances", "TerminateInstances"):
        app.refusals[action], app.times[action] = "InternalError", 1
    found = fleet(app).found([HOME])
    assert (len(found.resources), found.gaps) == (1, ())
    assert fleet(app).release(found.resources) == (None,)


def test_without_an_account_nothing_is_said_to_be_empty(app: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    app.machines("llama-1", OURS, [0])
    (one,) = fleet(app).found([HOME]).resources
    settings = Settings(credentials=False, endpoints={"ec2": app.url, "tag": app.url})
    unused = AwsFleet("aws", session("aws", settings))
    with pytest.raises(AccountNotUsedError):
        unused.found([])
    nobody(monkeypatch)
    for call in (lambda: fleet(app).found([HOME]), lambda: fleet(app).release([one])):
        with pytest.raises(CredentialsError) as caught:
            call()
        assert caught.value.none_found
    assert fleet(app).release([]) == ()


def test_no_network_is_a_gap_and_an_error(app: Estate) -> None:
    app.machines("llama-1", OURS, [0])
    (one,) = fleet(app).found([HOME]).resources
    url = f"http://127.0.0.1:{closed_port()}"
    away = AwsFleet("aws", session("aws", Settings(endpoints={"ec2": url, "tag": url})))
    (gap,) = away.found([HOME]).gaps
    assert isinstance(gap.error, NotReachedError)
    with pytest.raises(NotReachedError):
        away.found([])
    (error,) = away.release([one])
    assert isinstance(error, NotReachedError)


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name in ("providers.aws.fleet", "providers.aws.inventory")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "providers.aws.client")
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(SdkMissingError) as caught:
        open_fleet("aws", session("aws", Settings()))
    assert "stepfare[aws]" in caught.value.remedy


def test_kinds_that_are_not_released_say_so(app: Estate) -> None:
    role = "arn:aws:iam::123456789012:role/stepfare-llama-1"
    one = CloudResource(
        "aws", HOME, None, role, "llama-1", OURS, None, ResourceKind.OTHER, "iam role", None, billed=False
    )
    (error,) = fleet(app).release([one])
    assert isinstance(error, ProviderError)
    assert "terraform destroy" in error.remedy
