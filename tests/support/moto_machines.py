"""Machines for a moto server: what runs on an instance while moto says that it runs."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import boto3

from tests.support.played_machines import Look, Machines, played


def instances(url: str, regions: Sequence[str]) -> Look:
    """Looks at every instance that carries our tag, in these regions."""
    clients = [
        boto3.client("ec2", region, endpoint_url=url, aws_access_key_id="x", aws_secret_access_key="x")
        for region in regions
    ]

    def look() -> Mapping[str, Callable[[], str]]:
        alive: dict[str, Callable[[], str]] = {}
        for ec2 in clients:
            ours = [
                {"Name": "tag-key", "Values": ["stepfare_attempt"]},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ]
            for page in ec2.describe_instances(Filters=ours)["Reservations"]:
                for instance in page["Instances"]:
                    alive[instance["InstanceId"]] = partial(_user_data, ec2, instance["InstanceId"])
        return alive

    return look


def _user_data(ec2: Any, name: str) -> str:
    asked = ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
    return gzip.decompress(base64.b64decode(base64.b64decode(asked["UserData"]["Value"]))).decode()


@contextmanager
def machines(
    url: str, regions: Sequence[str], folder: Path, sick: frozenset[int] = frozenset(), gpus: Sequence[str] = ()
) -> Iterator[Machines]:
    """Plays them while the block runs."""
    with played(Machines(instances(url, regions), folder, sick, gpus)) as found:
        yield found
