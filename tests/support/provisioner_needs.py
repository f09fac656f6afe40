"""What each resource of the modules asks of the cloud when it is made, read and destroyed, as its Terraform provider
calls it: the sources of hashicorp/aws (internal/service/{ec2,iam,ssm}), and for google and azurerm the permissions that
the REST references name for the calls. An attempt is made and destroyed, never changed in place: updates are left
out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from terraform.workdir import MODULES


@dataclass(frozen=True)
class Aws:
    """``makes`` and ``ends`` are the calls that do it; ``also`` what is called besides. ``like`` is CloudFormation's
    name of the same thing, whose own handlers are somebody else's word for ``makes`` and ``ends``."""

    makes: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    like: str = ""

    @property
    def actions(self) -> set[str]:
        """All of them, as IAM writes them: EC2's without a prefix."""
        named = (*self.makes, *self.ends, *self.also)
        return {name if ":" in name else f"ec2:{name}" for name in named}


def _aws(makes: str = "", ends: str = "", also: str = "", like: str = "") -> Aws:
    return Aws(tuple(makes.split()), tuple(ends.split()), tuple(also.split()), like)


_LEFT_INTERFACES = "DescribeNetworkInterfaces"  # the provider looks for what Lambda may have left in a network
AWS: Mapping[str, Aws] = {
    "data aws_ssm_parameter": _aws(also="ssm:GetParameter"),
    "aws_vpc": _aws(
        "CreateVpc ModifyVpcAttribute CreateTags",
        "DeleteVpc",
        "DescribeVpcs DescribeVpcAttribute DescribeNetworkAcls DescribeRouteTables DescribeSecurityGroups",
        "AWS::EC2::VPC",
    ),
    "aws_internet_gateway": _aws(
        "CreateInternetGateway CreateTags",
        "DeleteInternetGateway",
        "AttachInternetGateway DetachInternetGateway DescribeInternetGateways",
        "AWS::EC2::InternetGateway",
    ),
    "aws_subnet": _aws(
        "CreateSubnet ModifySubnetAttribute CreateTags",
        "DeleteSubnet",
        f"DescribeSubnets {_LEFT_INTERFACES}",
        "AWS::EC2::Subnet",
    ),
    "aws_route_table": _aws(
        "CreateRouteTable CreateTags",
        "DeleteRouteTable",
        "CreateRoute DisassociateRouteTable DescribeRouteTables",
        "AWS::EC2::RouteTable",
    ),
    "aws_route_table_association": _aws(
        "AssociateRouteTable", "DisassociateRouteTable", "DescribeRouteTables", "AWS::EC2::SubnetRouteTableAssociation"
    ),
    "aws_vpc_endpoint": _aws(
        "CreateVpcEndpoint CreateTags",
        "DeleteVpcEndpoints",
        "DescribeVpcEndpoints DescribePrefixLists",
        "AWS::EC2::VPCEndpoint",
    ),
    "aws_eip": _aws(
        "AllocateAddress CreateTags",
        "DisassociateAddress ReleaseAddress",
        "DescribeAddresses DescribeAddressesAttribute",
        "AWS::EC2::EIP",
    ),
    "aws_nat_gateway": _aws(
        "CreateNatGateway CreateTags", "DeleteNatGateway", "DescribeNatGateways", "AWS::EC2::NatGateway"
    ),
    "aws_placement_group": _aws(
        "CreatePlacementGroup CreateTags", "DeletePlacementGroup", "DescribePlacementGroups", "AWS::EC2::PlacementGroup"
    ),
    "aws_security_group": _aws(
        "CreateSecurityGroup RevokeSecurityGroupEgress CreateTags",
        "DeleteSecurityGroup",
        f"DescribeSecurityGroups {_LEFT_INTERFACES}",
        "AWS::EC2::SecurityGroup",
    ),
    "aws_vpc_security_group_ingress_rule": _aws(
        "AuthorizeSecurityGroupIngress",
        "RevokeSecurityGroupIngress",
        "CreateTags DescribeSecurityGroupRules",
        "AWS::EC2::SecurityGroupIngress",
    ),
    "aws_vpc_security_group_egress_rule": _aws(
        "AuthorizeSecurityGroupEgress",
        "RevokeSecurityGroupEgress",
        "CreateTags DescribeSecurityGroupRules",
        "AWS::EC2::SecurityGroupEgress",
    ),
    "aws_key_pair": _aws("ImportKeyPair CreateTags", "DeleteKeyPair", "DescribeKeyPairs", "AWS::EC2::KeyPair"),
    "aws_launch_template": _aws(
        "CreateLaunchTemplate CreateTags",
        "DeleteLaunchTemplate",
        "DescribeLaunchTemplates DescribeLaunchTemplateVersions",
        "AWS::EC2::LaunchTemplate",
    ),
    # ModifyInstanceAttribute: protection against termination is taken off before every termination.
    "aws_instance": _aws(
        "RunInstances iam:PassRole CreateTags",
        "TerminateInstances",
        "ModifyInstanceAttribute CancelSpotInstanceRequests DescribeSpotInstanceRequests DescribeInstances "
        "DescribeInstanceTypes DescribeInstanceAttribute DescribeImages DescribeVolumes DescribeLaunchTemplates "
        "DescribeLaunchTemplateVersions",
        "AWS::EC2::Instance",
    ),
    "aws_iam_role": _aws(
        "iam:CreateRole iam:TagRole",
        "iam:DeleteRole",
        "iam:GetRole iam:ListRolePolicies iam:ListAttachedRolePolicies iam:ListInstanceProfilesForRole",
        "AWS::IAM::Role",
    ),
    "aws_iam_role_policy": _aws(
        "iam:PutRolePolicy", "iam:DeleteRolePolicy", "iam:GetRolePolicy", "AWS::IAM::RolePolicy"
    ),
    "aws_iam_instance_profile": _aws(
        "iam:CreateInstanceProfile iam:AddRoleToInstanceProfile iam:PassRole",
        "iam:RemoveRoleFromInstanceProfile iam:DeleteInstanceProfile",
        "iam:TagInstanceProfile iam:GetInstanceProfile",
        "AWS::IAM::InstanceProfile",
    ),
}
AWS_PROVIDER = {"sts:GetCallerIdentity"}

