"""API calls that find and end the resources of attempts in an account. ``provisioner.json`` grants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from providers.aws.client import AwsClient
from providers.fleet import ATTEMPT_TAG

Row = Mapping[str, Any]

TAGGING = "resourcegroupstaggingapi"
_PAGE = 1000
_TAGGED_PAGE = 100
_ALIVE = ("pending", "running", "shutting-down", "stopping", "stopped")
_FILTER = {"Name": "tag-key", "Values": [ATTEMPT_TAG]}


class InventoryClient(AwsClient):
    """List and end resources that carry the tag; see :class:`providers.aws.client.AwsClient`."""

    POLICY = "provisioner.json"

    def instances(self, region: str) -> Sequence[Row]:
        """Return reservations with instances that are not terminated."""
        alive = {"Name": "instance-state-name", "Values": list(_ALIVE)}
        return self._all("ec2", "DescribeInstances", region, "Reservations", Filters=[_FILTER, alive], MaxResults=_PAGE)

    def list_tagged(self, region: str, action: str, key: str) -> Sequence[Row]:
        """Return the rows of one of EC2's lists that carry the tag, in every state that EC2 still lists."""
        # EC2 gives all elastic IPs at once.
        paging = {} if action == "DescribeAddresses" else {"MaxResults": _PAGE}
        return self._all("ec2", action, region, key, Filters=[_FILTER], **paging)

    def tagged(self, region: str) -> Sequence[Row]:
        """Return every tagged resource of the region, of any service, by ARN."""
        return self._all(
            TAGGING,
            "GetResources",
            region,
            "ResourceTagMappingList",
            token_name="PaginationToken",
            TagFilters=[{"Key": ATTEMPT_TAG}],
            ResourcesPerPage=_TAGGED_PAGE,
        )

    def requests_of(self, region: str, instance_ids: Sequence[str]) -> Sequence[str]:
        """Return ids of the spot requests that these instances fulfil."""
        mine = {"Name": "instance-id", "Values": list(instance_ids)}
        rows = self._all("ec2", "DescribeSpotInstanceRequests", region, "SpotInstanceRequests", Filters=[mine])
        return [str(row["SpotInstanceRequestId"]) for row in rows if row.get("SpotInstanceRequestId")]

    def in_use(self, region: str, allocation_id: str) -> bool:
        """Return whether something uses an elastic IP."""
        rows = self._listed("ec2", "DescribeAddresses", region, "Addresses", AllocationIds=[allocation_id])
        return any(row.get("AssociationId") for row in rows)

    def terminate(self, region: str, instance_ids: Sequence[str]) -> None:
        """Terminate all of the instances or, when one id is refused, none."""
        self._ask("ec2", "TerminateInstances", region, InstanceIds=list(instance_ids))

    def cancel(self, region: str, request_ids: Sequence[str]) -> None:
        """Cancel spot requests; their machines keep running."""
        self._ask("ec2", "CancelSpotInstanceRequests", region, SpotInstanceRequestIds=list(request_ids))

    def delete(self, region: str, action: str, parameter: str, id_: str) -> None:
        """Make one deleting call that takes one id."""
        self._ask("ec2", action, region, **{parameter: id_})
