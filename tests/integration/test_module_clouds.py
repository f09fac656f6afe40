"""Each cloud's module under its provider's schema: `terraform test`, tags, planted mistakes; the EFA table, and the one
text of user data from which each machine of a scale set renders its own."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path
from typing import Any

import boto3
import jinja2
import pytest
from moto import mock_aws

from tests.support.terraform_plans import TAGS, errors, planned, suite, untagged, variables, with_mistake
from tests.support.terraform_standin import MODULES, Engine

CONTAINER = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/blobServices/default/containers/c"
)


def gang(zone: str, instance_type: str, machines: int = 2) -> list[dict[str, Any]]:
    return [
        {"rank": r, "name": f"llama-{r}", "zone": zone, "instance_type": instance_type, "market": "spot"}
        for r in range(machines)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cloud", "runs"), [pytest.param("aws", 16, marks=pytest.mark.slow), ("azure", 14), ("gcp", 10)]
)
def test_suite_passes(engine: Engine, tmp_path: Path, cloud: str, runs: int) -> None:
    outcomes = suite(engine, tmp_path / cloud, cloud)
    assert set(outcomes.values()) == {"pass"}, outcomes
    assert len(outcomes) == runs


@pytest.mark.slow
def test_everything_on_aws_that_can_be_tagged_is(engine: Engine, tmp_path: Path) -> None:
    more = {"fabric": "efa", "checkpoint_bucket": "b", "ssh_public_key": "ssh-ed25519 A"}
    given = variables(gang("use1-az4", "p5.48xlarge"), region="us-east-1", **more)
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


@pytest.mark.slow
def test_everything_on_azure_that_can_be_tagged_is(engine: Engine, tmp_path: Path) -> None:
    given = variables(
        gang("1", "Standard_ND96isr_H100_v5"), region="eastus", ssh_public_key="ssh-rsa A", checkpoint_bucket=CONTAINER
    )
    resources = planned(engine, engine.root(tmp_path / "root", "azure", given))
    assert untagged(resources, "tags", TAGS) == []
    assert sum("tags" in r["values"] for r in resources) >= 8


@pytest.mark.slow
def test_each_machine_of_a_set_renders_the_text_of_its_rank(engine: Engine, tmp_path: Path) -> None:
    texts = {str(r): f"#cloud-config\nruncmd:\n  - echo {r} '{{{{ not ours }}}}' {{% nor this %}}\n" for r in range(12)}
    given = {
        **variables(
            gang("1", "Standard_ND96isr_H100_v5", 12), region="eastus", fabric="infiniband", ssh_public_key="ssh-rsa A"
        ),
        "user_data": texts,
    }
    resources = planned(engine, engine.root(tmp_path / "root", "azure", given))
    assert untagged(resources, "tags", TAGS) == []
    (fleet,) = (r["values"] for r in resources if r["type"] == "azurerm_linux_virtual_machine_scale_set")
    first, _, template = gzip.decompress(base64.b64decode(fleet["custom_data"])).decode().partition("\n")
    assert first == "## template: jinja"
    for rank in range(12):
        metadata = {"imds": {"compute": {"name": f"stepfare-a1_{rank}"}}}
        # Rendered as cloud-init renders it.
        text = jinja2.Template(template, trim_blocks=True, undefined=jinja2.StrictUndefined).render(
            ds={"meta_data": metadata}
        )
        assert [line for line in text.splitlines() if line] == texts[str(rank)].splitlines()


@pytest.mark.slow
def test_everything_on_google_is_labelled_or_named_after_the_attempt(engine: Engine, tmp_path: Path) -> None:
    given = variables(
        gang("us-central1-a", "a3-megagpu-8g"), region="us-central1", fabric="gpudirect-tcpxo", checkpoint_bucket="b"
    )
    resources = planned(engine, engine.root(tmp_path / "root", "gcp", given))
    assert untagged(resources, "labels", TAGS) == []
    machines = [r["values"] for r in resources if r["type"] == "google_compute_instance"]
    assert len(machines) == 2
    assert all(TAGS.items() <= m["boot_disk"][0]["initialize_params"][0]["labels"].items() for m in machines)

    # What carries no labels has the attempt in its name.
    unnamed = ("google_service_account", "google_storage_bucket_iam_member")
    named = [(r["type"], r["values"]) for r in resources if r["type"] not in unnamed]
    assert all(v["name"].startswith("stepfare-a1") and len(v["name"]) <= 63 for _, v in named)
    (account,) = (r["values"] for r in resources if r["type"] == "google_service_account")
    assert account["display_name"] == "stepfare-a1"


MISTAKES = [
    ("aws", "machines.tf", "  instance_type = each", "  instance_typo = each", '"instance_typo" is not expected here'),
    ("aws", "network.tf", "  cidr_block              = cidr", '  cidr_block = ["10.0.0.0/8"] # ', "string required"),
    ("azure", "machines.tf", "max_bid_price ", "max_price ", '"max_price" is not expected here'),
    ("azure", "network.tf", "azurerm_nat_gateway.out[0].id", "azurerm_nat_gateway.out[0].ident", 'named "ident"'),
    ("gcp", "machines.tf", "  machine_type = each", "  machine_kind = each", '"machine_kind" is not expected here'),
    ("gcp", "fabric.tf", "group_placement_policy", "group_placement", '"group_placement" are not expected here'),
]
FURTHER_MISTAKES = [
    ("aws", "machines.tf", "http_tokens ", "http_token ", '"http_token" is not expected here'),
    ("aws", "machines.tf", "spot_options", "spot_option", '"spot_option" are not expected here'),
    ("azure", "machines.tf", "disk_size_gb", "disk_size_gib", '"disk_size_gib" is not expected here'),
    ("azure", "scale_set.tf", "  ip_configuration {", "  ip_config {", '"ip_config" are not expected here'),
    ("gcp", "machines.tf", "provisioning_model", "provisioning_mode", '"provisioning_mode" is not expected here'),
    ("gcp", "machines.tf", "  scheduling {", "  schedule {", '"schedule" are not expected here'),
]


@pytest.mark.parametrize(
    ("cloud", "file", "old", "new", "said"),
    [*MISTAKES, *(pytest.param(*mistake, marks=pytest.mark.slow) for mistake in FURTHER_MISTAKES)],
)
def test_a_planted_mistake_is_caught(
    engine: Engine, tmp_path: Path, cloud: str, file: str, old: str, new: str, said: str
) -> None:
    done = with_mistake(engine, tmp_path / cloud, cloud, file, old, new)
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
