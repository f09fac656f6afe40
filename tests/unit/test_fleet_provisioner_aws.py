"""The AWS provisioner policy allows what the module and a sweep do, on what they made, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from cloudsplaining.scan.policy_document import PolicyDocument

from providers.aws import fleet, inventory
from tests.support.provisioner_needs import AWS, AWS_PROVIDER
from tests.support.repository import ROOT

ACCOUNT = "123456789012"


@dataclass(frozen=True)
class Thing:
    """A resource that a request is about: its kind and name, the tags that it has, and those that it is to get."""

    kind: str
    name: str = "x"
    has: Mapping[str, str] = field(default_factory=dict)
    gets: Mapping[str, str] = field(default_factory=dict)
    service: str = "ec2"

    @property
    def arn(self) -> str:
        """Images and snapshots belong to no account in their ARNs; IAM knows no region."""
        region = "" if self.service == "iam" else "us-east-1"
        account = "" if self.kind in ("image", "snapshot") or self.service == "ssm" else ACCOUNT
        return f"arn:aws:{self.service}:{region}:{account}:{self.kind}/{self.name}"


def allows(policy: Mapping[str, Any], action: str, things: Sequence[Thing], **context: str) -> bool:
    """Whether every one of ``things`` is covered by a statement; ``context`` as ``ec2_CreateAction``."""
    keys = {name.replace("_", ":", 1): value for name, value in context.items()}
    return all(any(_applies(s, action, thing, keys) for s in policy["Statement"]) for thing in things)


def _applies(statement: Mapping[str, Any], action: str, thing: Thing, context: Mapping[str, str]) -> bool:
    resources = statement["Resource"]
    listed = [resources] if isinstance(resources, str) else resources
    keys = dict(context)
    keys |= {f"aws:ResourceTag/{key}": value for key, value in thing.has.items()}
    keys |= {f"aws:RequestTag/{key}": value for key, value in thing.gets.items()}
    return (
        action in statement["Action"]
        and any(_like(thing.arn, pattern) for pattern in listed)
        and all(_holds(test, keys) for test in _tests(statement))
    )


def _tests(statement: Mapping[str, Any]) -> Iterator[tuple[str, str, Sequence[str]]]:
    for operator, wanted in statement.get("Condition", {}).items():
        for key, values in wanted.items():
            yield operator, key, [values] if isinstance(values, str) else values


def _holds(test: tuple[str, str, Sequence[str]], keys: Mapping[str, str]) -> bool:
    operator, key, values = test
    if operator == "Null":
        return (key not in keys) == (values == ["true"])
    if key not in keys:
        return False
    if operator == "StringEquals":
        return keys[key] in values
    assert operator == "StringLike", operator
    return any(_like(keys[key], value) for value in values)


def _like(text: str, pattern: str) -> bool:
    return fnmatchcase(text, re.sub(r"\[", "[[]", pattern))


FOLDER = ROOT / "providers" / "aws"
FILE, IDENTITY_FILE = FOLDER / "provisioner.json", FOLDER / "provisioner-identity.json"
MACHINES: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
IDENTITY: dict[str, Any] = json.loads(IDENTITY_FILE.read_text(encoding="utf-8"))
# What an installation with a checkpoint bucket has: both.
POLICY: dict[str, Any] = {**MACHINES, "Statement": [*MACHINES["Statement"], *IDENTITY["Statement"]]}
STATEMENTS: list[dict[str, Any]] = POLICY["Statement"]
BOUNDARY = {"iam_PermissionsBoundary": "arn:aws:iam::123456789012:policy/stepfare-boundary"}
GRANTED = {action for statement in STATEMENTS for action in statement["Action"]}
# Files of cfn-lint. To import it takes seconds, in every process that collects tests.
CFN_LINT = Path(find_spec("cfnlint").origin or "").parent / "data"  # type: ignore[union-attr]
KNOWN: dict[str, Any] = json.loads((CFN_LINT / "AdditionalSpecs" / "Policies.json").read_text(encoding="utf-8"))
LARGEST_MANAGED_POLICY = 6144
OURS = {"stepfare_attempt": "llama-1", "stepfare_state": "s0123456789"}
THEIRS = {"team": "databases"}


def in_module() -> set[str]:
    """Resource types of the module; data sources with their word."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "terraform/modules/aws").glob("*.tf"))
    found = re.findall(r'^(resource|data) "(\w+)"', text, flags=re.MULTILINE)
    return {name if kind == "resource" else f"data {name}" for kind, name in found}


