"""Machines and resource groups found and released in an Azure subscription: the real SDK's pipeline on a service of
this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from providers.azure.fleet import AzureFleet
from providers.errors import (
    AccountNotUsedError,
    CredentialsError,
    NotReachedError,
    PermissionDeniedError,
    ProviderError,
)
from providers.fleet import CloudResource, ResourceKind
from providers.registry import CLOUDS, open_fleet
from providers.session import Settings
from tests.contract.fleet_contract import OURS, THEIRS, session
from tests.support.azure_estate import SUBSCRIPTION, Subscription, subscription, tags_of
from tests.support.service import closed_port


@pytest.fixture
def served() -> Iterator[tuple[Subscription, str]]:
    with subscription() as (app, url):
        yield app, url


@pytest.fixture
def app(served: tuple[Subscription, str]) -> Subscription:
    return served[0]


@pytest.fixture
def fleet(served: tuple[Subscription, str]) -> AzureFleet:
    return fleet_at(served[1])


def fleet_at(url: str) -> AzureFleet:
    settings = Settings(endpoints={"management": url}, options={"subscription": SUBSCRIPTION})
    made = open_fleet("azure", session("azure", settings))
    assert isinstance(made, AzureFleet)
    return made


def gang(app: Subscription, attempt: str, state: str, count: int, location: str = "eastus") -> list[str]:
    """An attempt as the module makes it without InfiniBand."""
    name = f"stepfare-{attempt}"
    app.group(name, tags_of(attempt, state), location)
    return [app.machine(name, f"{name}-{r}", tags_of(attempt, state, r), location) for r in range(count)]


def infiniband(app: Subscription, attempt: str, state: str, count: int) -> list[str]:
    """An attempt as the module makes it with InfiniBand."""
    name = f"stepfare-{attempt}"
    app.group(name, tags_of(attempt, state))
    return app.scale_set(name, name, tags_of(attempt, state), count)


def machines(fleet: AzureFleet) -> list[CloudResource]:
    return [one for one in fleet.found([]).resources if one.kind is ResourceKind.MACHINE]


def test_machines_and_their_group_are_found(app: Subscription, fleet: AzureFleet) -> None:
    made = gang(app, "llama-1", OURS, 3)
    app.group("databases", {"team": "research"})
    app.machine("databases", "database", {})
    findings = fleet.found([])
    assert findings.gaps == ()
    assert [(one.kind, one.machine_id, one.rank) for one in findings.resources[:3]] == [
        ("machine", id_, rank) for rank, id_ in enumerate(made)
    ]
    (group,) = findings.resources[3:]
    assert (group.kind, group.what, group.billed) == ("other", "resource group stepfare-llama-1", True)
    assert (group.attempt, group.state_id, group.rank) == ("llama-1", OURS, None)
    first = findings.resources[0]
    assert (first.region, first.zone, first.what) == ("eastus", "2", "virtual machine Standard_NC40ads_H100_v5")
    assert first.since is not None
    assert first.since.isoformat().startswith("2026-11-21T17:00:00")


def test_a_scale_set_shows_its_machines_by_their_number(app: Subscription, fleet: AzureFleet) -> None:
    made = infiniband(app, "llama-1", OURS, 5)
    found = machines(fleet)
    assert [(one.machine_id, one.rank, one.state_id) for one in found] == [
        (id_, rank, OURS) for rank, id_ in enumerate(made)
    ]
    assert {one.what for one in found} == {"scale set machine Standard_ND96isr_H100_v5"}
    assert {one.region for one in found} == {"eastus"}


def test_regions_limit_what_is_found(app: Subscription, fleet: AzureFleet) -> None:
    gang(app, "llama-1", OURS, 1, "eastus")
    gang(app, "bert-1", OURS, 1, "westeurope")
    assert {one.attempt for one in fleet.found(["westeurope"]).resources} == {"bert-1"}


def test_ending_the_group_ends_everything_in_it(app: Subscription, fleet: AzureFleet) -> None:
    gang(app, "llama-1", OURS, 4)
    others = gang(app, "llama-2", THEIRS, 2)
    foreign = app.machine("databases", "database", {})
    ours = [one for one in fleet.found([]).resources if one.state_id == OURS]
    app.calls.clear()
    assert fleet.release(ours) == (None,) * 5
    assert [call for call in app.calls if call.startswith("DELETE")] == ["DELETE /resourcegroups/stepfare-llama-1"]
    forced = next(query for call, query in zip(app.calls, app.queries[-len(app.calls) :], strict=True) if "DEL" in call)
    assert "virtualMachineScaleSets" in forced["forceDeletionTypes"]
    assert app.machines() == {*others, foreign}


@pytest.mark.parametrize("make", [gang, infiniband])
def test_a_machine_alone_is_ended_alone(make: object, app: Subscription, fleet: AzureFleet) -> None:
    assert callable(make)
    made = make(app, "llama-1", OURS, 3)
    second = machines(fleet)[1]
    assert fleet.release([second]) == (None,)
    assert app.machines() == {made[0], made[2]}
    assert [one.kind for one in fleet.found([]).resources].count(ResourceKind.OTHER) == 1


def test_sixty_machines_of_many_attempts(app: Subscription, fleet: AzureFleet) -> None:
    for number in range(30):
        gang(app, f"llama-{number}", OURS if number % 2 else THEIRS, 2)
    found = fleet.found([]).resources
    assert len(found) == 90
    mine = [one for one in found if one.state_id == OURS]
    assert fleet.release(mine) == (None,) * 45
    assert {one.state_id for one in fleet.found([]).resources} == {THEIRS}
    assert len(app.machines()) == 30


def test_what_is_on_its_way_out_is_said_and_not_ordered_again(app: Subscription, fleet: AzureFleet) -> None:
    gang(app, "llama-1", OURS, 2)
    found = fleet.found([]).resources
    app.polls = 50
    assert fleet.release(found) == (None,) * 3
    going = fleet.found([]).resources
    assert [(one.going, one.billed) for one in going] == [(True, False)] * 3
    app.calls.clear()
    assert fleet.release(going) == (None,) * 3
    assert [call for call in app.calls if call.startswith("DELETE")] == []


def test_a_group_that_is_locked_leaves_its_machines_to_be_ended(app: Subscription, fleet: AzureFleet) -> None:
    gang(app, "llama-1", OURS, 2)
    found = fleet.found([]).resources
    app.refusals["DELETE /resourcegroups/stepfare-llama-1"] = (409, "ScopeLocked")
    app.times["DELETE /resourcegroups/stepfare-llama-1"] = 1
    first, second, group = fleet.release(found)
    assert (first, second) == (None, None)
    assert group is not None
    assert group.code == "ScopeLocked"
    assert app.machines() == set()


def test_a_group_that_another_attempt_has_now_is_left_alone(app: Subscription, fleet: AzureFleet) -> None:
    made = gang(app, "llama-1", OURS, 1)
    found = fleet.found([]).resources
    app.remove(made[0].partition("/providers")[0])
    gang(app, "llama-1", OURS, 1)
    for row in app.things.values():
        row["tags"]["stepfare_attempt"] = "llama-2"
    answers = fleet.release(found)
    assert all(error is not None and "not of attempt llama-1" in str(error) for error in answers)
    assert app.machines() == set(made)


@pytest.mark.parametrize(
    "id_",
    [
        "",
        "nonsense",
        f"/subscriptions/{SUBSCRIPTION}",
        "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/stepfare-llama-1",
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/stepfare-llama-1/providers/Microsoft.Network/virtualNetworks/n",
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a/extensions/b",
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/a",
    ],
)
def test_anything_else_is_not_released(id_: str, app: Subscription, fleet: AzureFleet) -> None:
    made = gang(app, "llama-1", OURS, 1)
    one = replace(fleet.found([]).resources[0], machine_id=id_)
    app.calls.clear()
    (error,) = fleet.release([one])
    assert isinstance(error, ProviderError)
    assert "not released from here" in str(error)
    assert app.calls == []
    assert app.machines() == set(made)


@pytest.mark.parametrize(
    ("path", "permission", "subject"),
    [
        ("GET /resourcegroups", "Microsoft.Resources/subscriptions/resourceGroups/read", "resource groups"),
        (
            "GET /providers/microsoft.compute/virtualmachines",
            "Microsoft.Compute/virtualMachines/read",
            "virtual machines",
        ),
        (
            "GET /providers/microsoft.compute/virtualmachinescalesets",
            "Microsoft.Compute/virtualMachineScaleSets/read",
            "scale sets",
        ),
        (
            "GET /resourcegroups/stepfare-mpt-1/providers",
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
            "machines of the scale set stepfare-mpt-1",
        ),
    ],
)
def test_a_list_that_is_denied_is_a_gap(
    path: str, permission: str, subject: str, app: Subscription, fleet: AzureFleet
) -> None:
    gang(app, "llama-1", OURS, 1)
    infiniband(app, "mpt-1", OURS, 1)
    app.refusals[path] = (403, "AuthorizationFailed")
    (gap,) = [gap for gap in fleet.found([]).gaps if gap.subject == subject]
    assert isinstance(gap.error, PermissionDeniedError)
    assert gap.error.permission == permission
    assert "providers/azure/provisioner.json" in gap.error.remedy
    assert fleet.found([]).resources


def test_what_may_not_be_ended_is_said(app: Subscription, fleet: AzureFleet) -> None:
    made = gang(app, "llama-1", OURS, 1)
    found = fleet.found([]).resources
    app.refusals["DELETE"] = (403, "AuthorizationFailed")
    machine, group = fleet.release(found)
    assert isinstance(machine, PermissionDeniedError)
    assert machine.permission == "Microsoft.Compute/virtualMachines/delete"
    assert isinstance(group, PermissionDeniedError)
    assert group.permission == "Microsoft.Resources/subscriptions/resourceGroups/delete"
    assert app.machines() == set(made)


def test_a_passing_fault_is_tried_again(app: Subscription, fleet: AzureFleet) -> None:
    gang(app, "llama-1", OURS, 1)
    for start in ("GET /resourcegroups", "DELETE /resourcegroups"):
        app.refusals[start], app.times[start] = (503, "ServiceUnavailable"), 1
    findings = fleet.found([])
    assert findings.gaps == ()
    assert fleet.release(findings.resources) == (None, None)
    assert app.machines() == set()


def test_without_an_account_nothing_is_said_to_be_empty() -> None:
    with pytest.raises(CredentialsError) as caught:
        AzureFleet("azure", session("azure", Settings())).found([])
    assert caught.value.none_found
    unused = Settings(credentials=False, options={"subscription": SUBSCRIPTION})
    with pytest.raises(AccountNotUsedError):
        AzureFleet("azure", session("azure", unused)).found([])
    assert AzureFleet("azure", session("azure", Settings())).release([]) == ()


def test_no_network_is_a_gap_for_every_list() -> None:
    gaps = fleet_at(f"http://127.0.0.1:{closed_port()}").found([]).gaps
    assert [gap.subject for gap in gaps] == ["resource groups", "virtual machines", "scale sets"]
    assert all(isinstance(gap.error, NotReachedError) for gap in gaps)


@pytest.mark.parametrize("cloud", sorted(cloud for cloud, entry in CLOUDS.items() if not entry.fleet))
def test_clouds_in_which_nothing_is_made_have_no_fleet(cloud: str) -> None:
    assert open_fleet(cloud, session(cloud, Settings())) is None
