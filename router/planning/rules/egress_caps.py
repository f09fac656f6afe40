"""Bound what leaves a cloud in a month: by the limits file for all moves of a plan, by a job's file for its own.

A cap of the limits file is one row a cloud and month: Σ gigabytes of moves <= cap - what left this month before. In
loads and rows it stands beside the limits, under the name of :func:`cap_name` and slot 0. A move counts in the month in
which its job first uses the region.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pricing.places import RegionId
from pricing.units import BYTES_PER_GB, gb_to_bytes
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.planning.find.shared_limits import Load
from router.planning.find.transfers import Transfer
from router.planning.problem.egress_to_date import moved_before
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold
from router.planning.rules.program import ProgramBuilder, ProgramLayout, limit_row

_ROUNDING = 1e-6  # gigabytes
CAP_WORDS = " GB of the egress cap of "


def cap_name(cloud: str, month: str) -> str:
    """Return the name of a cloud's cap in a month."""
    return f"egress cap of {cloud} in {month}"


def caps_by_month(problem: PlacementProblem) -> Mapping[tuple[str, str], float]:
    """Return what each cap leaves of each month for this plan, in gigabytes, by cloud and month, sorted."""
    months = sorted({slot.month for slot in problem.slots}) if problem.limits.egress_caps_gb else ()
    return {
        (cloud, month): _room_gb(problem, cloud, month)
        for cloud in sorted(problem.limits.egress_caps_gb)
        for month in months
    }


def _room_gb(problem: PlacementProblem, cloud: str, month: str) -> float:
    room = gb_to_bytes(problem.limits.egress_caps_gb[cloud]) - moved_before(problem, cloud, month)
    return max(0, room) / BYTES_PER_GB


def leaving_gb(limits: Limits, transfers: Iterable[Transfer], to: RegionId) -> Mapping[str, float]:
    """Return the gigabytes that leave each capped cloud for another one, by cloud."""
    leaving: dict[str, float] = {}
    if not limits.egress_caps_gb:
        return leaving
    for transfer in transfers:
        cloud = transfer.source.cloud
        if cloud in limits.egress_caps_gb and cloud != to.cloud:
            leaving[cloud] = leaving.get(cloud, 0.0) + transfer.volume_bytes / BYTES_PER_GB
    return leaving


def gb_by_cap(problem: PlacementProblem, job: Job, holds: Sequence[SlotHold]) -> Load:
    """Return what the holdings, in order of time, take of caps: each region in the month of its first slot."""
    taken: Load = {}
    regions: set[RegionId] = set()
    candidates: dict[str, Candidate] = {}
    for hold in holds if problem.limits.egress_caps_gb else ():
        if hold.key not in candidates:
            candidates[hold.key] = problem.candidate(job.name, hold.key)
        candidate = candidates[hold.key]
        if candidate.region not in regions:
            regions.add(candidate.region)
            for cloud, gb in leaving_gb(problem.limits, candidate.transfers, candidate.region).items():
                place = cap_name(cloud, hold.slot.month), 0
                taken[place] = taken.get(place, 0.0) + gb
    return taken


def have_room(problem: PlacementProblem, job: Job, holds: Sequence[SlotHold], load: Load) -> bool:
    """Return whether all caps leave room for the job's moves beside ``load``."""
    taken = gb_by_cap(problem, job, holds)
    room = {(cap_name(*cap), 0): gb for cap, gb in caps_by_month(problem).items()} if taken else {}
    return all(load.get(place, 0.0) + gb <= room[place] + _ROUNDING for place, gb in taken.items())


def full_cap(problem: PlacementProblem, candidate: Candidate, load: Load, month: str) -> tuple[str, float] | None:
    """Return the first cloud whose cap lacks room for the candidate's moves in the month, and what is missing."""
    for cloud, gb in leaving_gb(problem.limits, candidate.transfers, candidate.region).items():
        missing = load.get((cap_name(cloud, month), 0), 0.0) + gb - _room_gb(problem, cloud, month)
        if missing > _ROUNDING:
            return cloud, missing
    return None


def month_matters(problem: PlacementProblem, candidate: Candidate) -> bool:
    """Return whether the month counts in which moves into the candidate's region are made."""
    paid = any(not transfer.free for transfer in candidate.transfers)
    return paid or bool(leaving_gb(problem.limits, candidate.transfers, candidate.region))


def may_combine(limits: Limits, region: RegionId, other: RegionId) -> bool:
    """Return whether a job may take its checkpoint from one region to another and back: a cap keeps it in its cloud."""
    caps = limits.egress_caps_gb
    return region.cloud == other.cloud or (region.cloud not in caps and other.cloud not in caps)


def add_cap_rows(builder: ProgramBuilder, layout: ProgramLayout, problem: PlacementProblem) -> None:
    """Add Σ gigabytes y_jrm <= what each cap leaves of the month."""
    terms: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for (job, region, month), y in layout.y.items() if problem.limits.egress_caps_gb else ():
        example = next(c for c in problem.candidates[job] if c.region == region)
        for cloud, gb in leaving_gb(problem.limits, example.transfers, region).items():
            terms.setdefault((cloud, month), []).append((y, gb))
    for (cloud, month), moves in sorted(terms.items()):
        name = cap_name(cloud, month)
        room = _room_gb(problem, cloud, month) - problem.held.get((name, 0), 0.0)
        builder.row(limit_row(name, 0), moves, "<=", room)


def add_job_cap_rows(
    builder: ProgramBuilder, layout: ProgramLayout, job: Job, by_region: Mapping[RegionId, Sequence[Candidate]]
) -> None:
    """Add Σ bytes (or dollars) y_jrm <= the job's own cap, for a job that may use several regions."""
    cap = job.data.egress_cap if job.data else None
    for unit in ("gib", "usd"):
        limit = getattr(cap, unit, None)
        if limit is None:
            continue
        amount = limit if unit == "gib" else limit.dollars()
        moved = {
            region: sum(t.gib if unit == "gib" else t.dearest.dollars() for t in candidates[0].transfers)
            for region, candidates in by_region.items()
        }
        uses = sorted((region, month, y) for (name, region, month), y in layout.y.items() if name == job.name)
        terms = [(y, moved[region]) for region, _, y in uses if moved[region]]
        builder.row(f"egress cap {unit} {job.name}", terms, "<=", amount)


def without_cap(problem: PlacementProblem, cloud: str) -> PlacementProblem:
    """Return the problem in which nothing bounds what leaves the cloud."""
    caps = {name: cap for name, cap in problem.limits.egress_caps_gb.items() if name != cloud}
    return replace(problem, limits=problem.limits.model_copy(update={"egress_caps_gb": caps}))


def cap_increase(missing_gb: float, cloud: str) -> str:
    """Return the relaxation in words: what the cap lacks, in whole gigabytes."""
    return f"+{math.ceil(missing_gb - _ROUNDING):,}{CAP_WORDS}{cloud}"
