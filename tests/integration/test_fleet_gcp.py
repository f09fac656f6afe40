"""Machines and disks found and released in a Google Cloud project: the real SDK on a service of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from providers.errors import (
    AccountNotUsedError,
    CredentialsError,
    NotReachedError,
    PermissionDeniedError,
    TransientError,
)
from providers.fleet import CloudResource, ResourceKind
from providers.gcp import permissions
from providers.gcp.fleet import GcpFleet
from providers.session import Settings
from tests.contract.fleet_contract import OURS, THEIRS, session
from tests.support.gcp_estate import PROJECT, ZONES, Project, calls_of, labels_of, project
from tests.support.service import closed_port


@pytest.fixture
def served() -> Iterator[tuple[Project, str]]:
    with project() as (app, url):
        yield app, url


@pytest.fixture
def app(served: tuple[Project, str]) -> Project:
    return served[0]


@pytest.fixture
def fleet(served: tuple[Project, str]) -> GcpFleet:
    return fleet_at(served[1])


def fleet_at(url: str, **options: Any) -> GcpFleet:
    settings = Settings(endpoints={"compute": url, "billing": url}, options={"project": PROJECT})
    return GcpFleet("gcp", session("gcp", settings), **{"pause_s": 0.01, "patience_s": 5.0, **options})


def gang(app: Project, attempt: str, state: str, count: int, zone: str = ZONES[0]) -> list[str]:
    return [app.machine(f"stepfare-{attempt}-{r}", labels_of(attempt, state, r), zone) for r in range(count)]


def machines(found: tuple[CloudResource, ...]) -> list[CloudResource]:
    return [one for one in found if one.kind is ResourceKind.MACHINE]


def test_machines_are_found_in_every_zone_over_pages(app: Project, fleet: GcpFleet) -> None:
    made = {zone: gang(app, f"llama-{n}", OURS, 2, zone) for n, zone in enumerate(ZONES)}
    app.machine("database", {"team": "research"})
    findings = fleet.found([])
    assert findings.gaps == ()
    assert sorted(one.machine_id for one in findings.resources) == sorted(
        path for paths in made.values() for path in paths
    )
    first = machines(findings.resources)[0]
    assert (first.region, first.zone, first.what, first.rank) == (
        "europe-west4",
        "europe-west4-a",
        "instance a3-highgpu-8g",
        0,
    )
    assert first.since is not None
    assert first.since.isoformat() == "2026-11-21T17:00:00+00:00"
    wanted = [query.get("filter") for call, query in zip(app.calls, app.queries, strict=True) if "instances" in call]
    assert wanted == ["labels.stepfare_attempt:*"] * 2


def test_regions_limit_what_is_found(app: Project, fleet: GcpFleet) -> None:
    gang(app, "llama-1", OURS, 2, "us-central1-b")
    gang(app, "bert-1", OURS, 1, "europe-west4-a")
    app.add("global/networks/stepfare-llama-1")
    found = fleet.found(["us-central1"]).resources
    assert [(one.kind, one.attempt) for one in found] == [("machine", "llama-1")] * 2 + [("other", "llama-1")]


def test_an_answer_that_ignores_the_filter_finds_no_strangers(app: Project, fleet: GcpFleet) -> None:
    app.machine("database", {"stepfare_attempt": ""})
    assert fleet.found([]).resources == ()


@pytest.mark.parametrize(
    ("status", "what", "billed", "going"),
    [
        ("STOPPING", "instance a3-highgpu-8g, stopping", False, True),
        ("TERMINATED", "instance a3-highgpu-8g, terminated", True, False),
        ("STAGING", "instance a3-highgpu-8g", True, False),
    ],
)
def test_what_is_not_running_is_said(
    status: str, what: str, billed: bool, going: bool, app: Project, fleet: GcpFleet
) -> None:
    app.machine("stepfare-a-0", labels_of("a", OURS, 0), status=status)
    (one,) = fleet.found([]).resources
    assert (one.what, one.billed, one.going) == (what, billed, going)


def test_a_disk_that_outlived_its_machine_is_released(app: Project, fleet: GcpFleet) -> None:
    gang(app, "llama-1", OURS, 1)
    disk = app.add(f"zones/{ZONES[0]}/disks/left", labels=labels_of("llama-1", OURS), sizeGb="500")
    foreign = app.add(f"zones/{ZONES[0]}/disks/foreign", labels={}, sizeGb="10")
    found = fleet.found([]).resources
    assert [(one.kind, one.what, one.billed) for one in found] == [
        ("machine", "instance a3-highgpu-8g", True),
        ("other", "disk of 500 GiB", True),
    ]
    assert fleet.release(found) == (None, None)
    assert disk not in app.things
    assert set(app.things) == {foreign}


def test_what_is_known_by_its_name_is_shown_and_left_alone(app: Project, fleet: GcpFleet) -> None:
    app.add("global/networks/stepfare-llama-1")
    app.add("global/networks/stepfare-llama-1-gpu3")
    app.add("global/networks/default")
    app.add("global/firewalls/stepfare-llama-1")
    app.add("regions/us-central1/subnetworks/stepfare-llama-1-host")
    app.add("regions/us-central1/resourcePolicies/stepfare-llama-1")
    found = fleet.found([]).resources
    assert sorted(one.what for one in found) == [
        "firewall rule",
        "network",
        "network",
        "placement policy",
        "subnetwork",
    ]
    assert {(one.attempt, one.state_id, one.billed) for one in found} == {("llama-1", "", False)}
    before = set(app.things)
    answers = fleet.release(found)
    assert all(error is not None and "terraform destroy" in error.remedy for error in answers)
    assert set(app.things) == before


def test_sixty_machines_are_ended_at_the_same_time(app: Project, fleet: GcpFleet) -> None:
    gang(app, "llama-1", OURS, 60)
    others = gang(app, "llama-2", THEIRS, 2)
    mine = [one for one in machines(fleet.found([]).resources) if one.state_id == OURS]
    assert fleet.release(mine) == (None,) * 60
    assert app.machines() == set(others)
    assert machines(fleet.found([]).resources)[0].state_id == THEIRS


def test_a_machine_is_ended_by_its_number(app: Project, fleet: GcpFleet) -> None:
    (path,) = gang(app, "llama-1", OURS, 1)
    number = app.things[path]["id"]
    fleet.release(fleet.found([]).resources)
    assert f"DELETE /zones/{ZONES[0]}/instances/{number}" in app.calls


def test_a_name_that_another_attempt_has_now_is_left_alone(app: Project, fleet: GcpFleet) -> None:
    (path,) = gang(app, "llama-1", OURS, 1)
    (one,) = fleet.found([]).resources
    app.things[path]["labels"] = labels_of("llama-2", THEIRS, 0)
    (error,) = fleet.release([one])
    assert error is not None
    assert "not of attempt llama-1" in str(error)
    assert app.machines() == {path}


def test_a_machine_of_another_project_is_refused(app: Project, fleet: GcpFleet) -> None:
    gang(app, "llama-1", OURS, 1)
    (one,) = fleet.found([]).resources
    foreign = replace(one, machine_id=one.machine_id.replace(PROJECT, "elsewhere"))
    (error,) = fleet.release([foreign])
    assert error is not None
    assert "not released from here" in str(error)


def test_an_operation_that_fails_is_an_error(app: Project, fleet: GcpFleet) -> None:
    gang(app, "llama-1", OURS, 2)
    app.failing["stepfare-llama-1-1"] = "INTERNAL_ERROR"
    first, second = fleet.release(fleet.found([]).resources)
    assert first is None
    assert second is not None
    assert "INTERNAL_ERROR" in str(second)
    assert "instances.delete" in str(second)


def test_an_order_that_takes_long_counts_as_taken(served: tuple[Project, str]) -> None:
    app, url = served
    gang(app, "llama-1", OURS, 1)
    app.polls = 1000
    fleet = fleet_at(url, patience_s=0.1)
    assert fleet.release(fleet.found([]).resources) == (None,)
    (one,) = fleet.found([]).resources
    assert (one.going, one.billed) == (True, False)


@pytest.mark.parametrize("reason", ["resourceNotReady", "resourceInUseByAnotherResource"])
def test_a_machine_that_is_busy_is_tried_again(reason: str, app: Project, fleet: GcpFleet) -> None:
    gang(app, "llama-1", OURS, 1)
    found = fleet.found([]).resources
    app.refusals["DELETE"], app.times["DELETE"] = (400, reason), 2
    assert fleet.release(found) == (None,)
    assert app.machines() == set()


def test_a_zone_that_does_not_answer_is_a_gap(app: Project, fleet: GcpFleet) -> None:
    gang(app, "llama-1", OURS, 1, "us-central1-a")
    gang(app, "llama-2", OURS, 1, "us-central1-b")
    app.silent.add("us-central1-b")
    findings = fleet.found([])
    assert [one.attempt for one in machines(findings.resources)] == ["llama-1"]
    assert [gap.subject for gap in findings.gaps] == ["machines in us-central1-b", "disks in us-central1-b"]
    assert isinstance(findings.gaps[0].error, TransientError)


@pytest.mark.parametrize(
    "call", [call for call in calls_of("provisioner.yaml") if call.method.endswith(("ist", "List"))]
)
def test_a_list_that_is_denied_is_a_gap(call: permissions.ApiCall, app: Project, fleet: GcpFleet) -> None:
    gang(app, "llama-1", OURS, 1)
    kind = call.method.partition(".")[0]
    path = f"GET /aggregated/{kind}" if call.method.endswith("aggregatedList") else f"GET /global/{kind}"
    app.refusals[path] = (403, "forbidden")
    findings = fleet.found([])
    (gap,) = findings.gaps
    assert isinstance(gap.error, PermissionDeniedError)
    assert gap.error.permission == call.permission
    assert "providers/gcp/provisioner.yaml" in gap.error.remedy
    if kind != "instances":
        assert len(machines(findings.resources)) == 1


def test_a_machine_that_may_not_be_ended_is_said(app: Project, fleet: GcpFleet) -> None:
    gang(app, "llama-1", OURS, 1)
    found = fleet.found([]).resources
    app.refusals["DELETE"] = (403, "forbidden")
    (error,) = fleet.release(found)
    assert isinstance(error, PermissionDeniedError)
    assert error.permission == "compute.instances.delete"
    assert len(app.machines()) == 1


def test_a_proxy_that_knows_nothing_does_not_say_gone(app: Project, fleet: GcpFleet) -> None:
    gang(app, "llama-1", OURS, 1)
    found = fleet.found([]).resources
    app.refusals["GET /zones"] = (404, "")
    (error,) = fleet.release(found)
    assert error is not None


def test_without_an_account_nothing_is_said_to_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    unused = GcpFleet("gcp", session("gcp", Settings(credentials=False)))
    with pytest.raises(AccountNotUsedError):
        unused.found([])
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")
    nobody = GcpFleet("gcp", session("gcp", Settings(options={"project": PROJECT})))
    with pytest.raises(CredentialsError):
        nobody.found([])
    assert nobody.release([]) == ()


def test_no_network_is_a_gap_for_every_list() -> None:
    gaps = fleet_at(f"http://127.0.0.1:{closed_port()}").found([]).gaps
    assert len(gaps) == 6
    assert all(isinstance(gap.error, NotReachedError) for gap in gaps)
