"""Resources of the AWS stand-in that are real calls, to whatever AWS_ENDPOINT_URL names: a moto server in tests.

Networks, security groups with their rules, launch templates and instances. The others stay records: moto cannot serve
them, or nothing is asserted about them. faults.py says how calls can be made to fail.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import boto3
from botocore.exceptions import ClientError

from tests.support.standin.faults import Faults
from tests.support.standin.provider import Recorded, settled


def tags(kind: str, state: dict[str, Any]) -> list[dict[str, Any]]:
    pairs = [{"Key": k, "Value": v} for k, v in (state.get("tags") or {}).items()]
    return [{"ResourceType": kind, "Tags": pairs}] if pairs else []


def known(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def words(error: ClientError) -> str:
    """An error of the service as the provider hands it on."""
    found, answer = error.response["Error"], error.response["ResponseMetadata"]
    status = f"https response error StatusCode: {answer['HTTPStatusCode']}, RequestID: {answer.get('RequestId', '')}"
    return f"operation error EC2: {error.operation_name}, {status}, api error {found['Code']}: {found['Message']}"


class Call(Recorded):
    """One that is created and deleted by a call each; an error of the service becomes Terraform's."""

    TITLE: ClassVar[str]

    def ec2(self, state: dict[str, Any]) -> Any:
        return Faults.ordered().watch(boto3.client("ec2", region_name=state["region"]))

    def create(self, ctx: Any, planned: dict[str, Any]) -> dict[str, Any] | None:
        state = settled(planned)
        try:
            return settled(planned, tags_all=planned.get("tags"), **self.made(self.ec2(state), state))
        except ClientError as error:
            ctx.diagnostics.add_error(f"creating {self.TITLE}: {words(error)}")
            return None

    def delete(self, ctx: Any, current: dict[str, Any]) -> dict[str, Any] | None:
        """The state when it could not be deleted: Terraform must not forget it."""
        try:
            self.gone(self.ec2(current), current)
        except ClientError as error:
            ctx.diagnostics.add_error(f"deleting {self.TITLE} ({current['id']}): {words(error)}")
            return current
        return None

    @abstractmethod
    def made(self, ec2: Any, state: dict[str, Any]) -> dict[str, Any]:
        """Makes it; what became known."""

    @abstractmethod
    def gone(self, ec2: Any, state: dict[str, Any]) -> None:
        """Unmakes it."""


class Vpc(Call):
    TITLE = "EC2 VPC"

    def made(self, ec2: Any, state: dict[str, Any]) -> dict[str, Any]:
        made = ec2.create_vpc(CidrBlock=state["cidr_block"], TagSpecifications=tags("vpc", state))
        return {"id": made["Vpc"]["VpcId"]}

    def gone(self, ec2: Any, state: dict[str, Any]) -> None:
        ec2.delete_vpc(VpcId=state["id"])


class Subnet(Call):
    TITLE = "EC2 Subnet"

    def made(self, ec2: Any, state: dict[str, Any]) -> dict[str, Any]:
        place = known(VpcId=state["vpc_id"], AvailabilityZoneId=state["availability_zone_id"])
        made = ec2.create_subnet(CidrBlock=state["cidr_block"], TagSpecifications=tags("subnet", state), **place)
        # moto has a first subnet hand out addresses, whatever it was asked.
        public = {"Value": bool(state["map_public_ip_on_launch"])}
        ec2.modify_subnet_attribute(SubnetId=made["Subnet"]["SubnetId"], MapPublicIpOnLaunch=public)
        return {"id": made["Subnet"]["SubnetId"], "availability_zone": made["Subnet"]["AvailabilityZone"]}

    def gone(self, ec2: Any, state: dict[str, Any]) -> None:
        ec2.delete_subnet(SubnetId=state["id"])


class SecurityGroup(Call):
    TITLE = "Security Group"

    def made(self, ec2: Any, state: dict[str, Any]) -> dict[str, Any]:
        group = {"GroupName": state["name"], "Description": state["description"], "VpcId": state["vpc_id"]}
        made = ec2.create_security_group(**group, TagSpecifications=tags("security-group", state))
        # As the provider does: the rule to everywhere that EC2 gives a new group goes.
        everywhere = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
        ec2.revoke_security_group_egress(GroupId=made["GroupId"], IpPermissions=everywhere)
        return {"id": made["GroupId"]}

    def gone(self, ec2: Any, state: dict[str, Any]) -> None:
        ec2.delete_security_group(GroupId=state["id"])


class IngressRule(Call):
    TITLE = "VPC Security Group Rule"
    WAY = "ingress"

    def permission(self, state: dict[str, Any]) -> dict[str, Any]:
        peer = state["referenced_security_group_id"]
        source = {"UserIdGroupPairs": [{"GroupId": peer}]} if peer else {"IpRanges": [{"CidrIp": state["cidr_ipv4"]}]}
        permission = {"IpProtocol": state["ip_protocol"], **source}
        return {"GroupId": state["security_group_id"], "IpPermissions": [permission]}

    def made(self, ec2: Any, state: dict[str, Any]) -> dict[str, Any]:
        made = getattr(ec2, f"authorize_security_group_{self.WAY}")(**self.permission(state))
        return {"id": made["SecurityGroupRules"][0]["SecurityGroupRuleId"]}

    def gone(self, ec2: Any, state: dict[str, Any]) -> None:
        getattr(ec2, f"revoke_security_group_{self.WAY}")(**self.permission(state))


