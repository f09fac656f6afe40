"""A spot gang of four on EC2 as moto has it, from a spec through the Runner: made, a machine lost behind Terraform's
back, found and replaced, the gang shrunk and released. Asserted on moto's own state."""

from __future__ import annotations

import base64
import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from terraform.render import parse_nodes
from tests.support.terraform_moto import Cloud, gang
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]
LOST = 'module.gang.aws_instance.node["2"]'


def _tags(found: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in found["Tags"]}


def _check_the_whole(aws: Cloud, attempt: str) -> None:
    """Four machines as they were ordered: where, how bought, closed, encrypted, tagged, each with its own user data."""
    ec2, spec = aws.ec2, gang(attempt)
    machines = aws.machines(attempt)
    assert sorted(machines) == ["0", "1", "2", "3"]
    zones = {s["SubnetId"]: s["AvailabilityZoneId"] for s in ec2.describe_subnets()["Subnets"]}
    (group,) = ec2.describe_security_groups(GroupNames=[f"stepfare-{attempt}"])["SecurityGroups"]
    for rank, machine in machines.items():
        assert spec.tags.items() <= _tags(machine).items()
        assert _tags(machine)["Name"] == f"{attempt}-{rank}"
        assert (machine["InstanceType"], machine["InstanceLifecycle"]) == ("p5.48xlarge", "spot")
        assert machine["MetadataOptions"]["HttpTokens"] == "required"
        assert zones[machine["SubnetId"]] == "use1-az4"
        assert [g["GroupId"] for g in machine["SecurityGroups"]] == [group["GroupId"]]
        asked = ec2.describe_instance_attribute(InstanceId=machine["InstanceId"], Attribute="userData")
        text = gzip.decompress(base64.b64decode(base64.b64decode(asked["UserData"]["Value"]))).decode()
        assert text == f"#cloud-config\n# rank {rank}\n"
    disks = ec2.describe_volumes(Filters=[{"Name": "tag:stepfare_attempt", "Values": [attempt]}])["Volumes"]
    assert len(disks) == 4
    assert all(d["Encrypted"] and d["Size"] == 200 and d["VolumeType"] == "gp3" for d in disks)
    assert all(spec.tags.items() <= _tags(d).items() for d in disks)

    (inward,) = group["IpPermissions"]
    assert [p["GroupId"] for p in inward["UserIdGroupPairs"]] == [group["GroupId"]]
    assert inward["IpRanges"] == []
    (template,) = ec2.describe_launch_templates()["LaunchTemplates"]
    versions = ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"])
    cards = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]["NetworkInterfaces"]
    assert [card["InterfaceType"] for card in cards] == ["efa", *["efa-only"] * 31]


def test_a_spot_gang_is_made_loses_a_machine_is_repaired_whole_shrunk_and_released(aws: Cloud, tmp_path: Path) -> None:
    before = aws.inventory()
    run, runner = tmp_path / "run", aws.runner()
    aws.prepare(run, gang("llama-1"))
    preview = runner.preview(run)
    assert sum(address.startswith("module.gang.aws_instance.node[") for address in preview.creates) == 4
    assert (preview.changes, preview.destroys, preview.drift) == ((), (), ())
    assert aws.inventory() == before

    nodes = parse_nodes(runner.apply(run, preview=preview).outputs)
    made = aws.ids("llama-1")
    assert {str(node.rank): node.id for node in nodes} == made
    _check_the_whole(aws, "llama-1")
    assert runner.preview(run).is_empty

    # Behind Terraform's back.
    aws.ec2.terminate_instances(InstanceIds=[made["2"]])
    assert sorted(aws.ids("llama-1")) == ["0", "1", "3"]
    found = runner.preview(run)
    assert [(change.address, change.action) for change in found.drift] == [(LOST, "delete")]
    assert (found.creates, found.changes, found.destroys) == ((LOST,), (), ())

    repaired = parse_nodes(runner.apply(run, preview=found).outputs)
    now = aws.ids("llama-1")
    assert {rank for rank in made if made[rank] != now[rank]} == {"2"}
    assert [(node.rank, node.id) for node in repaired] == [(rank, now[str(rank)]) for rank in range(4)]
    _check_the_whole(aws, "llama-1")
    assert runner.preview(run).is_empty

    smaller = gang("llama-1", 2)
    aws.prepare(run, smaller)
    assert [node.rank for node in parse_nodes(runner.apply(run).outputs)] == [0, 1]
    assert aws.ids("llama-1") == {rank: made[rank] for rank in ("0", "1")}

    runner.destroy(run)
    assert aws.inventory() == before
    assert runner.state(run) == ()


def test_two_gangs_in_one_account_do_not_touch_each_other(aws: Cloud, tmp_path: Path) -> None:
    before = aws.inventory()
    first, second = gang("a-1", 2, fabric="none"), replace(gang("b-1", 2), fabric="none")
    for spec in (first, second):
        aws.prepare(tmp_path / spec.attempt, spec)
        aws.runner().apply(tmp_path / spec.attempt)
    kept = aws.ids("b-1")
    assert len(kept) == len(aws.ids("a-1")) == 2
    aws.runner().destroy(tmp_path / "a-1")
    assert aws.ids("a-1") == {}
    assert aws.ids("b-1") == kept
    assert aws.runner().preview(tmp_path / "b-1").is_empty
    aws.runner().destroy(tmp_path / "b-1")
    assert aws.inventory() == before
