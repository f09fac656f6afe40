"""Every call this adapter makes, with the permission it needs: what ``doctor`` tries and what ``role.yaml`` grants.

The permissions are those of the "IAM Permissions" section of each method in the Compute Engine REST reference. The
price catalogue needs none: any signed-in identity may read it, in a project where the Cloud Billing API is on.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPUTE = "compute"
BILLING = "billing"
ENDPOINTS = {COMPUTE: "https://compute.googleapis.com", BILLING: "https://cloudbilling.googleapis.com"}

# The name under which a project switches the API on.
API_OF = {COMPUTE: "compute.googleapis.com", BILLING: "cloudbilling.googleapis.com"}


@dataclass(frozen=True, slots=True)
class Call:
    """One method of one service. ``permission`` "" is none beyond being signed in."""

    service: str
    method: str
    permission: str
    needed_for: str


REGIONS = Call(COMPUTE, "regions.list", "compute.regions.list", "regions, zones and quotas")
MACHINE_TYPES = Call(COMPUTE, "machineTypes.list", "compute.machineTypes.list", "machine types of each zone")
ACCELERATOR_TYPES = Call(
    COMPUTE,
    "acceleratorTypes.aggregatedList",
    "compute.acceleratorTypes.list",
    "naming the accelerators that are left out",
)
SKUS = Call(BILLING, "services.skus.list", "", "prices")
HISTORY = Call(COMPUTE, "advice.capacityHistory", "compute.advice.capacityHistory", "spot prices of the past year")
ADVICE = Call(COMPUTE, "advice.capacity", "compute.advice.capacity", "how likely Spot machines can be had")
PROJECT = Call(COMPUTE, "projects.get", "compute.projects.get", "the quota over all regions")
RESERVATIONS = Call(
    COMPUTE, "reservations.aggregatedList", "compute.reservations.list", "machines held for the account"
)
OPERATIONS = Call(
    COMPUTE, "globalOperations.aggregatedList", "compute.globalOperations.list", "machines that were taken back"
)

ALL = (REGIONS, MACHINE_TYPES, ACCELERATOR_TYPES, SKUS, HISTORY, ADVICE, PROJECT, RESERVATIONS, OPERATIONS)