class EgressRule(IngressRule):
    WAY = "egress"


class LaunchTemplate(Call):
    TITLE = "EC2 Launch Template"

    def made(self, ec2: Any, state: dict[str, Any]) -> dict[str, Any]:
        interfaces = [
            known(
                DeviceIndex=i["device_index"],
                NetworkCardIndex=i["network_card_index"],
                InterfaceType=i["interface_type"],
                SubnetId=i["subnet_id"],
                Groups=i["security_groups"],
            )
            for i in state["network_interfaces"]
        ]
        made = ec2.create_launch_template(
            LaunchTemplateName=state["name"],
            LaunchTemplateData={"ImageId": state["image_id"], "NetworkInterfaces": interfaces},
            TagSpecifications=tags("launch-template", state),
        )
        return {"id": made["LaunchTemplate"]["LaunchTemplateId"], "latest_version": 1}

    def gone(self, ec2: Any, state: dict[str, Any]) -> None:
        ec2.delete_launch_template(LaunchTemplateId=state["id"])


class Instance(Call):
    TITLE = "EC2 Instance"

    def create(self, ctx: Any, planned: dict[str, Any]) -> dict[str, Any] | None:
        """With an error and a state when it does not come up: Terraform then knows it as tainted."""
        made = super().create(ctx, planned)
        if made is not None and self.stuck(made):
            said = "timeout while waiting for state to become 'running' (last state: 'pending', timeout: 10m0s)"
            ctx.diagnostics.add_error(f"waiting for EC2 Instance ({made['id']}) create: {said}")
            return {**made, "instance_state": "pending"}
        return made

    def stuck(self, state: dict[str, Any]) -> bool:
        return (state.get("tags") or {}).get("stepfare_rank") in Faults.ordered().pending

    def made(self, ec2: Any, state: dict[str, Any]) -> dict[str, Any]:
        template = {"LaunchTemplateId": state["launch_template"][0]["id"], "Version": "1"}
        versions = ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"])
        # moto takes no network interfaces from a template.
        first = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]["NetworkInterfaces"][0]
        disk, metadata = state["root_block_device"][0], state["metadata_options"][0]
        options: dict[str, Any] = {}
        for market in state["instance_market_options"]:
            spot = market["spot_options"][0]
            options["InstanceMarketOptions"] = {
                "MarketType": market["market_type"],
                "SpotOptions": known(MaxPrice=spot["max_price"], SpotInstanceType=spot["spot_instance_type"]),
            }
        ebs = {"Encrypted": disk["encrypted"], "VolumeType": disk["volume_type"], "VolumeSize": disk["volume_size"]}
        made = ec2.run_instances(
            MinCount=1,
            MaxCount=1,
            LaunchTemplate=template,
            InstanceType=state["instance_type"],
            UserData=state["user_data_base64"],
            SubnetId=first["SubnetId"],
            SecurityGroupIds=first["Groups"],
            MetadataOptions={"HttpTokens": metadata["http_tokens"], "HttpEndpoint": metadata["http_endpoint"]},
            BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {**ebs, "DeleteOnTermination": True}}],
            TagSpecifications=[*tags("instance", state), *tags("volume", disk)],
            **options,
        )["Instances"][0]
        return {
            "id": made["InstanceId"],
            "private_ip": made["PrivateIpAddress"],
            "availability_zone": made["Placement"]["AvailabilityZone"],
            "ami": made["ImageId"],
            "instance_state": "running",
            "instance_lifecycle": made.get("InstanceLifecycle"),
        }

    def read(self, ctx: Any, current: dict[str, Any]) -> dict[str, Any] | None:
        """None when it is gone: Terraform then plans another."""
        try:
            found = self.ec2(current).describe_instances(InstanceIds=[current["id"]])
        except ClientError as error:
            if error.response["Error"]["Code"] == "InvalidInstanceID.NotFound":
                return None
            ctx.diagnostics.add_error(f"reading {self.TITLE} ({current['id']}): {words(error)}")
            return current
        state = found["Reservations"][0]["Instances"][0]["State"]["Name"]
        if state == "running" and self.stuck(current):
            state = "pending"
        return None if state in ("terminated", "shutting-down") else {**current, "instance_state": state}

    def gone(self, ec2: Any, state: dict[str, Any]) -> None:
        ec2.terminate_instances(InstanceIds=[state["id"]])


KINDS: dict[str, type[Recorded]] = {
    "aws_instance": Instance,
    "aws_launch_template": LaunchTemplate,
    "aws_security_group": SecurityGroup,
    "aws_subnet": Subnet,
    "aws_vpc": Vpc,
    "aws_vpc_security_group_egress_rule": EgressRule,
    "aws_vpc_security_group_ingress_rule": IngressRule,
}
