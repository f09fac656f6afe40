"""The custom roles for Google Cloud and Azure grant what their modules and a sweep need, and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from providers.azure import inventory
from tests.support.gcp_estate import calls_of
from tests.support.provisioner_needs import AZURE, AZURE_PROVIDER, GCP
from tests.support.repository import ROOT

AZURE_ROLE: dict[str, Any] = json.loads((ROOT / "providers/azure/provisioner.json").read_text(encoding="utf-8"))
GCP_ROLE: dict[str, Any] = yaml.safe_load((ROOT / "providers/gcp/provisioner.yaml").read_text(encoding="utf-8"))
AZURE_SWEEP = {
    inventory.READ_GROUPS,
    inventory.DELETE_GROUP,
    inventory.READ_MACHINES,
    inventory.DELETE_MACHINE,
    inventory.READ_SETS,
    inventory.READ_MEMBERS,
    inventory.DELETE_MEMBER,
}


def in_module(cloud: str) -> set[str]:
    """Resource types of a module; data sources with their word."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / f"terraform/modules/{cloud}").glob("*.tf"))
    found = re.findall(r'^(resource|data) "(\w+)"', text, flags=re.MULTILINE)
    return {name if kind == "resource" else f"data {name}" for kind, name in found}


def test_every_resource_of_the_modules_is_in_the_tables() -> None:
    assert in_module("gcp") == set(GCP)
    assert in_module("azure") == set(AZURE)


def test_google_cloud_grants_exactly_what_is_needed() -> None:
    asked = {call.permission for call in calls_of("provisioner.yaml")}
    needed = {one for wanted in GCP.values() for one in wanted} | asked
    granted = set(GCP_ROLE["includedPermissions"])
    assert needed - granted == set()
    assert granted - needed == set()


def test_azure_grants_exactly_what_is_needed() -> None:
    needed = {one for wanted in AZURE.values() for one in wanted} | AZURE_PROVIDER | AZURE_SWEEP
    granted = set(AZURE_ROLE["Actions"])
    assert needed - granted == set()
    assert granted - needed == set()


def test_the_roles_are_of_the_form_that_the_clouds_take() -> None:
    assert set(GCP_ROLE) == {"title", "description", "stage", "includedPermissions"}
    assert len(GCP_ROLE["title"]) <= 100
    assert len(GCP_ROLE["description"]) <= 256
    assert set(AZURE_ROLE) == {
        "Name",
        "IsCustom",
        "Description",
        "Actions",
        "NotActions",
        "DataActions",
        "NotDataActions",
        "AssignableScopes",
    }
    assert AZURE_ROLE["IsCustom"] is True
    assert AZURE_ROLE["DataActions"] == AZURE_ROLE["NotActions"] == AZURE_ROLE["NotDataActions"] == []


@pytest.mark.parametrize(
    ("granted", "form"),
    [
        (GCP_ROLE["includedPermissions"], r"[a-z]+\.[a-zA-Z]+\.[a-zA-Z]+"),
        (AZURE_ROLE["Actions"], r"Microsoft\.\w+(/\w+)+/(read|write|delete|action)"),
    ],
)
def test_permissions_are_whole_words_once_each_and_in_order(granted: list[str], form: str) -> None:
    assert granted == sorted(set(granted))
    assert [one for one in granted if not re.fullmatch(form, one)] == []


def test_the_readers_of_prices_may_end_nothing() -> None:
    """The other file of each cloud is for whoever only plans."""
    reader = yaml.safe_load((ROOT / "providers/gcp/role.yaml").read_text(encoding="utf-8"))["includedPermissions"]
    assert not [one for one in reader if one.endswith((".create", ".delete"))]
    actions = json.loads((ROOT / "providers/azure/role.json").read_text(encoding="utf-8"))["Actions"]
    assert not [one for one in actions if not one.endswith("/read")]