_COMPUTE_MADE = {"create", "get", "delete"}


def _gcp(kind: str, *more: str) -> set[str]:
    return {f"compute.{kind}.{verb}" for verb in _COMPUTE_MADE} | set(more)


_POLICY = "compute.networks.updatePolicy"
GCP: Mapping[str, set[str]] = {
    "google_compute_network": _gcp("networks", "compute.globalOperations.get"),
    "google_compute_subnetwork": _gcp("subnetworks", _POLICY, "compute.regionOperations.get"),
    "google_compute_firewall": _gcp("firewalls", _POLICY, "compute.globalOperations.get"),
    "google_compute_resource_policy": _gcp("resourcePolicies", "compute.regionOperations.get"),
    "google_compute_instance": _gcp(
        "instances",
        *(f"compute.instances.set{what}" for what in ("Labels", "Metadata", "ServiceAccount")),
        *(f"compute.disks.{verb}" for verb in ("create", "get", "setLabels")),
        *(f"compute.images.{verb}" for verb in ("get", "getFromFamily", "useReadOnly")),
        *(f"compute.subnetworks.{verb}" for verb in ("use", "useExternalIp")),
        "compute.machineTypes.get",
        "compute.resourcePolicies.use",
        "compute.zoneOperations.get",
        "compute.zones.get",
        "iam.serviceAccounts.actAs",
    ),
    "google_service_account": {f"iam.serviceAccounts.{verb}" for verb in _COMPUTE_MADE},
    "google_artifact_registry_repository_iam_member": {
        "artifactregistry.repositories.getIamPolicy",
        "artifactregistry.repositories.setIamPolicy",
    },
    "google_storage_bucket_iam_member": {"storage.buckets.getIamPolicy", "storage.buckets.setIamPolicy"},
}


