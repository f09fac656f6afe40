"""The AWS module, less what is newer than 3.39, through the real binary of hashicorp/aws 3.39.0 to a moto server: the
calls are those of the provider itself. Asserted on moto's own state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from terraform.render import parse_nodes
from terraform.workdir import PluginSources, prepare
from tests.support.terraform_moto import IMAGE, Cloud, gang
from tests.support.terraform_real_aws import mirror, needs_real_aws, older
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, needs_real_aws, pytest.mark.slow]
LOST = 'module.gang.aws_instance.node["2"]'


def test_the_real_provider_makes_repairs_and_releases_a_gang(aws: Cloud, tmp_path: Path) -> None:
    before = aws.inventory()
    # Without the cluster placement group and the NAT gateway: those calls moto does not serve.
    spec = replace(gang("real-1"), fabric="none", disk_gib=300)
    modules = older(tmp_path / "modules", aws.url)
    run = tmp_path / "run"
    prepare(run, spec, plugins=PluginSources(mirror=mirror()), modules=modules)
    # The provider waits ten seconds before it looks at a new machine.
    runner = aws.runner()
    runner = replace(runner, limits=replace(runner.limits, apply_s=300, destroy_s=300))

    preview = runner.preview(run)
    nodes = parse_nodes(runner.apply(run, preview=preview).outputs)
    made = aws.ids("real-1")
    assert {str(node.rank): node.id for node in nodes} == made
    assert len(made) == 4
    (group,) = aws.ec2.describe_security_groups(GroupNames=["stepfare-real-1"])["SecurityGroups"]
    (inward,) = group["IpPermissions"]
    assert ([p["GroupId"] for p in inward["UserIdGroupPairs"]], inward["IpRanges"]) == ([group["GroupId"]], [])
    zones = {s["SubnetId"]: s["AvailabilityZoneId"] for s in aws.ec2.describe_subnets()["Subnets"]}
    for rank, machine in aws.machines("real-1").items():
        tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
        assert {**spec.tags, "Name": f"real-1-{rank}"}.items() <= tags.items()
        assert (machine["InstanceType"], machine["ImageId"]) == ("p5.48xlarge", IMAGE)
        assert machine["MetadataOptions"]["HttpTokens"] == "required"
        assert zones[machine["SubnetId"]] == "use1-az4"
        (card,) = machine["NetworkInterfaces"]
        assert [g["GroupId"] for g in card["Groups"]] == [group["GroupId"]]
        (disk,) = machine["BlockDeviceMappings"]
        (volume,) = aws.ec2.describe_volumes(VolumeIds=[disk["Ebs"]["VolumeId"]])["Volumes"]
        assert (volume["Size"], volume["VolumeType"], volume["Encrypted"]) == (300, "gp3", True)
    (template,) = aws.ec2.describe_launch_templates()["LaunchTemplates"]
    assert template["LaunchTemplateName"].startswith("stepfare-real-1-")

    aws.ec2.terminate_instances(InstanceIds=[made["2"]])
    found = runner.preview(run)
    assert [change.address for change in found.drift if change.action == "delete"] == [LOST]
    # Not that nothing changes: moto does not give back every field that it was given.
    assert (found.creates, found.destroys) == ((LOST,), ())
    runner.apply(run, preview=found)
    now = aws.ids("real-1")
    assert sorted(now) == ["0", "1", "2", "3"]
    assert {rank for rank in made if made[rank] != now[rank]} == {"2"}

    runner.destroy(run)
    assert aws.inventory() == before
    assert runner.state(run) == ()
