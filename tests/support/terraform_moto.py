"""A moto server that plays EC2, the AWS module applied to it by the Runner through the stand-in provider, and what is
there afterwards by moto's own account."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

from pricing.money import UsdPerHour
from pricing.places import Market
from terraform.process import StopTimeouts
from terraform.runner import CommandLimits, Runner
from terraform.spec import NodeSpec, WorkspaceSpec
from terraform.workdir import PluginSources, prepare
from tests.support.gangs import TAGS
from tests.support.repository import ROOT
from tests.support.terraform_runs import embedded
from tests.support.terraform_standin import mirror, standin_python

REGION = "us-east-1"
# moto knows it; the module's own choice is a parameter of SSM, which the stand-in does not find.
IMAGE = "ami-12c6146b"
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}
LIMITS = CommandLimits(120, 120, 120, 120, 60, StopTimeouts(20, 5))


def gang(
    attempt: str, count: int = 4, market: Market = Market.SPOT, machine: str = "p5.48xlarge", fabric: str = "efa"
) -> WorkspaceSpec:
    ceiling = UsdPerHour.parse("31.5") if market is Market.SPOT else None
    nodes = tuple(
        NodeSpec(rank, f"{attempt}-{rank}", "use1-az4", machine, market, max_usd_per_hour=ceiling)
        for rank in range(count)
    )
    texts = {rank: f"#cloud-config\n# rank {rank}\n" for rank in range(count)}
    tags = {**TAGS, "stepfare_attempt": attempt}
    return WorkspaceSpec(attempt, "aws", REGION, nodes, tags, image=IMAGE, fabric=fabric, user_data=texts)


@dataclass(frozen=True)
class Cloud:
    """One moto server, and run directories that lead to it."""

    url: str
    plugins: PluginSources
    environment: dict[str, str]
    ec2: Any = field(repr=False)

    def runner(self, faults: Path | None = None, **environment: str) -> Runner:
        """One whose stand-in provider does what the file `faults` orders."""
        orders = {} if faults is None else {"STEPFARE_STANDIN_FAULTS": str(faults)}
        return Runner(embedded(), {**self.environment, **orders, **environment}, LIMITS)

    def prepare(self, directory: Path, spec: WorkspaceSpec) -> None:
        prepare(directory, spec, plugins=self.plugins)

    def machines(self, attempt: str) -> dict[str, dict[str, Any]]:
        """Those of an attempt that are pending or running, by rank."""
        alive = {"Name": "instance-state-name", "Values": ["pending", "running"]}
        ours = {"Name": "tag:stepfare_attempt", "Values": [attempt]}
        pages = self.ec2.describe_instances(Filters=[alive, ours])["Reservations"]
        found = [instance for page in pages for instance in page["Instances"]]
        ranks = {{t["Key"]: t["Value"] for t in i["Tags"]}["stepfare_rank"]: i for i in found}
        assert len(ranks) == len(found), "more than one machine of a rank"
        return ranks

    def ids(self, attempt: str) -> dict[str, str]:
        return {rank: machine["InstanceId"] for rank, machine in self.machines(attempt).items()}

    def inventory(self) -> dict[str, set[str]]:
        """The ids of everything that costs money or stands in somebody's way."""
        ec2 = self.ec2
        alive = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
        pages = ec2.describe_instances(Filters=alive)["Reservations"]
        return {
            "instances": {i["InstanceId"] for page in pages for i in page["Instances"]},
            "volumes": {v["VolumeId"] for v in ec2.describe_volumes()["Volumes"]},
            "templates": {t["LaunchTemplateId"] for t in ec2.describe_launch_templates()["LaunchTemplates"]},
            "groups": {g["GroupId"] for g in ec2.describe_security_groups()["SecurityGroups"]},
            "subnets": {s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]},
            "networks": {v["VpcId"] for v in ec2.describe_vpcs()["Vpcs"]},
        }


@contextmanager
def cloud(folder: Path) -> Iterator[Cloud]:
    """A server for as long as the block lasts; the provider mirror lies below `folder`."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        mirror(folder, standin_python("requirements-aws.txt"))
        environment = {"PATH": os.environ["PATH"], "AWS_ENDPOINT_URL": url, "PYTHONPATH": str(ROOT), **KEYS}
        ec2 = boto3.client("ec2", REGION, endpoint_url=url, aws_access_key_id="x", aws_secret_access_key="x")
        yield Cloud(url, PluginSources(mirror=folder / "mirror"), environment, ec2)
    finally:
        server.stop()


def faults(file: Path, **orders: object) -> Path:
    """Writes the orders of standin/faults.py; the file."""
    file.write_text(json.dumps(orders))
    return file


def calls(file: Path, name: str) -> list[str]:
    """What the calls of that name were answered with, "-" for a real answer, in order."""
    lines = Path(f"{file}.calls").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[0] == name]