def _azure(kind: str, *more: str) -> set[str]:
    return {f"{kind}/{verb}" for verb in ("read", "write", "delete")} | set(more)


_NET, _VM = "Microsoft.Network", "Microsoft.Compute"
_SUBNETS, _SETS = f"{_NET}/virtualNetworks/subnets", f"{_VM}/virtualMachineScaleSets"
_ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
_IMAGES = {f"{_VM}/images/read", f"{_VM}/galleries/images/versions/read"}
_JOIN_GROUPS = {
    f"{_NET}/networkSecurityGroups/join/action",
    f"{_NET}/applicationSecurityGroups/joinIpConfiguration/action",
}
AZURE: Mapping[str, set[str]] = {
    "azurerm_resource_group": _azure("Microsoft.Resources/subscriptions/resourceGroups"),
    "azurerm_virtual_network": _azure(f"{_NET}/virtualNetworks"),
    "azurerm_subnet": _azure(_SUBNETS),
    "azurerm_public_ip": _azure(f"{_NET}/publicIPAddresses"),
    "azurerm_nat_gateway": _azure(f"{_NET}/natGateways"),
    "azurerm_nat_gateway_public_ip_association": {
        f"{_NET}/natGateways/write", f"{_NET}/publicIPAddresses/join/action"
    },
    "azurerm_subnet_nat_gateway_association": {f"{_SUBNETS}/write", f"{_NET}/natGateways/join/action"},
    "azurerm_application_security_group": _azure(f"{_NET}/applicationSecurityGroups"),
    "azurerm_network_security_group": _azure(f"{_NET}/networkSecurityGroups"),
    "azurerm_network_security_rule": _azure(
        f"{_NET}/networkSecurityGroups/securityRules",
        f"{_NET}/applicationSecurityGroups/joinNetworkSecurityRule/action",
    ),
    "azurerm_network_interface": _azure(
        f"{_NET}/networkInterfaces", f"{_SUBNETS}/join/action", f"{_NET}/publicIPAddresses/join/action"
    ),
    "azurerm_network_interface_security_group_association": {
        f"{_NET}/networkInterfaces/write", f"{_NET}/networkSecurityGroups/join/action"
    },
    "azurerm_network_interface_application_security_group_association": {
        f"{_NET}/networkInterfaces/write", f"{_NET}/applicationSecurityGroups/joinIpConfiguration/action"
    },
    # Switched off before it is deleted; its disk goes after it.
    "azurerm_linux_virtual_machine": _azure(
        f"{_VM}/virtualMachines", f"{_VM}/virtualMachines/powerOff/action", f"{_NET}/networkInterfaces/join/action",
        f"{_VM}/capacityReservationGroups/deploy/action", _ASSIGN, *_azure(f"{_VM}/disks"), *_IMAGES,
    ),
    "azurerm_linux_virtual_machine_scale_set": _azure(
        _SETS, f"{_SUBNETS}/join/action", _ASSIGN, *_JOIN_GROUPS, *_IMAGES
    ),
    "data azurerm_virtual_machine_scale_set": {
        f"{_SETS}/read", f"{_SETS}/virtualMachines/read", f"{_SETS}/virtualMachines/instanceView/read",
        f"{_SETS}/virtualMachines/networkInterfaces/read",
        f"{_SETS}/virtualMachines/networkInterfaces/ipConfigurations/publicIPAddresses/read",
    },
    "azurerm_user_assigned_identity": _azure("Microsoft.ManagedIdentity/userAssignedIdentities"),
    "azurerm_role_assignment": _azure(
        "Microsoft.Authorization/roleAssignments", "Microsoft.Authorization/roleDefinitions/read"
    ),
}  # fmt: skip
# Which of Azure's services the subscription has switched on, and to switch on those that the module uses.
AZURE_PROVIDER = {"Microsoft.Resources/subscriptions/providers/read"} | {
    f"{name}/register/action"
    for name in re.findall(r'"(Microsoft\.\w+)"', (MODULES / "azure" / "provider.tf").read_text(encoding="utf-8"))
}
