"""Gangs of two machine types in the clouds' modules: what a plan offers can be made, and what it does not cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pricing.machines import MIXABLE_FABRICS
from tests.support.terraform_plans import planned, variables
from tests.support.terraform_standin import Engine

# By cloud: a zone, and what its module is told beside the nodes.
PLACES: dict[str, tuple[str, dict[str, Any]]] = {
    "aws": ("use1-az4", {"region": "us-east-1"}),
    "gcp": ("us-central1-a", {"region": "us-central1"}),
    "azure": ("1", {"region": "eastus", "ssh_public_key": "ssh-rsa A"}),
}
TYPES = {
    ("aws", "efa"): ("p4d.24xlarge", "p4de.24xlarge"),
    ("aws", "ethernet"): ("g5.xlarge", "g5.2xlarge"),
    ("gcp", "ethernet"): ("a2-highgpu-8g", "a2-ultragpu-8g"),
    ("azure", "ethernet"): ("Standard_NC4as_T4_v3", "Standard_NC8as_T4_v3"),
}
MACHINES = {
    "aws": ("aws_instance", "instance_type"),
    "gcp": ("google_compute_instance", "machine_type"),
    "azure": ("azurerm_linux_virtual_machine", "size"),
}
REFUSED = {
    (
        "azure",
        "infiniband",
        "Standard_ND96asr_v4",
        "Standard_ND96amsr_A100_v4",
    ): "of one type, zone, market and ceiling",
    ("gcp", "gpudirect-tcpx", "a3-highgpu-8g", "a3-megagpu-8g"): "not all of one machine type",
}


def nodes(cloud: str, types: tuple[str, str]) -> list[dict[str, Any]]:
    """Three machines in one zone: one of the first type, two of the second."""
    zone = PLACES[cloud][0]
    kinds = (types[0], types[1], types[1])
    return [
        {"rank": rank, "name": f"n{rank}", "zone": zone, "instance_type": kind, "market": "on_demand"}
        for rank, kind in enumerate(kinds)
    ]


def root(engine: Engine, folder: Path, cloud: str, types: tuple[str, str], fabric: str) -> Path:
    """A folder that calls the cloud's module with these machines."""
    given = variables(nodes(cloud, types), fabric=fabric, **PLACES[cloud][1])
    return engine.root(folder, cloud, given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cloud", "fabric"),
    [
        kind if kind[0] == "gcp" or kind[1] == "efa" else pytest.param(*kind, marks=pytest.mark.slow)
        for kind in sorted(TYPES)
    ],
)
def test_a_mix_that_plans_offer_is_made_each_rank_of_its_type(
    engine: Engine, tmp_path: Path, cloud: str, fabric: str
) -> None:
    types = TYPES[cloud, fabric]
    kind, field = MACHINES[cloud]
    made = planned(engine, root(engine, tmp_path / "root", cloud, types, fabric))
    machines = {r["index"]: r["values"][field] for r in made if r["type"] == kind}
    assert machines == {"0": types[0], "1": types[1], "2": types[1]}


def test_every_fabric_that_plans_mix_over_is_tried() -> None:
    assert set(TYPES) == {(cloud, fabric) for cloud in PLACES for fabric in MIXABLE_FABRICS[cloud]}


@pytest.mark.parametrize(("cloud", "fabric", "one", "two"), sorted(REFUSED))
def test_a_mix_that_plans_never_offer_is_refused(
    engine: Engine, tmp_path: Path, cloud: str, fabric: str, one: str, two: str
) -> None:
    assert fabric not in MIXABLE_FABRICS[cloud]
    folder = root(engine, tmp_path / "root", cloud, (one, two), fabric)
    done = engine.run(folder, "plan", "-input=false", "-no-color")
    assert done.code == 1
    assert REFUSED[cloud, fabric, one, two] in " ".join((done.out + done.err).replace("│", " ").split())


@pytest.mark.slow
def test_each_type_has_its_own_network_cards(engine: Engine, tmp_path: Path) -> None:
    """Network cards differ by type: 32 of p5, 16 of p5en."""
    made = planned(engine, root(engine, tmp_path / "root", "aws", ("p5.48xlarge", "p5en.48xlarge"), "efa"))
    templates = [r["values"] for r in made if r["type"] == "aws_launch_template"]
    assert sorted(len(t["network_interfaces"]) for t in templates) == [16, 32]
    assert len([r for r in made if r["type"] == "aws_placement_group"]) == 1
