"""Names of shared networks, their workspaces, and what their Terraform puts out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.controller.plans import Order
from router.controller.workspace.workspaces import attempt_name, build_network, is_network_name, network_name
from router.deploy.deploy_settings import Deploy
from terraform.render import MAIN, VALUES, parse_network, render
from terraform.spec import WorkspaceSpec
from tests.support.gangs import examples
from tests.support.scenes import NOW

STATE = "s0123456789"
CLOUDS = ("aws", "azure", "gcp")
JOBS = st.text("abz-09", min_size=1, max_size=40).map(lambda text: f"net-{text}")


@pytest.mark.parametrize("region", ["us-east-1", "northamerica-northeast1", "southafricanorth", "r" * 40])
def test_a_name_is_of_state_cloud_and_region_and_fits_every_cloud(region: str) -> None:
    names = {network_name(state, cloud, region) for state in (STATE, "s1123456789") for cloud in CLOUDS}
    assert len(names) == 6
    assert all(is_network_name(name) and len(name) <= 40 for name in names)
    for cloud in CLOUDS:
        spec = build_network(cloud, region, ("",), "none", Deploy(), STATE)
        assert spec.attempt == network_name(STATE, cloud, region)
        assert spec.tags["stepfare_attempt"] == spec.attempt


@given(JOBS)
def test_no_attempt_is_taken_for_a_network(job: str) -> None:
    assert not is_network_name(attempt_name(STATE, "p" * 64, Order(job, f"{job}/1", NOW, NOW, ()), 1))


def test_its_workspace_has_zones_and_no_machines() -> None:
    deploy = Deploy.model_validate({"tags": {"Owner": "Ops"}, "team_tags": {"a": {"code": "1"}}})
    files = render(build_network("aws", "us-east-1", ("use1-az6", "use1-az4"), "efa", deploy, STATE))
    values = json.loads(files[VALUES])
    assert (values["shared_zones"], values["nodes"], values["fabric"]) == (["use1-az6", "use1-az4"], [], "efa")
    assert values["tags"]["Owner"] == "Ops"
    assert "code" not in values["tags"]
    assert list(json.loads(files[MAIN])["output"]) == ["network"]


@pytest.mark.parametrize("cloud", ["sandbox", "static"])
def test_where_machines_are_there_already_no_network_is_shared(cloud: str) -> None:
    with pytest.raises(ValueError, match="none can be made"):
        build_network(cloud, "r", ("",), "none", Deploy(), STATE)


def test_a_network_has_no_machines_and_a_gang_no_zones_to_share() -> None:
    gang = examples()["aws"]
    with pytest.raises(ValueError, match="or it has nodes"):
        WorkspaceSpec("a", "aws", "us-east-1", gang.nodes, shared_zones=("",))


def test_what_terraform_puts_out_is_read_or_refused() -> None:
    found = {"network_id": "vpc-1", "subnet_ids": {"": "s-1"}, "private_subnet_ids": {}, "zones": [""]}
    network = parse_network({"network": json.dumps(found)})
    assert network is not None
    assert (network.network_id, network.subnet_ids, network.zones) == ("vpc-1", {"": "s-1"}, ("",))
    assert parse_network({}) is None
    for text in ("{}", "null", json.dumps({**found, "subnet_ids": []}), "nonsense"):
        with pytest.raises(ValueError, match="not what was agreed"):
            parse_network({"network": text})
