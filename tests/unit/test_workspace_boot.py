"""What user data a module takes, and which machines are processes of this one."""

from __future__ import annotations

import re

import pytest

from pricing.places import PROVISIONABLE_CLOUDS
from router.agent.config import metadata_module
from terraform.module_metadata import BootMethod, module_facts
from terraform.workdir import MODULES


def test_every_cloud_with_a_module_says_how_it_boots() -> None:
    assert {folder.name for folder in MODULES.iterdir()} == PROVISIONABLE_CLOUDS
    scripts = {cloud for cloud in PROVISIONABLE_CLOUDS if module_facts(cloud).boot is BootMethod.SCRIPT}
    assert scripts == {"sandbox", "static"}
    # What runs scripts has a script that starts them.
    assert scripts == {path.parent.name for path in MODULES.glob("*/start.sh")}


def test_a_cloud_without_a_module_boots_nothing() -> None:
    with pytest.raises(ValueError, match=r"no machines can be made on 'lambda'; only on aws, .*static"):
        module_facts("lambda")


def test_local_machines_are_the_sandbox_alone() -> None:
    assert [cloud for cloud in sorted(PROVISIONABLE_CLOUDS) if module_facts(cloud).local] == ["sandbox"]


def test_who_tells_a_machine_of_its_end() -> None:
    services = {cloud: module_facts(cloud).metadata for cloud in PROVISIONABLE_CLOUDS}
    assert services == {"aws": "aws", "azure": "azure", "gcp": "gcp", "sandbox": "files", "static": "none"}
    # The agent knows each of them.
    assert all(service == "none" or metadata_module(service) for service in services.values())


def test_what_a_workspace_has_to_name() -> None:
    assert [cloud for cloud in sorted(PROVISIONABLE_CLOUDS) if module_facts(cloud).zones_named] == ["gcp"]
    # Only the module that has no machines of its own declares them.
    declared = {path.parent.name for path in MODULES.glob("*/*.tf") if 'variable "hosts"' in path.read_text()}
    assert {cloud for cloud in PROVISIONABLE_CLOUDS if module_facts(cloud).hosts_named} == declared


@pytest.mark.parametrize("cloud", sorted(PROVISIONABLE_CLOUDS))
def test_every_module_has_the_resource_that_is_a_machine_for_each_rank(cloud: str) -> None:
    kind, name = module_facts(cloud).machine.split(".")
    text = "\n".join(path.read_text() for path in (MODULES / cloud).glob("*.tf"))
    block = re.search(rf'^resource "{kind}" "{name}" \{{\n(.*?)^\}}', text, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert re.search(r"^  for_each\s+= ", block[1], re.MULTILINE)