def asked_by_a_sweep() -> set[str]:
    """Every call that the fleet's own code names."""
    source = Path(inventory.__file__).read_text(encoding="utf-8") + Path(fleet.__file__).read_text(encoding="utf-8")
    named = set(re.findall(r'"((?:Describe|Get|Delete|Cancel|Terminate|Release)[A-Z]\w+)"', source))
    both = {"GetResources": "tag:GetResources"}
    looks = ("DescribeRegions", "DescribeAvailabilityZones", "DescribeInstanceTypeOfferings")
    return {both.get(name, f"ec2:{name}") for name in named} | {f"ec2:{name}" for name in looks}


def test_every_resource_of_the_module_is_in_the_table() -> None:
    assert in_module() == set(AWS)


def test_exactly_what_is_needed_is_granted() -> None:
    needed = {action for resource in AWS.values() for action in resource.actions} | AWS_PROVIDER | asked_by_a_sweep()
    assert len(asked_by_a_sweep()) > 12
    assert needed - GRANTED == set()
    assert GRANTED - needed == set()


def cloudformation() -> dict[str, dict[str, Any]]:
    """CloudFormation's own schemas, by type, as cfn-lint brings them."""
    found = {}
    for path in (CFN_LINT / "schemas" / "resources").glob("*.json"):
        schema = json.loads(path.read_text(encoding="utf-8"))
        if schema.get("typeName") in {resource.like for resource in AWS.values()} and "handlers" in schema:
            found[schema["typeName"]] = schema["handlers"]
    return found


def test_cloudformation_makes_and_ends_things_with_the_same_calls() -> None:
    """Its handlers name theirs: a word on the table that is not ours. What its service does on its own is left out:
    tags, egress of a new group, and what comes with an address."""
    handlers = cloudformation()
    assert len(handlers) >= 14
    own = {"iam:PassRole", "ec2:CreateTags", "iam:TagRole"}
    for name, resource in AWS.items():
        if resource.like not in handlers:
            continue
        theirs = handlers[resource.like]
        makes = {a if ":" in a else f"ec2:{a}" for a in resource.makes} - own
        ends = {a if ":" in a else f"ec2:{a}" for a in resource.ends}
        assert makes - set(theirs["create"]["permissions"]) == set(), name
        assert ends - set(theirs["delete"]["permissions"]) == set(), name


def lint(document: dict[str, Any]) -> list[str]:
    """What cfn-lint says of it as a managed policy; not that a template should tell its purpose (I4010)."""
    from cfnlint import api  # type: ignore[import-untyped]

    template = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Resources": {"Policy": {"Type": "AWS::IAM::ManagedPolicy", "Properties": {"PolicyDocument": document}}},
    }
    return [match.message for match in api.lint_all(json.dumps(template)) if match.rule.id != "I4010"]


@pytest.mark.slow
def test_cfn_lint_finds_nothing_wrong_with_it() -> None:
    assert lint(MACHINES) == lint(IDENTITY) == []
    assert lint(json.loads((FOLDER / "boundary.json").read_text(encoding="utf-8"))) == []
    assert lint({**POLICY, "Statement": [{**STATEMENTS[0], "Action": ["ec2:DescribeNonsense"]}]})
    elsewhere = {**STATEMENTS[0], "Action": ["ec2:CreateVpc"], "Resource": "arn:aws:ec2:*:*:subnet/*"}
    assert lint({**POLICY, "Statement": [elsewhere]})


