"""The calls that the adapter makes are those that its role allows: no fewer, no more."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import yaml

from pricing.places import Market
from providers.gcp import permissions
from providers.protocol import GangQuery, Scope
from tests.support.gcp_estate import calls_of
from tests.support.gcp_service import serving
from tests.support.repository import ROOT

# From "IAM Permissions" on the page of each method in the Compute Engine REST reference (v1). The catalogue's page,
# services.skus.list of Cloud Billing, names none.
DOCUMENTED = {
    r"GET /compute/v1/projects/[^/]+": "compute.projects.get",
    r"GET /compute/v1/projects/[^/]+/regions": "compute.regions.list",
    r"GET /compute/v1/projects/[^/]+/zones/[^/]+/machineTypes": "compute.machineTypes.list",
    r"GET /compute/v1/projects/[^/]+/aggregated/acceleratorTypes": "compute.acceleratorTypes.list",
    r"GET /compute/v1/projects/[^/]+/aggregated/reservations": "compute.reservations.list",
    r"GET /compute/v1/projects/[^/]+/aggregated/operations": "compute.globalOperations.list",
    r"POST /compute/v1/projects/[^/]+/regions/[^/]+/advice/capacity": "compute.advice.capacity",
    r"POST /compute/v1/projects/[^/]+/regions/[^/]+/advice/capacityHistory": "compute.advice.capacityHistory",
    r"GET /v1/services/6F81-5844-456A/skus": "",
}


def needed(method: str, path: str) -> str:
    return next(found for pattern, found in DOCUMENTED.items() if re.fullmatch(pattern, f"{method} {path}"))


def role() -> list[str]:
    document = yaml.safe_load((ROOT / "providers/gcp/role.yaml").read_text(encoding="utf-8"))
    return list(document["includedPermissions"])


def test_calls_and_role_are_equal() -> None:
    with serving() as (provider, app):
        region = Scope("gcp", "us-central1")
        provider.fetch(region, datetime(2026, 9, 1, tzinfo=UTC))
        provider.stock([GangQuery("a3-highgpu-8g", 1, Market.SPOT)])
        provider.allowances(())
        used = {needed(*call) for call in app.seen} - {""}
        assert used == set(role()) - {permissions.OPERATIONS.permission}  # The doctor alone asks for these.
        before = len(app.seen)
        provider.diagnose()
        assert {needed(*call) for call in app.seen[before:]} - {""} == set(role())


def test_the_table_of_calls_says_the_same() -> None:
    assert {call.permission for call in calls_of("role.yaml")} - {""} == set(role())
    assert role() == sorted(role())


def test_the_role_reads_only() -> None:
    """Advice is a POST that changes nothing."""
    verbs = {permission.rpartition(".")[2] for permission in role()}
    assert verbs == {"list", "get", "capacity", "capacityHistory"}
