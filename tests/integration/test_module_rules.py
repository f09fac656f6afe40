"""Golden workspaces, validated and planned under the providers' schemas, break none of the providers' other rules."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pricing.places import Market
from router.controller.workspace.workspaces import build_network
from router.deploy.deploy_settings import Deploy
from terraform.module_metadata import module_facts
from terraform.render import render
from terraform.spec import Backend, NodeSpec, WorkspaceSpec
from tests.support.gangs import examples
from tests.support.provider_rules import RULES, SOURCES, broken
from tests.support.terraform_standin import MODULES, PROVIDERS, Engine, schema


def _plan(engine: Engine, folder: Path, spec: WorkspaceSpec) -> dict[str, Any]:
    """Validate and plan a workspace as it is rendered, its state beside it."""
    folder.mkdir()
    shutil.copytree(MODULES / spec.cloud, folder / "module")
    for name, text in render(replace(spec, backend=Backend())).items():
        (folder / name).write_text(text, encoding="utf-8")
    engine.must(folder, "init", "-input=false", "-no-color")
    engine.must(folder, "validate", "-no-color")
    engine.must(folder, "plan", "-input=false", "-no-color", "-out=plan.bin")
    plan: dict[str, Any] = json.loads(engine.must(folder, "show", "-json", "plan.bin").out)
    return plan


def _other(cloud: str) -> WorkspaceSpec:
    """The golden workspace's opposite: another market, no fabric, no image, a network of its own."""
    spec = examples()[cloud]
    market = Market.SPOT if spec.nodes[0].market is not Market.SPOT else Market.ON_DEMAND
    type_ = {"aws": "g6.xlarge", "gcp": "g2-standard-8", "azure": "Standard_NC4as_T4_v3"}[cloud]
    nodes = tuple(NodeSpec(node.rank, node.name, node.zone, type_, market) for node in spec.nodes)
    plain = WorkspaceSpec(spec.attempt, cloud, spec.region, nodes, spec.tags, ssh_public_key=spec.ssh_public_key)
    return replace(plain, user_data=spec.user_data, checkpoint_bucket=spec.checkpoint_bucket)


@pytest.mark.slow
@pytest.mark.parametrize("cloud", sorted(PROVIDERS))
def test_the_golden_workspace_breaks_no_rule(engine: Engine, tmp_path: Path, cloud: str) -> None:
    plan = _plan(engine, tmp_path / "root", examples()[cloud])
    assert len(plan["resource_changes"]) > 5
    assert broken(plan) == []


@pytest.mark.slow
@pytest.mark.parametrize("cloud", sorted(PROVIDERS))
def test_nor_does_its_opposite(engine: Engine, tmp_path: Path, cloud: str) -> None:
    assert broken(_plan(engine, tmp_path / "root", _other(cloud))) == []


@pytest.mark.slow
@pytest.mark.parametrize("cloud", sorted(PROVIDERS))
def test_nor_does_a_network_that_gangs_share(engine: Engine, tmp_path: Path, cloud: str) -> None:
    fabric = ("none", *module_facts(cloud).nat_fabrics)[-1]
    spec = build_network(cloud, examples()[cloud].region, ("use1-az4", ""), fabric, Deploy(), "s0123456789")
    plan = _plan(engine, tmp_path / "root", spec)
    assert len(plan["resource_changes"]) >= 4
    assert broken(plan) == []


def test_the_rules_are_of_resources_and_fields_that_there_are() -> None:
    known = {kind: block for name in PROVIDERS.values() for kind, block in schema(name)["resource_schemas"].items()}
    for kind, rules in RULES.items():
        assert kind.partition("_")[0] in SOURCES
        groups = [*rules.one_of, *rules.conflicts, *((when, path) for when, _, path, _ in rules.implied)]
        for path in {*rules.values, *(path for group in groups for path in group)}:
            block = known[kind]
            *outer, last = path.split(".")
            for name in outer:
                block = block["block_types"][name]["block"]
            assert last in block["attributes"] or last in block["block_types"], (kind, path)


def _changed(kind: str, after: dict[str, Any], unknown: dict[str, Any] | None = None) -> list[str]:
    change = {"after": after, "after_unknown": unknown or {}}
    return broken(
        {"resource_changes": [{"address": "x", "mode": "managed", "type": kind, "name": "x", "change": change}]}
    )


def test_each_kind_of_rule_is_seen_to_be_broken() -> None:
    rule = {"access": "Allow", "direction": "Inbound", "priority": 100, "protocol": "*"}
    ends = {"source_address_prefix": "*", "destination_address_prefix": "*"}
    assert _changed("azurerm_network_security_rule", {**rule, **ends}) == []
    assert _changed("azurerm_network_security_rule", {**rule, **ends, "priority": 99}) == ["x: priority is 99"]
    assert (
        "exactly one of source"
        in _changed("azurerm_network_security_rule", {**rule, "destination_address_prefix": "*"})[0]
    )
    # Given, and known after apply.
    groups = {"source_application_security_group_ids": True}
    assert "exactly one of source" in _changed("azurerm_network_security_rule", {**rule, **ends}, groups)[0]
    ports = {"source_port_range": "*", "source_port_ranges": ["1"]}
    assert _changed("azurerm_network_security_rule", {**rule, **ends, **ports}) == [
        "x: source_port_range excludes source_port_ranges"
    ]
    address = {"allocation_method": "Dynamic", "sku": "Standard"}
    assert "needs another allocation_method" in _changed("azurerm_public_ip", address)[0]
    cards = {"network_interface": [{"nic_type": "GVNIC"}, {"nic_type": "GVNIC2"}]}
    assert _changed("google_compute_instance", cards) == ["x: network_interface.nic_type is 'GVNIC2'"]
    assert _changed("azurerm_virtual_network", {"address_space": []}, {"address_space": True}) == []