def kinds(statement: dict[str, Any], action: str) -> list[dict[str, Any]]:
    """What is known of the kinds of resource of ``action`` that the statement's ARNs name."""
    service, _, name = action.partition(":")
    resources = statement["Resource"]
    listed = [resources] if isinstance(resources, str) else resources
    known = KNOWN[service]
    found = []
    for kind in known["Actions"][name.lower()].get("Resources", ()):
        for arn in known["Resources"].get(kind, {}).get("ARNFormats", ()):
            example = re.sub(r"\$\{\w+\}", "x", arn).replace(".*", "stepfare/x")
            example = example.replace("arn:x:", "arn:aws:")
            if any(fnmatchcase(example, pattern) for pattern in listed):
                found.append(known["Resources"][kind])
    return found


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement["Sid"])
def test_actions_resources_and_conditions_fit_each_other(statement: dict[str, Any]) -> None:
    """By AWS's service authorization reference, as cfn-lint brings it."""
    assert statement["Action"] == sorted(statement["Action"]) or statement["Sid"] == "Look"
    for action in statement["Action"]:
        service, _, name = action.partition(":")
        assert name.lower() in KNOWN[service]["Actions"], action
        if statement["Resource"] == "*" or service == "ssm":
            continue
        found = kinds(statement, action)
        assert found, f"{action} is about nothing that is listed"
        for operator in statement.get("Condition", {}).values():
            for key in operator:
                base = key.partition("/")[0]
                if base.startswith("aws:"):
                    assert any(base in known for kind in found for known in kind["ConditionKeys"]), (action, key)


def test_it_fits_into_a_managed_policy() -> None:
    for file in (FILE, IDENTITY_FILE):
        assert len(re.sub(r"\s", "", file.read_text(encoding="utf-8"))) <= LARGEST_MANAGED_POLICY
    assert POLICY["Version"] == "2012-10-17"
    assert len({statement["Sid"] for statement in STATEMENTS}) == len(STATEMENTS)
    assert all(statement["Effect"] == "Allow" and "*" not in "".join(statement["Action"]) for statement in STATEMENTS)


def test_only_what_changes_nothing_is_granted_everywhere() -> None:
    wide = [s for s in STATEMENTS if s["Resource"] == "*" or "Condition" not in s]
    changing = {a for s in wide for a in s["Action"] if not a.split(":")[1].startswith(("Describe", "Get", "List"))}
    named = {a for a in changing if a.startswith("iam:")}  # limited by name instead
    assert changing - named == {"ec2:CreateSecurityGroup", "ec2:RunInstances"}


