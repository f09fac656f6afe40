"""Facts of the Terraform modules (the module.json of each), so that no other code needs to know clouds by name."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """The facts of one cloud's module.

    ``machine`` is the resource that is a machine, by rank, as Terraform addresses it; a scale set does not count.
    ``local``: machines are processes of this machine, which reach it as 127.0.0.1 and end with it. ``zones_named``:
    every node has to name its zone. ``hosts_named``: the machines exist already, so that a workspace has to name them.
    ``key_needed``: no machine is made without a public key to log in with. ``identities`` is ``instance_profile`` where
    machines get one, given or made within a permissions boundary. ``end_role``: machines need a role to deallocate
    themselves, without which they are billed once they ended. ``lifetime_limited``: the cloud itself ends machines at
    the age that a workspace states. ``bucket`` is ``container`` where a checkpoint bucket is named by the resource id
    of a container. ``shared_network``: gangs of a region can share a network that the module makes. ``metadata`` is the
    service that tells a machine of its end, as the node agent calls it. ``variables`` are, by the name in the clouds
    file, the environment variables that the module's provider reads.
    """

    boot: BootMethod
    machine: str
    local: bool = False
    zones_named: bool = False
    hosts_named: bool = False
    key_needed: bool = False
    identities: str = ""
    end_role: bool = False
    lifetime_limited: bool = False
    bucket: str = ""
    shared_network: Mapping[str, Any] | None = None
    metadata: str = "none"
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def nat_fabrics(self) -> tuple[str, ...]:
        """Return the fabrics whose machines have no public address, and call out through a gateway."""
        return tuple((self.shared_network or {}).get("behind_nat", ()))


@functools.cache
def module_facts(cloud: str) -> ModuleFacts:
    """Return the facts of the module for ``cloud``; ValueError for a cloud without a module."""
    if cloud not in PROVISIONABLE_CLOUDS:
        known = ", ".join(sorted(PROVISIONABLE_CLOUDS))
        raise ValueError(f"no machines can be made on {cloud!r}; only on {known}")
    facts: dict[str, Any] = json.loads((_MODULES / cloud / "module.json").read_text(encoding="utf-8"))
    return ModuleFacts(**{**facts, "boot": BootMethod(facts["boot"])})
