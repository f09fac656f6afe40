"""The AWS module applied through the stand-in provider to a moto server: a spot gang of four made, a machine lost and
replaced, the gang shrunk and destroyed. Asserted on moto's own state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.support.terraform_plans import TAGS, variables
from tests.support.terraform_standin import Engine

GANG = [
    {
        "rank": r,
        "name": f"llama-{r}",
        "zone": "use1-az4",
        "instance_type": "p5.48xlarge",
        "market": "spot",
        "max_usd_per_hour": "31.5",
    }
    for r in range(4)
]
GIVEN = variables(GANG, region="us-east-1", fabric="efa", image="ami-12c6146b")


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def ec2(moto: str) -> Any:
    return boto3.client("ec2", "us-east-1", endpoint_url=moto, aws_access_key_id="x", aws_secret_access_key="x")


@pytest.fixture(scope="module")
def engine(moto: str, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}
    return Engine.beside(tmp_path_factory.mktemp("standin"), "requirements-aws.txt", AWS_ENDPOINT_URL=moto, **keys)


def _running(ec2: Any) -> dict[str, dict[str, Any]]:
    """The machines that run, by rank, as moto has them."""
    alive = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    found = [i for r in ec2.describe_instances(Filters=alive)["Reservations"] for i in r["Instances"]]
    ranks = {{t["Key"]: t["Value"] for t in i["Tags"]}["stepfare_rank"]: i for i in found}
    assert len(ranks) == len(found)
    return ranks


def _ids(ec2: Any) -> dict[str, str]:
    return {rank: machine["InstanceId"] for rank, machine in _running(ec2).items()}


def _outputs(engine: Engine, root: Path) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = json.loads(engine.must(root, "output", "-json").out)["nodes"]["value"]
    return nodes


def _apply(engine: Engine, root: Path) -> None:
    engine.must(root, "apply", "-auto-approve", "-input=false", "-no-color")


@pytest.mark.slow
def test_a_spot_gang_is_made_repaired_shrunk_and_destroyed(engine: Engine, ec2: Any, tmp_path: Path) -> None:
    before = (ec2.describe_vpcs()["Vpcs"], ec2.describe_subnets()["Subnets"])
    root = engine.root(tmp_path / "root", "aws", GIVEN)
    _apply(engine, root)

    machines = _running(ec2)
    assert sorted(machines) == ["0", "1", "2", "3"]
    subnets = {s["SubnetId"]: s["AvailabilityZoneId"] for s in ec2.describe_subnets()["Subnets"]}
    groups = ec2.describe_security_groups(GroupNames=["stepfare-a1"])["SecurityGroups"]
    assert len(groups) == 1
    for machine in machines.values():
        tags = {t["Key"]: t["Value"] for t in machine["Tags"]}
        assert TAGS.items() <= tags.items()
        assert (machine["InstanceType"], machine["InstanceLifecycle"]) == ("p5.48xlarge", "spot")
        assert machine["MetadataOptions"]["HttpTokens"] == "required"
        assert subnets[machine["SubnetId"]] == "use1-az4"
        assert [g["GroupId"] for g in machine["SecurityGroups"]] == [groups[0]["GroupId"]]
    volumes = ec2.describe_volumes()["Volumes"]
    assert len(volumes) == 4
    assert all(v["Encrypted"] and v["Size"] == 200 and v["VolumeType"] == "gp3" for v in volumes)
    assert all(TAGS.items() <= {t["Key"]: t["Value"] for t in v["Tags"]}.items() for v in volumes)

    (inward,) = groups[0]["IpPermissions"]
    assert [p["GroupId"] for p in inward["UserIdGroupPairs"]] == [groups[0]["GroupId"]]
    assert inward["IpRanges"] == []
    (template,) = ec2.describe_launch_templates()["LaunchTemplates"]
    versions = ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"])
    cards = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]["NetworkInterfaces"]
    assert [c["InterfaceType"] for c in cards] == ["efa", *["efa-only"] * 31]

    made = _ids(ec2)
    assert [n["id"] for n in _outputs(engine, root)] == [made[str(r)] for r in range(4)]
    assert engine.run(root, "plan", "-detailed-exitcode", "-input=false").code == 0

    ec2.terminate_instances(InstanceIds=[made["2"]])
    drifted = engine.run(root, "plan", "-detailed-exitcode", "-input=false", "-json")
    assert drifted.code == 2
    address = 'module.gang.aws_instance.node["2"]'
    drift = [m["change"] for m in drifted.messages() if m["type"] == "resource_drift"]
    assert [(d["resource"]["addr"], d["action"]) for d in drift] == [(address, "delete")]
    planned = [m["change"] for m in drifted.messages() if m["type"] == "planned_change"]
    assert [(p["resource"]["addr"], p["action"]) for p in planned] == [(address, "create")]
    _apply(engine, root)
    repaired = _ids(ec2)
    assert {r for r in made if made[r] != repaired[r]} == {"2"}

    (root / "terraform.tfvars.json").write_text(json.dumps({**GIVEN, "nodes": GANG[:2]}))
    _apply(engine, root)
    assert _ids(ec2) == {r: made[r] for r in ("0", "1")}
    assert [n["rank"] for n in _outputs(engine, root)] == [0, 1]

    engine.must(root, "destroy", "-auto-approve", "-input=false", "-no-color")
    assert _running(ec2) == {}
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert (ec2.describe_vpcs()["Vpcs"], ec2.describe_subnets()["Subnets"]) == before
    assert [g["GroupName"] for g in ec2.describe_security_groups()["SecurityGroups"]] == ["default"]
    assert engine.must(root, "state", "list").out == ""