def escalations(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Ways to more rights than a policy gives, as the static analyser Cloudsplaining sees them.

    It counts limits on resources (asked to) but no conditions, so that it errs on the side of finding one.
    """
    found: list[dict[str, Any]] = PolicyDocument(
        document, flag_conditional_statements=True, flag_resource_arn_statements=True
    ).allows_privilege_escalation
    return found


def test_the_policy_for_machines_gives_nobody_more_rights() -> None:
    assert escalations(MACHINES) == []
    assert not [action for statement in MACHINES["Statement"] for action in statement["Action"] if "iam:" in action]


def test_every_way_to_more_rights_by_identities_ends_at_the_boundary() -> None:
    """The analyser's ways, each broken: no role's policy is written without the boundary, and the roles that may be
    passed on are those below a path at which nothing is made without it."""
    ways = escalations(POLICY)
    assert {way["type"] for way in ways} == {"PutRolePolicy", "CreateEC2WithExistingIP"}
    for way in ways:
        held = [
            statement
            for statement in IDENTITY["Statement"]
            for action in statement["Action"]
            if action.lower() in way["actions"]
        ]
        assert held
        for statement in held:
            assert statement["Resource"] == "arn:aws:iam::*:role/stepfare/*"
            bounded = "iam:PermissionsBoundary" in statement["Condition"].get("StringLike", {})
            assert bounded or statement["Action"] == ["iam:PassRole"]
    # Nothing takes a boundary away, changes who may take a role, or writes the boundary itself.
    loose = {
        "iam:DeleteRolePermissionsBoundary",
        "iam:PutRolePermissionsBoundary",
        "iam:UpdateAssumeRolePolicy",
        "iam:AttachRolePolicy",
        "iam:CreatePolicyVersion",
        "iam:SetDefaultPolicyVersion",
    }
    assert not loose & GRANTED


def test_the_boundary_lets_machines_do_what_their_role_says_and_no_more() -> None:
    boundary = json.loads((FOLDER / "boundary.json").read_text(encoding="utf-8"))
    bounded = {action for statement in boundary["Statement"] for action in statement["Action"]}
    module = (ROOT / "terraform/modules/aws/identity.tf").read_text(encoding="utf-8")
    assert bounded == set(re.findall(r'"((?:s3|ecr):\w+)"', module))


def own(*kinds: str) -> list[Thing]:
    return [Thing(kind, has=OURS) for kind in kinds]


def new(*kinds: str) -> list[Thing]:
    return [Thing(kind, gets=OURS) for kind in kinds]


ROLE = Thing("role", "stepfare/stepfare-llama-1", service="iam")
PROFILE = Thing("instance-profile", "stepfare/stepfare-llama-1", service="iam")
RUN = [
    *new("instance", "network-interface", "spot-instances-request"),
    Thing("volume"),
    Thing("image"),
    Thing("subnet", has=OURS),
    *own("security-group", "launch-template", "placement-group", "key-pair"),
]

MAKING: list[tuple[str, list[Thing], dict[str, str]]] = [
    ("ssm:GetParameter", [Thing("parameter", "aws/service/deeplearning/ami/x86_64/latest", service="ssm")], {}),
    ("ec2:CreateVpc", new("vpc"), {}),
    ("ec2:CreateTags", [Thing("vpc", gets=OURS)], {"ec2_CreateAction": "CreateVpc"}),
    ("ec2:ModifyVpcAttribute", own("vpc"), {}),
    ("ec2:CreateSubnet", [*new("subnet"), *own("vpc")], {}),
    ("ec2:CreateRouteTable", [*new("route-table"), *own("vpc")], {}),
    ("ec2:AttachInternetGateway", own("internet-gateway", "vpc"), {}),
    ("ec2:CreateNatGateway", [*new("natgateway"), *own("subnet", "elastic-ip")], {}),
    ("ec2:CreateVpcEndpoint", [*new("vpc-endpoint"), *own("vpc", "route-table")], {}),
    ("ec2:CreateSecurityGroup", [*new("security-group"), *own("vpc")], {}),
    ("ec2:CreateSecurityGroup", [*new("security-group"), Thing("vpc", has=THEIRS)], {}),
    ("ec2:AuthorizeSecurityGroupIngress", [*new("security-group-rule"), *own("security-group")], {}),
    ("ec2:RunInstances", RUN, {}),
    ("ec2:RunInstances", [*RUN, Thing("capacity-reservation"), Thing("subnet", has=THEIRS)], {}),
    ("ec2:RunInstances", [Thing("group", service="resource-groups")], {}),
    ("ec2:CreateTags", [Thing("instance", gets=OURS)], {"ec2_CreateAction": "RunInstances"}),
    ("ec2:CreateTags", [Thing("volume", gets=OURS)], {}),
    ("ec2:TerminateInstances", own("instance"), {}),
    ("ec2:CancelSpotInstanceRequests", own("spot-instances-request"), {}),
    ("ec2:ReleaseAddress", own("elastic-ip"), {}),
    ("ec2:DeleteVolume", own("volume"), {}),
    ("iam:CreateRole", [ROLE], BOUNDARY),
    ("iam:PutRolePolicy", [ROLE], BOUNDARY),
    ("iam:DeleteRolePolicy", [ROLE], BOUNDARY),
    ("iam:AddRoleToInstanceProfile", [PROFILE], {}),
    ("iam:PassRole", [ROLE], {"iam_PassedToService": "ec2.amazonaws.com"}),
]


@pytest.mark.parametrize(("action", "things", "context"), MAKING)
def test_what_an_attempt_does_is_allowed(action: str, things: list[Thing], context: dict[str, str]) -> None:
    assert allows(POLICY, action, things, **context)


FOREIGN: list[tuple[str, list[Thing], dict[str, str]]] = [
    ("ec2:TerminateInstances", [Thing("instance", has=THEIRS)], {}),
    ("ec2:TerminateInstances", [Thing("instance")], {}),
    ("ec2:TerminateInstances", [Thing("instance", has={"stepfare_attempt": ""})], {}),
    ("ec2:DescribeInstanceAttribute", [Thing("instance", has=THEIRS)], {}),
    ("ec2:DeleteVolume", [Thing("volume", has=THEIRS)], {}),
    ("ec2:DeleteVpc", [Thing("vpc", has=THEIRS)], {}),
    ("ec2:DeleteSecurityGroup", [Thing("security-group")], {}),
    ("ec2:AuthorizeSecurityGroupIngress", [Thing("security-group", has=THEIRS), *new("security-group-rule")], {}),
    ("ec2:CreateSubnet", [*new("subnet"), Thing("vpc", has=THEIRS)], {}),
    ("ec2:CreateRoute", [Thing("route-table", has=THEIRS)], {}),
    ("ec2:ReleaseAddress", [Thing("elastic-ip")], {}),
    ("ec2:CreateVpc", [Thing("vpc")], {}),
    ("ec2:RunInstances", [*RUN[1:], Thing("instance")], {}),
    ("ec2:RunInstances", [*RUN, Thing("security-group", has=THEIRS)], {}),
    ("ec2:RunInstances", [*RUN, Thing("launch-template")], {}),
    ("ec2:CreateTags", [Thing("instance", has=THEIRS, gets=OURS)], {}),
    ("ec2:CreateTags", [Thing("vpc", gets=OURS)], {"ec2_CreateAction": "CreateSnapshot"}),
    ("ec2:CreateTags", [Thing("volume", has=OURS, gets=OURS)], {}),
    ("ec2:CreateTags", [Thing("volume", gets=THEIRS)], {}),
    ("iam:CreateRole", [ROLE], {}),
    ("iam:CreateRole", [ROLE], {"iam_PermissionsBoundary": "arn:aws:iam::aws:policy/AdministratorAccess"}),
    ("iam:PutRolePolicy", [ROLE], {}),
    ("iam:CreateRole", [Thing("role", "admin", service="iam")], BOUNDARY),
    ("iam:PutRolePolicy", [Thing("role", "stepfare-provisioner", service="iam")], BOUNDARY),
    ("iam:PutRolePolicy", [Thing("role", "admin", service="iam")], BOUNDARY),
    ("iam:PassRole", [Thing("role", "stepfare-admin", service="iam")], {"iam_PassedToService": "ec2.amazonaws.com"}),
    ("iam:PassRole", [Thing("role", "admin", service="iam")], {"iam_PassedToService": "ec2.amazonaws.com"}),
    ("iam:PassRole", [ROLE], {"iam_PassedToService": "lambda.amazonaws.com"}),
    ("iam:PassRole", [ROLE], {}),
    ("ssm:GetParameter", [Thing("parameter", "database/password", service="ssm")], {}),
]


@pytest.mark.parametrize(("action", "things", "context"), FOREIGN)
def test_what_is_not_the_attempts_is_refused(action: str, things: list[Thing], context: dict[str, str]) -> None:
    assert not allows(POLICY, action, things, **context)


def test_nothing_is_allowed_to_itself() -> None:
    """No action that the policy does not name is allowed by a wildcard."""
    assert not allows(POLICY, "ec2:CreateImage", own("instance"))
    assert not allows(POLICY, "iam:AttachRolePolicy", [ROLE])
