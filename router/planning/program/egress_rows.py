"""Add egress to the program: a month's volume on a meter through its tiers, and one free allowance an account.

V = Σ seg_k with segments filled in order: seg_k >= size_k b_k, seg_(k+1) <= size_(k+1) b_k, b binary, needed only where
some later tier in reach is cheaper than an earlier one. Of the allowance tier, f is really free (Σ over meters of the
cloud at most what is left), the rest costs the next tier's price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pricing.egress import Tariff
from pricing.places import RegionId
from pricing.units import BYTES_PER_GB
from router.planning.problem.egress_to_date import allowance_left, already_moved
from router.planning.problem.problem import PlacementProblem
from router.planning.rules.program import ProgramBuilder


@dataclass(slots=True)
class _Meter:
    tariff: Tariff
    month: str
    volumes: list[tuple[int, int]]  # (variable, bytes)


def add_egress(builder: ProgramBuilder, y: Mapping[tuple[str, RegionId, str], int], problem: PlacementProblem) -> None:
    """Add the rows and costs of all moves."""
    meters: dict[tuple[str, str], _Meter] = {}
    for (job, region, month), variable in y.items():
        example = next(c for c in problem.candidates[job] if c.region == region)
        for transfer in example.transfers:
            # With several regions the checkpoint comes from the previous region, which is charged in costing.
            if transfer.free or (transfer.what == "checkpoint" and problem.job[job].gang.regions > 1):
                continue
            meter = meters.setdefault((transfer.tariff.meter, month), _Meter(transfer.tariff, month, []))
            meter.volumes.append((variable, transfer.volume_bytes))
    free: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for (name, month), meter in sorted(meters.items(), key=lambda item: item[0]):
        taken = _meter_rows(builder, meter, already_moved(problem, meter.tariff, month), f"{name} {month}")
        if taken is not None:
            free.setdefault((meter.tariff.cloud, month), []).append((taken, 1.0))
    for (cloud, month), terms in sorted(free.items()):
        left = allowance_left(problem, cloud, month) / BYTES_PER_GB
        builder.row(f"free allowance {cloud} {month}", terms, "<=", left)


def _meter_rows(builder: ProgramBuilder, meter: _Meter, already: int, name: str) -> int | None:
    """Add the segments and the volume of one meter in GB; return the variable of the free part, if there is one."""
    reach = sum(volume for _, volume in meter.volumes)
    parts, free = add_segments(builder, meter.tariff, already, reach, name)
    volume = [(variable, -volume / BYTES_PER_GB) for variable, volume in meter.volumes]
    builder.row(f"volume {name}", [*((p, 1.0) for p in parts), *volume], "==", 0.0)
    return free


def add_segments(
    builder: ProgramBuilder, tariff: Tariff, already: int, reach: int, name: str
) -> tuple[list[int], int | None]:
    """Add the segments of one meter in GB, for at most ``reach`` bytes more; return them and the free part's variable.

    The free part is None where no allowance tier is in reach.
    """
    most = already + reach
    parts: list[int] = []
    prices: list[float] = []
    sizes: list[float] = []
    free: int | None = None
    for index, tier in enumerate(tariff.tiers):
        end = most if tier.to_bytes is None else min(tier.to_bytes, most)
        size = (end - max(tier.from_bytes, already)) / BYTES_PER_GB
        if size <= 0:
            continue
        price = tier.price
        if index == 0 and tariff.allowance_bytes:
            price = tariff.after_allowance
        segment = builder.variable(f"seg {index} {name}", high=size, cost=price.dollars())
        if index == 0 and tariff.allowance_bytes:
            free = builder.variable(f"free {name}", high=size, cost=-price.dollars())
            builder.row(f"free part {name}", [(free, 1.0), (segment, -1.0)], "<=", 0.0)
        parts.append(segment)
        prices.append(price.dollars())
        sizes.append(size)
    for k in range(len(parts) - 1):
        if min(prices[k + 1 :]) < max(prices[: k + 1]):
            full = builder.binary(f"tier {k} full {name}")
            builder.row(f"fill {k} {name}", [(full, sizes[k]), (parts[k], -1.0)], "<=", 0.0)
            builder.row(f"open {k + 1} {name}", [(parts[k + 1], 1.0), (full, -sizes[k + 1])], "<=", 0.0)
    return parts, free
