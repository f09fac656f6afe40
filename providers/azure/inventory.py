"""API calls that find and end the resources of attempts in a subscription, as plain Resource Manager requests.

``provisioner.json`` grants them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from providers.azure.calls import MANAGEMENT, Row, query
from providers.azure.client import AzureAccount
from providers.errors import UnreadableError

READ_GROUPS = "Microsoft.Resources/subscriptions/resourceGroups/read"
DELETE_GROUP = "Microsoft.Resources/subscriptions/resourceGroups/delete"
READ_MACHINES = "Microsoft.Compute/virtualMachines/read"
DELETE_MACHINE = "Microsoft.Compute/virtualMachines/delete"
READ_SETS = "Microsoft.Compute/virtualMachineScaleSets/read"
READ_MEMBERS = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read"
DELETE_MEMBER = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/delete"

_GROUPS = {"api-version": "2021-04-01"}
_COMPUTE = {"api-version": "2024-07-01"}
# Machines are deleted without waiting for their shutdown, because released machines have had their notice.
_FORCED_KINDS = "Microsoft.Compute/virtualMachines,Microsoft.Compute/virtualMachineScaleSets"


class InventoryAccount(AzureAccount):
    """List and end resources; see :class:`providers.azure.client.AzureAccount`.

    Lists are whole: the reader of a list looks at the tags.
    """

    ROLE = "provisioner.json"

    def groups(self) -> list[Row]:
        """Return every resource group."""
        return self._raw("resourcegroups", "resource groups", _GROUPS, READ_GROUPS)

    def machines(self) -> list[Row]:
        """Return every machine that is not in a scale set."""
        path = "providers/Microsoft.Compute/virtualMachines"
        return self._raw(path, "virtual machines", _COMPUTE, READ_MACHINES)

    def scale_sets(self) -> list[Row]:
        """Return every scale set."""
        path = "providers/Microsoft.Compute/virtualMachineScaleSets"
        return self._raw(path, "scale sets", _COMPUTE, READ_SETS)

    def members(self, scale_set: str) -> list[Row]:
        """Return the machines of a scale set, by its id."""
        name = scale_set.rpartition("/")[2]
        return self._raw_at(f"{scale_set}/virtualMachines", f"machines of {name}", _COMPUTE, READ_MEMBERS)

    def group(self, id_: str) -> Row:
        """Return one resource group."""
        return self._single(id_, _GROUPS, READ_GROUPS)

    def machine(self, id_: str) -> Row:
        """Return one machine that is not in a scale set."""
        return self._single(id_, _COMPUTE, READ_MACHINES)

    def scale_set(self, id_: str) -> Row:
        """Return one scale set."""
        return self._single(id_, _COMPUTE, READ_SETS)

    def end_group(self, id_: str) -> None:
        """Order the deletion of a resource group with all that is in it."""
        self._end(id_, {**_GROUPS, "forceDeletionTypes": _FORCED_KINDS}, DELETE_GROUP)

    def end_machine(self, id_: str, permission: str = DELETE_MACHINE) -> None:
        """Order the deletion of a machine; its disk stays, unless it was made to go with it."""
        self._end(id_, {**_COMPUTE, "forceDeletion": "true"}, permission)

    def _single(self, id_: str, parts: Mapping[str, str], permission: str) -> Row:
        subject = id_.rpartition("/")[2]

        def ask() -> Row:
            try:
                row = self._send("GET", self._url(id_, parts)).json()
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise UnreadableError(self._calls.cloud, f"{subject}: not an object")
            return row

        resource: Row = self._calls.once(MANAGEMENT, ask, partial(self._error, subject, permission))
        return resource

    def _end(self, id_: str, parts: Mapping[str, str], permission: str) -> None:
        subject = f"the end of {id_.rpartition('/')[2]}"

        def ask() -> Any:
            return self._send("DELETE", self._url(id_, parts))

        self._calls.once(MANAGEMENT, ask, partial(self._error, subject, permission))

    def _url(self, id_: str, parts: Mapping[str, str]) -> str:
        return f"{self._calls.base(MANAGEMENT)}{id_}?{query(parts)}"
