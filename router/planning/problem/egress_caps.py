"""Count what leaves capped clouds: the most gigabytes a month that the limits file allows for all moves of a plan.

A cap is one row a cloud and month: Σ gigabytes of moves <= cap - what left this month before. In loads and rows it
stands beside the limits, under the name of :func:`cap_name` and slot 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pricing.egress import INTERNET, Tariff
from pricing.places import RegionId
from pricing.units import BYTES_PER_GB, gb_to_bytes
from router.jobs.limits import Limits
from router.planning.find.candidate import Candidate
from router.planning.find.transfers import Transfer
from router.planning.problem.problem import PlacementProblem

_ROUNDING = 1e-6  # gigabytes
Place = tuple[str, int]


def cap_name(cloud: str, month: str) -> str:
    """Return the name of a cloud's cap in a month."""
    return f"egress cap of {cloud} in {month}"


def cap_place(cloud: str, month: str) -> Place:
    """Return where loads count what leaves the cloud in the month."""
    return cap_name(cloud, month), 0


def leaving_gb(limits: Limits, transfers: Iterable[Transfer], to: RegionId) -> Mapping[str, float]:
    """Return the gigabytes that leave each capped cloud for another one, by cloud."""
    found: dict[str, float] = {}
    if not limits.egress_caps_gb:
        return found
    for transfer in transfers:
        cloud = transfer.source.cloud
        if cloud in limits.egress_caps_gb and cloud != to.cloud:
            found[cloud] = found.get(cloud, 0.0) + transfer.volume_bytes / BYTES_PER_GB
    return found


def cap_room_gb(problem: PlacementProblem, cloud: str, month: str) -> float:
    """Return what the cap leaves of the month for this plan."""
    room = gb_to_bytes(problem.limits.egress_caps_gb[cloud])
    if month == problem.now.strftime("%Y-%m"):
        room -= gb_to_bytes(problem.limits.egress_month_to_date_gb.get(cloud, 0))
    return max(0, room) / BYTES_PER_GB


def may_combine(limits: Limits, one: RegionId, other: RegionId) -> bool:
    """Return whether a job may take its checkpoint from one region to another and back: a cap keeps it in its cloud."""
    caps = limits.egress_caps_gb
    return one.cloud == other.cloud or (one.cloud not in caps and other.cloud not in caps)


def full_cap(
    problem: PlacementProblem, candidate: Candidate, load: Mapping[Place, float], month: str
) -> tuple[str, float] | None:
    """Return the first cloud whose cap lacks room for the candidate's moves in the month, and what is missing."""
    for cloud, gb in leaving_gb(problem.limits, candidate.transfers, candidate.region).items():
        missing = load.get(cap_place(cloud, month), 0.0) + gb - cap_room_gb(problem, cloud, month)
        if missing > _ROUNDING:
            return cloud, missing
    return None


def month_matters(problem: PlacementProblem, candidate: Candidate) -> bool:
    """Return whether the month counts in which moves into the candidate's region are made."""
    paid = any(not transfer.free for transfer in candidate.transfers)
    return paid or bool(leaving_gb(problem.limits, candidate.transfers, candidate.region))


def already_moved(problem: PlacementProblem, tariff: Tariff, month: str) -> int:
    """Return the bytes that count on the meter before this plan.

    That is the limits file's figure, this month, on internet meters.
    """
    if tariff.scope != INTERNET or month != problem.now.strftime("%Y-%m"):
        return 0
    return gb_to_bytes(problem.limits.egress_month_to_date_gb.get(tariff.cloud, 0))


def allowance_left(problem: PlacementProblem, cloud: str, month: str) -> int:
    """Return the bytes that the account may still move free in the month."""
    total = problem.book.egress.allowances.get(cloud, 0)
    if month != problem.now.strftime("%Y-%m"):
        return total
    return max(0, total - gb_to_bytes(problem.limits.egress_month_to_date_gb.get(cloud, 0)))
