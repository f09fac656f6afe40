"""Calls of this adapter, each with the permission it needs.

``doctor`` tries those that ``role.yaml`` grants; ``provisioner.yaml`` grants those that find and end machines. The
permissions are those of the "IAM Permissions" section of each method in the Compute Engine REST reference. The price
catalogue needs none: any signed-in identity may read it, in a project where the Cloud Billing API is on.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPUTE = "compute"
BILLING = "billing"
ENDPOINTS = {COMPUTE: "https://compute.googleapis.com", BILLING: "https://cloudbilling.googleapis.com"}

# The name under which a project enables the API.
API_OF = {COMPUTE: "compute.googleapis.com", BILLING: "cloudbilling.googleapis.com"}


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One method of one service.

    ``permission`` "" is none beyond being signed in; ``role`` is the file beside this one that grants it.
    """

    service: str
    method: str
    permission: str
    needed_for: str
    role: str = "role.yaml"


REGIONS = ApiCall(COMPUTE, "regions.list", "compute.regions.list", "regions, zones and quotas")
MACHINE_TYPES = ApiCall(COMPUTE, "machineTypes.list", "compute.machineTypes.list", "machine types of each zone")
ACCELERATOR_TYPES = ApiCall(
    COMPUTE,
    "acceleratorTypes.aggregatedList",
    "compute.acceleratorTypes.list",
    "naming the accelerators that are left out",
)
SKUS = ApiCall(BILLING, "services.skus.list", "", "prices")
HISTORY = ApiCall(
    COMPUTE,
    "advice.capacityHistory",
    "compute.advice.capacityHistory",
    "spot prices of the past year, and how often Spot machines are preempted",
)
ADVICE = ApiCall(COMPUTE, "advice.capacity", "compute.advice.capacity", "how likely Spot machines can be obtained")
PROJECT = ApiCall(COMPUTE, "projects.get", "compute.projects.get", "the quota over all regions")
RESERVATIONS = ApiCall(
    COMPUTE, "reservations.aggregatedList", "compute.reservations.list", "machines reserved for the account"
)
OPERATIONS = ApiCall(
    COMPUTE, "globalOperations.aggregatedList", "compute.globalOperations.list", "machines that were preempted"
)


def _of_fleet(method: str, permission: str, needed_for: str) -> ApiCall:
    return ApiCall(COMPUTE, method, f"compute.{permission}", needed_for, "provisioner.yaml")


INSTANCES = _of_fleet("instances.aggregatedList", "instances.list", "machines by their label")
DISKS = _of_fleet("disks.aggregatedList", "disks.list", "disks by their label")
NETWORKS = _of_fleet("networks.list", "networks.list", "networks by their name")
SUBNETWORKS = _of_fleet("subnetworks.aggregatedList", "subnetworks.list", "subnetworks by their name")
FIREWALLS = _of_fleet("firewalls.list", "firewalls.list", "firewall rules by their name")
POLICIES = _of_fleet("resourcePolicies.aggregatedList", "resourcePolicies.list", "placement policies by their name")
INSTANCE = _of_fleet("instances.get", "instances.get", "whose a machine is")
DISK = _of_fleet("disks.get", "disks.get", "whose a disk is")
DELETE_INSTANCE = _of_fleet("instances.delete", "instances.delete", "ending machines")
DELETE_DISK = _of_fleet("disks.delete", "disks.delete", "deleting disks")
OPERATION = _of_fleet("zoneOperations.get", "zoneOperations.get", "whether a machine is gone")
