"""The Azure module under the schema of hashicorp/azurerm: `terraform test`, tags, planted mistakes, and the one
text of user data from which each machine of a scale set renders its own."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path

import jinja2
import pytest

from tests.support.terraform_plans import TAGS, errors, planned, suite, untagged, variables, with_mistake
from tests.support.terraform_standin import Engine

CONTAINER = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/blobServices/default/containers/c"
)
GANG = [
    {"rank": r, "name": f"n{r}", "zone": "1", "instance_type": "Standard_ND96isr_H100_v5", "market": "spot"}
    for r in range(12)
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine.beside(tmp_path_factory.mktemp("standin"))


def test_suite_passes(engine: Engine, tmp_path: Path) -> None:
    outcomes = suite(engine, tmp_path / "azure", "azure")
    assert set(outcomes.values()) == {"pass"}, outcomes
    assert len(outcomes) == 14


def test_everything_that_can_be_tagged_is(engine: Engine, tmp_path: Path) -> None:
    given = variables(GANG[:2], region="eastus", ssh_public_key="ssh-rsa A", checkpoint_bucket=CONTAINER)
    resources = planned(engine, engine.root(tmp_path / "root", "azure", given))
    assert untagged(resources, "tags", TAGS) == []
    assert sum("tags" in r["values"] for r in resources) >= 8


def test_each_machine_of_a_set_renders_the_text_of_its_rank(engine: Engine, tmp_path: Path) -> None:
    texts = {str(r): f"#cloud-config\nruncmd:\n  - echo {r} '{{{{ not ours }}}}' {{% nor this %}}\n" for r in range(12)}
    given = {**variables(GANG, region="eastus", fabric="infiniband", ssh_public_key="ssh-rsa A"), "user_data": texts}
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


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("machines.tf", "max_bid_price ", "max_price ", '"max_price" is not expected here'),
        pytest.param(
            "machines.tf",
            "disk_size_gb",
            "disk_size_gib",
            '"disk_size_gib" is not expected here',
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "scale_set.tf",
            "  ip_configuration {",
            "  ip_config {",
            '"ip_config" are not expected here',
            marks=pytest.mark.slow,
        ),
        ("network.tf", "azurerm_nat_gateway.out[0].id", "azurerm_nat_gateway.out[0].ident", 'named "ident"'),
    ],
)
def test_a_planted_mistake_is_caught(engine: Engine, tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    done = with_mistake(engine, tmp_path / "azure", "azure", file, old, new)
    assert done.code == 1
    assert any(said in e for e in errors(done)), errors(done)
