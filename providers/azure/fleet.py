"""Fleet of an Azure subscription: the resources of attempts, and their release.

Each attempt has a resource group of its own. Deleting the group deletes everything in it; deleting a machine alone
leaves its disk and addresses to the group. Azure takes minutes for either; this module only gives the order. A name may
be used again, so that the tag of a resource is checked before it is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from providers.azure.calls import AzureCalls
from providers.azure.client import TokenSource
from providers.azure.inventory import DELETE_MEMBER, InventoryAccount
from providers.azure.parse import inventory
from providers.azure.parse.inventory import group_path
from providers.caller import PartialCalls
from providers.errors import AccountNotUsedError, CredentialsError, ProviderError
from providers.fleet import RELEASE_BY_HAND, CloudResource, Fleet, FleetListing, sort_resources
from providers.session import Session

_AT_ONCE = 16
# The path of a machine within a resource group, in small letters: a single machine, or one of a scale set.
_MACHINE = re.compile(
    r"/providers/microsoft\.compute/(virtualmachines/[^/?#]+|(?P<set>virtualmachinescalesets)/[^/?#]+/virtualmachines/\d+)"
)
_GONE = frozenset({"NotFound", "ParentResourceNotFound", "ResourceGroupNotFound", "ResourceNotFound"})


class AzureFleet(Fleet):
    """Find and release resources; see :class:`providers.fleet.Fleet`.

    ``credential`` replaces Azure's own chain.
    """

    def __init__(self, cloud: str, session: Session, credential: TokenSource | None = None) -> None:
        self.cloud = cloud
        self._session = session
        self._account = InventoryAccount(AzureCalls(cloud, session), credential)

    def found(self, regions: Sequence[str]) -> FleetListing:
        self._check_account()
        cloud, attempt = self.cloud, PartialCalls()
        groups = inventory.read_groups(cloud, attempt("resource groups", self._account.groups) or ())
        found = list(groups.values())
        found += inventory.read_machines(cloud, attempt("virtual machines", self._account.machines) or (), groups)
        for scale_set in inventory.select_tagged_sets(attempt("scale sets", self._account.scale_sets) or ()):
            subject = f"machines of the scale set {scale_set.get('name', '')}"
            rows = attempt(subject, partial(self._account.members, str(scale_set["id"]))) or ()
            placed = ({"location": scale_set.get("location", ""), **row} for row in rows)
            found += inventory.read_members(cloud, scale_set, placed, groups)
        here = (one for one in found if not regions or one.region in regions)
        return FleetListing(sort_resources(here), tuple(attempt.gaps))

    def release(self, resources: Sequence[CloudResource]) -> tuple[ProviderError | None, ...]:
        if not resources:
            return ()
        self._check_account()
        keys = sorted({(one.machine_id, one.attempt) for one in resources})
        whole = [key for key in keys if _is_group(key[0])]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = dict(zip(whole, pool.map(self._release, whole), strict=True))
            ended = {(group_path(id_), attempt) for (id_, attempt), error in answers.items() if error is None}
            # A deleted group takes its machines with it; where it could not be deleted, its machines still may be.
            rest = [key for key in keys if key not in answers and (group_path(key[0]), key[1]) not in ended]
            answers.update(zip(rest, pool.map(self._release, rest), strict=True))
        return tuple(answers.get((one.machine_id, one.attempt)) for one in resources)

    def _check_account(self) -> None:
        if not self._session.settings.credentials:
            raise AccountNotUsedError(self.cloud, "the settings say to leave the account alone")
        if not self._account.subscription:
            remedy = "set the option `subscription`; `az account show --query id` prints it"
            raise CredentialsError(self.cloud, "no subscription is configured", none_found=True, remedy=remedy)

    def _release(self, key: tuple[str, str]) -> ProviderError | None:
        id_, attempt = key
        mine = f"/subscriptions/{self._account.subscription}/".lower()
        if not id_.lower().startswith(mine) or not (_is_group(id_) or _machine(id_)):
            return ProviderError(self.cloud, f"{id_} is not released from here", remedy=RELEASE_BY_HAND)
        try:
            self._end(id_, attempt)
        except ProviderError as error:
            return None if error.code in _GONE else error
        return None

    def _end(self, id_: str, attempt: str) -> None:
        machine = _machine(id_)
        if machine is None:
            row, end = self._account.group(id_), self._account.end_group
        elif machine["set"]:
            scale_set = id_[: id_.lower().rindex("/virtualmachines/")]
            row, end = self._account.scale_set(scale_set), partial(self._account.end_machine, permission=DELETE_MEMBER)
        else:
            row, end = self._account.machine(id_), self._account.end_machine
        if inventory.attempt_of(row) != attempt:
            what = f"{id_.rpartition('/')[2]} is not of attempt {attempt}"
            raise ProviderError(self.cloud, what, remedy="look again: the name is something else's by now")
        if not inventory.is_going(row):
            end(id_)


def _machine(id_: str) -> re.Match[str] | None:
    return _MACHINE.fullmatch(id_.lower()[len(group_path(id_)) :]) if group_path(id_) else None


def _is_group(id_: str) -> bool:
    return bool(group_path(id_)) and group_path(id_) == id_.lower()
