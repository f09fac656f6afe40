"""Resources of the Google and Azure stand-ins that a local service is told of, at STEPFARE_STANDIN_CLOUD.

    PUT /_standin/KIND/ID     it was made; the body is its state as JSON
    GET /_standin/KIND/ID     200: it is there; 404: it is gone, and Terraform plans another
    DELETE /_standin/KIND/ID  it is to go

The service can show them by the cloud's own API (tests/smoke/dry.py). Everything else stays a record.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from abc import abstractmethod
from typing import Any
from urllib.parse import quote

from tests.support.standin.provider import Recorded, settled

_HERE = "127.0.0.1"


def _call(method: str, kind: str, name: str, body: Any = None) -> int:
    url = f"{os.environ['STEPFARE_STANDIN_CLOUD']}/_standin/{kind}/{quote(name, safe='')}"
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


class Told(Recorded):
    """Kept as asked for, and told."""

    KIND = ""

    @abstractmethod
    def made(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes that the cloud fills in."""

    def create(self, ctx: Any, planned: dict[str, Any]) -> dict[str, Any] | None:
        state = settled(planned)
        state |= {name: value for name, value in self.made(state).items() if name in state}
        status = _call("PUT", self.KIND, state["id"], state)
        if status != 200:
            ctx.diagnostics.add_error(f"making {self.KIND} {state['id']}: HTTP {status}")
        return state

    def read(self, ctx: Any, current: dict[str, Any]) -> dict[str, Any] | None:
        return None if _call("GET", self.KIND, current["id"]) == 404 else current

    def delete(self, ctx: Any, current: dict[str, Any]) -> dict[str, Any] | None:
        _call("DELETE", self.KIND, current["id"])
        return None


class Instance(Told):
    KIND = "instance"

    def made(self, state: dict[str, Any]) -> dict[str, Any]:
        # Its addresses, in a nested block, stay null: they would have to be planned as not known yet.
        return {"id": f"projects/{os.environ['GOOGLE_PROJECT']}/zones/{state['zone']}/instances/{state['name']}"}


class ServiceAccount(Recorded):
    """google_service_account: only a record, but firewalls know it by its address."""

    def create(self, ctx: Any, planned: dict[str, Any]) -> dict[str, Any] | None:
        name = planned["account_id"]
        return settled(planned, id=name, email=f"{name}@{os.environ['GOOGLE_PROJECT']}.iam.gserviceaccount.com")


class ResourceGroup(Told):
    KIND = "group"

    def made(self, state: dict[str, Any]) -> dict[str, Any]:
        return {"id": f"/subscriptions/{os.environ['ARM_SUBSCRIPTION_ID']}/resourceGroups/{state['name']}"}


class VirtualMachine(Told):
    KIND = "machine"

    def made(self, state: dict[str, Any]) -> dict[str, Any]:
        group = f"/subscriptions/{os.environ['ARM_SUBSCRIPTION_ID']}/resourceGroups/{state['resource_group_name']}"
        path = f"{group}/providers/Microsoft.Compute/virtualMachines/{state['name']}"
        return {"id": path, "private_ip_address": _HERE, "public_ip_address": _HERE}


KINDS: dict[str, type[Recorded]] = {
    "azurerm_linux_virtual_machine": VirtualMachine,
    "azurerm_resource_group": ResourceGroup,
    "google_compute_instance": Instance,
    "google_service_account": ServiceAccount,
}
