"""Facts of the Terraform modules (the module.json of each), so that no other code needs to know clouds by name."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pricing.places import PROVISIONABLE_CLOUDS

_MODULES: Final = Path(__file__).with_name("modules")


class BootMethod(StrEnum):
    """The way a module uses user data.

    A machine's first boot reads it as cloud-init does (``#cloud-config``), or it is run as it is when it begins with
    ``#!``, otherwise by sh.
    """

    CLOUD_INIT = "cloud_init"
    SCRIPT = "script"


def find_boot_method(cloud: str) -> BootMethod:
    """Return the form of user data that the module for ``cloud`` takes.

    ValueError for a cloud without a module, here and in the functions below.
    """
    return BootMethod(_facts(cloud)["boot"])


def machine_resource(cloud: str) -> str:
    """Return the resource of the module that is a machine, by rank, as Terraform addresses it.

    A scale set, which is many machines at once, does not count.
    """
    return str(_facts(cloud)["machine"])


def is_local(cloud: str) -> bool:
    """Return whether the machines are processes of this machine, which reach it as 127.0.0.1 and end with it."""
    return bool(_facts(cloud).get("local", False))


def needs_zones(cloud: str) -> bool:
    """Return whether every node has to name its zone, because the cloud does not pick one."""
    return bool(_facts(cloud).get("zones_named", False))


def needs_hosts(cloud: str) -> bool:
    """Return whether the machines exist already, so that a workspace has to name them."""
    return bool(_facts(cloud).get("hosts_named", False))


def needs_key(cloud: str) -> bool:
    """Return whether no machine is made without a public key to log in with."""
    return bool(_facts(cloud).get("key_needed", False))


def takes_instance_profile(cloud: str) -> bool:
    """Return whether machines get an instance profile, given or made within a permissions boundary."""
    return bool(_facts(cloud).get("identities") == "instance_profile")


def takes_end_role(cloud: str) -> bool:
    """Return whether machines need a role to deallocate themselves, without which they are billed once they ended."""
    return bool(_facts(cloud).get("end_role", False))


def limits_lifetime(cloud: str) -> bool:
    """Return whether the cloud itself ends machines at the age that a workspace states."""
    return bool(_facts(cloud).get("lifetime_limited", False))


def names_containers(cloud: str) -> bool:
    """Return whether a checkpoint bucket is named by the resource id of a container, not by a bucket's name."""
    return bool(_facts(cloud).get("bucket") == "container")


def shares_network(cloud: str) -> bool:
    """Return whether gangs of a region can share a network that the module makes."""
    return "shared_network" in _facts(cloud)


def nat_fabrics(cloud: str) -> tuple[str, ...]:
    """Return the fabrics whose machines have no public address, and call out through a gateway."""
    return tuple(_facts(cloud).get("shared_network", {}).get("behind_nat", ()))


def find_metadata_service(cloud: str) -> str:
    """Return the metadata service that tells a machine of its end, as the node agent calls it.

    ``none`` when no service does.
    """
    return str(_facts(cloud).get("metadata", "none"))


def find_provider_variables(cloud: str) -> Mapping[str, str]:
    """Return, by the name in the clouds file, the environment variable that the module's provider reads."""
    variables: Mapping[str, str] = _facts(cloud).get("variables", {})
    return variables


@functools.cache
def _facts(cloud: str) -> Mapping[str, Any]:
    if cloud not in PROVISIONABLE_CLOUDS:
        known = ", ".join(sorted(PROVISIONABLE_CLOUDS))
        raise ValueError(f"no machines can be made on {cloud!r}; only on {known}")
    facts: Mapping[str, Any] = json.loads((_MODULES / cloud / "module.json").read_text(encoding="utf-8"))
    return facts
