"""The AWS module under the schema of hashicorp/aws: `terraform test`, tags, planted mistakes, the EFA table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tests.support.terraform_plans import TAGS, errors, planned, suite, untagged, variables, with_mistake
from tests.support.terraform_standin import MODULES, Engine

GANG = [
    {"rank": r, "name": f"llama-{r}", "zone": "use1-az4", "instance_type": "p5.48xlarge", "market": "spot"}
    for r in range(2)
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine.beside(tmp_path_factory.mktemp("standin"))


@pytest.mark.slow
def test_suite_passes(engine: Engine, tmp_path: Path) -> None:
    outcomes = suite(engine, tmp_path / "aws", "aws")
    assert set(outcomes.values()) == {"pass"}, outcomes
    assert len(outcomes) == 16


def test_everything_that_can_be_tagged_is(engine: Engine, tmp_path: Path) -> None:
    more = {"fabric": "efa", "checkpoint_bucket": "b", "ssh_public_key": "ssh-ed25519 A"}
    given = variables(GANG, region="us-east-1", **more)
    # The attempt is on everything whatever the tags are.
    given["tags"] = {k: v for k, v in TAGS.items() if k != "stepfare_attempt"}
    resources = planned(engine, engine.root(tmp_path / "root", "aws", given))
    assert untagged(resources, "tags", TAGS) == []
    assert sum("tags" in r["values"] for r in resources) >= 18
    (shape,) = (r for r in resources if r["type"] == "aws_launch_template")
    assert all(TAGS.items() <= s["tags"].items() for s in shape["values"]["tag_specifications"])
    machines = [r for r in resources if r["type"] == "aws_instance"]
    assert all(TAGS.items() <= m["values"]["root_block_device"][0]["tags"].items() for m in machines)
    assert {m["values"]["region"] for m in machines} == {"us-east-1"}


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("machines.tf", "  instance_type = each", "  instance_typo = each", '"instance_typo" is not expected here'),
        pytest.param(
            "machines.tf", "http_tokens ", "http_token ", '"http_token" is not expected here', marks=pytest.mark.slow
        ),
        pytest.param(
            "machines.tf", "spot_options", "spot_option", '"spot_option" are not expected here', marks=pytest.mark.slow
        ),
        ("network.tf", "  cidr_block              = cidr", '  cidr_block = ["10.0.0.0/8"] # ', "string required"),
    ],
)
def test_a_planted_mistake_is_caught(engine: Engine, tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    done = with_mistake(engine, tmp_path / "aws", "aws", file, old, new)
    assert done.code == 1
    assert any(said in e for e in errors(done)), errors(done)


def _types_with_efa() -> dict[str, list[dict[str, Any]]]:
    """Network cards of the GPU and Trainium types with EFA, as moto has them from EC2."""
    with mock_aws():
        client = boto3.client("ec2", "us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
        pages = client.get_paginator("describe_instance_types").paginate()
        return {
            t["InstanceType"]: t["NetworkInfo"]["NetworkCards"]
            for page in pages
            for t in page["InstanceTypes"]
            if t["NetworkInfo"].get("EfaSupported") and (t.get("GpuInfo") or t["InstanceType"].startswith("trn"))
        }


@pytest.mark.slow
def test_the_table_of_network_cards_is_what_ec2_says() -> None:
    text = (MODULES / "aws" / "fabric.tf").read_text()
    table = {name: int(cards) for name, cards in re.findall(r'"([\w.-]+)"\s*= (\d+)', text)}
    plain = set(re.findall(r'"([\w.-]+)"', text.split("plain_first_card = ")[1].splitlines()[0]))
    real = _types_with_efa()
    assert table == {name: len(cards) for name, cards in real.items()}
    assert plain == {name for name, cards in real.items() if "efa" not in cards[0]["InterfaceTypes"]}
    assert all("efa-only" in c["InterfaceTypes"] for cards in real.values() for c in cards[1:])
