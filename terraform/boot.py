"""What the modules take and where their machines are, so that nobody else needs to know clouds by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from pricing.places import PROVISIONABLE_CLOUDS

T = TypeVar("T")


class Boot(StrEnum):
    """What a module does with user data: a machine's first boot reads it as cloud-init does (``#cloud-config``), or it
    is run as it is when it begins with ``#!``, otherwise by sh."""

    CLOUD_INIT = "cloud_init"
    SCRIPT = "script"


_BOOTS: Final[Mapping[str, Boot]] = {
    "aws": Boot.CLOUD_INIT,
    "azure": Boot.CLOUD_INIT,
    "gcp": Boot.CLOUD_INIT,
    "sandbox": Boot.SCRIPT,
    "static": Boot.SCRIPT,
}
# The one that is the machine itself; its keys are ranks.
_MACHINES: Final[Mapping[str, str]] = {
    "aws": "aws_instance.node",
    "azure": "azurerm_linux_virtual_machine.node",
    "gcp": "google_compute_instance.node",
    "sandbox": "terraform_data.process",
    "static": "terraform_data.process",
}
_LOCAL: Final = frozenset({"sandbox"})
_ZONES_NAMED: Final = frozenset({"gcp"})
_HOSTS_NAMED: Final = frozenset({"static"})


def boot_of(cloud: str) -> Boot:
    """What the module for ``cloud`` takes as user data. ValueError for a cloud without a module."""
    return _known(_BOOTS, cloud)


def machine_resource(cloud: str) -> str:
    """The resource of the module for ``cloud`` that is a machine, by rank, as Terraform addresses it. A scale set, many
    machines at once, is none. ValueError for a cloud without a module."""
    return _known(_MACHINES, cloud)


def is_local(cloud: str) -> bool:
    """Whether the machines are processes of this machine, which reach it as 127.0.0.1 and end with it."""
    return cloud in _LOCAL


def needs_zones(cloud: str) -> bool:
    """Whether every node has to name its zone: the cloud does not pick one."""
    return cloud in _ZONES_NAMED


def needs_hosts(cloud: str) -> bool:
    """Whether the machines are there already, so that a workspace has to name them."""
    return cloud in _HOSTS_NAMED


def _known(by_cloud: Mapping[str, T], cloud: str) -> T:
    try:
        return by_cloud[cloud]
    except KeyError:
        known = ", ".join(sorted(PROVISIONABLE_CLOUDS))
        raise ValueError(f"no machines can be made on {cloud!r}; only on {known}") from None
