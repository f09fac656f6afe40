"""EC2 answers that moto does not give, or not as EC2 does, and the list of quotas."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tests.support import aws_service_pages as pages
from tests.support.aws_service_faults import Answer, error
from tests.support.aws_service_world import NEW_KNOWN, NEW_UNKNOWN, World, gpu_of, score

_NEW = (NEW_KNOWN, NEW_UNKNOWN)
_LARGEST_PAGE = 1000
_SCORED_TYPES = 3  # EC2 answers low to fewer
_SCORED_AT_ONCE = 10

# Names and values as the Service Quotas console shows them; EC2 has some two hundred more.
_QUOTAS = (
    ("Running On-Demand P instances", 384.0),
    ("Running On-Demand G and VT instances", 768.0),
    ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 5120.0),
    ("All P4, P3 and P2 Spot Instance Requests", 192.0),
    ("All P5 Spot Instance Requests", 576.0),
    ("All G and VT Spot Instance Requests", 0.0),
    ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 2560.0),
    ("Running Dedicated p5 Hosts", 0.0),
)


def quotas(region: str) -> list[dict[str, Any]]:
    fillers = [(f"Attachments of kind {index}", 5.0) for index in range(120)]
    return [
        {"ServiceCode": "ec2", "QuotaCode": f"L-{index:08X}", "QuotaName": name, "Value": value, "Unit": "None"}
        for index, (name, value) in enumerate([*fillers, *_QUOTAS])
    ]


class Ec2:
    """Thread-safe; pages of prices are kept as bytes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._rows: dict[tuple[Any, ...], Sequence[tuple[str, str, str, str, str]]] = {}
        self._pages: dict[tuple[Any, ...], bytes] = {}
        self._answers: Mapping[str, Callable[[str, Mapping[str, str], frozenset[str]], Answer]] = {
            "DescribeRegions": self._regions,
            "DescribeAvailabilityZones": self._zones,
            "DescribeInstanceTypeOfferings": self._offerings,
            "DescribeSpotPriceHistory": self._history,
            "GetSpotPlacementScores": self._scores,
            "DescribeCapacityBlockOfferings": self._blocks,
            "DescribeCapacityReservations": self._reservations,
        }

    def answer(self, action: str, region: str, parameters: Mapping[str, str], changes: frozenset[str]) -> Answer | None:
        """None: moto is to answer."""
        make = self._answers.get(action)
        if make is None or (action == "DescribeAvailabilityZones" and not region.startswith("eu-lab-")):
            return None
        if parameters.get("DryRun") == "true":
            return error("ec2", 412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
        return make(region, parameters, changes)

    def without_new_types(self, action: str, body: bytes) -> tuple[bytes, Sequence[str]]:
        """The request as moto can understand it, and the types that it does not know."""
        if action != "DescribeInstanceTypes":
            return body, ()
        form = parse_qsl(body.decode())
        names = [value for key, value in form if key.startswith("InstanceType.")]
        rest = [(key, value) for key, value in form if not key.startswith("InstanceType.")]
        known = [name for name in names if name not in _NEW] or ["t3.micro"]
        asked = [(f"InstanceType.{index}", name) for index, name in enumerate(known, start=1)]
        return urlencode([*rest, *asked]).encode(), [name for name in names if name in _NEW]

    def with_new_types(self, body: bytes, names: Sequence[str]) -> bytes:
        """moto's answer with what it does not know."""
        added = "".join(pages.described_new_type(name) for name in names).encode()
        return body.replace(b"</instanceTypeSet>", added + b"</instanceTypeSet>") if added else body

    def _regions(self, region: str, parameters: Mapping[str, str], _: frozenset[str]) -> Answer:
        rows = [(name, "opt-in-not-required") for name in self._world.regions]
        rows += [(name, "not-opted-in") for name in self._world.off]
        listed = (
            {"optInStatus": status, "regionName": name, "regionEndpoint": f"ec2.{name}.amazonaws.com"}
            for name, status in rows
            if status == "opt-in-not-required" or parameters.get("AllRegions") == "true"
        )
        return _xml(pages.xml("DescribeRegions", pages.items("regionInfo", listed)))

    def _zones(self, region: str, _: Mapping[str, str], __: frozenset[str]) -> Answer:
        rows = (
            {
                "optInStatus": "opt-in-not-required",
                "regionName": region,
                "zoneName": name,
                "zoneId": zone_id,
                "zoneType": "availability-zone",
                "zoneState": "available",
            }
            for name, zone_id in self._world.zones(region).items()
        )
        return _xml(pages.xml("DescribeAvailabilityZones", pages.items("availabilityZoneInfo", rows)))

    def _offerings(self, region: str, parameters: Mapping[str, str], _: frozenset[str]) -> Answer:
        patterns = [value for key, value in parameters.items() if key.startswith("Filter.1.Value.")] or ["*"]
        pairs = [
            pair for pair in self._world.sold(region) if any(fnmatchcase(pair[0], pattern) for pattern in patterns)
        ]
        start, size = _where(parameters)
        kind = parameters.get("LocationType", "region")
        rows = (
            {"instanceType": name, "locationType": kind, "location": zone_id}
            for name, zone_id in pairs[start : start + size]
        )
        following = f"<nextToken>{pages.token(start, size, len(pairs))}</nextToken>"
        return _xml(
            pages.xml("DescribeInstanceTypeOfferings", pages.items("instanceTypeOfferingSet", rows) + following)
        )

    def _history(self, region: str, parameters: Mapping[str, str], changes: frozenset[str]) -> Answer:
        names = tuple(sorted(value for key, value in parameters.items() if key.startswith("InstanceType.")))
        start, size = _where(parameters)
        asked = (region, names, parameters.get("StartTime", ""), changes)
        with self._lock:
            if asked not in self._rows:
                rows = self._since(region, frozenset(names), parameters.get("StartTime", ""))
                self._rows[asked] = pages.changed_prices(rows, changes) if rows else rows
            page = (*asked, start, size)
            if page not in self._pages:
                self._pages[page] = pages.price_page(self._rows[asked], start, size)
            return _xml(self._pages[page])

    def _since(self, region: str, names: frozenset[str], since: str) -> Sequence[tuple[str, str, str, str, str]]:
        """Changes after ``since``, and of each zone and type the one before it, which was in force then."""
        start = f"{datetime.fromisoformat(since):%Y-%m-%dT%H:%M:%S}.000Z" if since else ""
        rows, in_force = [], set()
        for row in self._world.history(region):
            at, name, _, zone_id, _ = row
            if names and name not in names:
                continue
            if at >= start or (name, zone_id) not in in_force:
                rows.append(row)
            if at < start:
                in_force.add((name, zone_id))
        return rows

    def _scores(self, region: str, parameters: Mapping[str, str], _: frozenset[str]) -> Answer:
        names = [value for key, value in parameters.items() if key.startswith("InstanceType.")]
        regions = [value for key, value in parameters.items() if key.startswith("RegionName.")]
        if len(regions) > _SCORED_AT_ONCE:
            return error("ec2", 400, "InvalidParameterValue", "You can specify up to 10 Regions.")
        machines = int(parameters["TargetCapacity"])
        best_of: dict[tuple[str, str], int] = {}
        for place in regions:
            for name, zone_id in self._world.sold(place):
                if name in names:
                    found = score(place, zone_id, name, machines) if len(set(names)) >= _SCORED_TYPES else 1
                    best_of[place, zone_id] = max(found, best_of.get((place, zone_id), 0))
        rows = [
            {"region": place, "availabilityZoneId": zone_id, "score": found}
            for (place, zone_id), found in best_of.items()
        ]
        best = sorted(rows, key=lambda row: -int(str(row["score"])))[:10]
        return _xml(pages.xml("GetSpotPlacementScores", pages.items("spotPlacementScoreSet", best)))

    def _blocks(self, region: str, parameters: Mapping[str, str], _: frozenset[str]) -> Answer:
        name, machines = parameters["InstanceType"], int(parameters["InstanceCount"])
        if gpu_of(name)[0] not in ("A100", "H100", "H200", "B200", "B300"):
            return error("ec2", 400, "Unsupported", f"{name} is not sold as capacity blocks.")
        ids = {zone_id: zone for zone, zone_id in self._world.zones(region).items()}
        rows = (
            {
                "capacityBlockOfferingId": f"cb-{zone_id}",
                "instanceType": name,
                "availabilityZone": ids[zone_id],
                "instanceCount": machines,
                "capacityBlockDurationHours": 24,
                "upfrontFee": "1000.00",
                "currencyCode": "USD",
                "startDate": "2026-11-22T11:30:00Z",
                "endDate": "2026-11-23T11:30:00Z",
            }
            for sold, zone_id in self._world.sold(region)
            if sold == name
        )
        return _xml(pages.xml("DescribeCapacityBlockOfferings", pages.items("capacityBlockOfferingSet", rows)))

    def _reservations(self, region: str, _: Mapping[str, str], __: frozenset[str]) -> Answer:
        """In the first region: one that is free in part, a capacity block, and three that do not count."""
        zone_id = sorted(self._world.zones(region).values())[0]
        base = {
            "availabilityZoneId": zone_id,
            "instancePlatform": "Linux/UNIX",
            "state": "active",
            "startDate": "2026-11-01T00:00:00.000Z",
        }
        rows = [
            {
                **base,
                "capacityReservationId": "cr-1",
                "instanceType": "p5.48xlarge",
                "totalInstanceCount": 4,
                "availableInstanceCount": 3,
                "endDateType": "unlimited",
            },
            {
                **base,
                "capacityReservationId": "cr-2",
                "instanceType": "p5e.48xlarge",
                "totalInstanceCount": 2,
                "availableInstanceCount": 0,
                "state": "scheduled",
                "endDate": "2026-12-01T11:30:00.000Z",
                "reservationType": "capacity-block",
            },
            {
                **base,
                "capacityReservationId": "cr-3",
                "instanceType": "p5.48xlarge",
                "totalInstanceCount": 8,
                "availableInstanceCount": 0,
                "state": "expired",
            },
            {
                **base,
                "capacityReservationId": "cr-4",
                "instanceType": "g5.xlarge",
                "totalInstanceCount": 8,
                "availableInstanceCount": 8,
                "instancePlatform": "Windows",
            },
            {
                **base,
                "capacityReservationId": "cr-5",
                "instanceType": "m5.large",
                "totalInstanceCount": 8,
                "availableInstanceCount": 8,
            },
        ]
        mine = rows if region == self._world.regions[0] else ()
        return _xml(pages.xml("DescribeCapacityReservations", pages.items("capacityReservationSet", mine)))


def _xml(body: bytes) -> Answer:
    return Answer(body, "text/xml;charset=UTF-8")


def _where(parameters: Mapping[str, str]) -> tuple[int, int]:
    size = min(int(parameters.get("MaxResults") or _LARGEST_PAGE), _LARGEST_PAGE)
    return int(parameters.get("NextToken") or 0), size
