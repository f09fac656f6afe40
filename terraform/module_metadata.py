"""What the modules say of themselves (module.json beside each), so that nobody else needs to know clouds by name."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pricing.places import PROVISIONABLE_CLOUDS

_MODULES: Final = Path(__file__).with_name("modules")


class Boot(StrEnum):
    """What a module does with user data: a machine's first boot reads it as cloud-init does (``#cloud-config``), or it
    is run as it is when it begins with ``#!``, otherwise by sh."""

    CLOUD_INIT = "cloud_init"
    SCRIPT = "script"


def boot_of(cloud: str) -> Boot:
    """What the module for ``cloud`` takes as user data. ValueError for a cloud without a module, here and below."""
    return Boot(_facts(cloud)["boot"])


def machine_resource(cloud: str) -> str:
    """The resource of the module that is a machine, by rank, as Terraform addresses it. A scale set, many machines at
    once, is none."""
    return str(_facts(cloud)["machine"])


def is_local(cloud: str) -> bool:
    """Whether the machines are processes of this machine, which reach it as 127.0.0.1 and end with it."""
    return bool(_facts(cloud).get("local", False))


def needs_zones(cloud: str) -> bool:
    """Whether every node has to name its zone: the cloud does not pick one."""
    return bool(_facts(cloud).get("zones_named", False))


def needs_hosts(cloud: str) -> bool:
    """Whether the machines are there already, so that a workspace has to name them."""
    return bool(_facts(cloud).get("hosts_named", False))


def needs_key(cloud: str) -> bool:
    """Whether no machine is made without a public key to log in with."""
    return bool(_facts(cloud).get("key_needed", False))


def takes_instance_profile(cloud: str) -> bool:
    """Whether machines get an instance profile, given or made within a permissions boundary."""
    return bool(_facts(cloud).get("identities") == "instance_profile")


def names_containers(cloud: str) -> bool:
    """Whether a checkpoint bucket is named by the resource id of a container, not by a bucket's name."""
    return bool(_facts(cloud).get("bucket") == "container")


def metadata_of(cloud: str) -> str:
    """Which metadata service tells a machine of its end, as the node agent calls it; ``none``: no service does."""
    return str(_facts(cloud).get("metadata", "none"))


def variables_of(cloud: str) -> Mapping[str, str]:
    """The environment variable in which the module's provider looks for what the clouds file calls by this name."""
    found: Mapping[str, str] = _facts(cloud).get("variables", {})
    return found


@functools.cache
def _facts(cloud: str) -> Mapping[str, Any]:
    if cloud not in PROVISIONABLE_CLOUDS:
        known = ", ".join(sorted(PROVISIONABLE_CLOUDS))
        raise ValueError(f"no machines can be made on {cloud!r}; only on {known}")
    found: Mapping[str, Any] = json.loads((_MODULES / cloud / "module.json").read_text(encoding="utf-8"))
    return found
