"""Find the spot pool to which a gang of a job goes when its own is a bad one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pricing.money import Usd
from pricing.offers import Offer
from pricing.places import Market, RegionId
from router.jobs.other_pools import OtherPools
from router.jobs.spec import Job
from router.jobs.speed import Speed
from router.planning.find.candidate import GangPart
from router.planning.find.transfers import Routes, Transfer

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SpotGang:
    """A spot gang on one offer that could run the job.

    ``usd_per_step`` is of one accelerator, without interruptions; ``lost_per_hour`` how often the gang is interrupted
    in the mean, ``moved`` what bringing the data there costs.
    """

    offer: Offer
    region: RegionId
    usd_per_step: float
    lost_per_hour: float
    moved: Usd

    @property
    def name(self) -> str:
        """Return the pool's name, such as ``aws/us-east-1/us-east-1a/p5.48xlarge``."""
        zone = () if self.offer.zone is None else (self.offer.zone,)
        return "/".join((str(self.region), *zone, self.offer.instance_type))

    @property
    def rank(self) -> tuple[float, str]:
        """Return by what the cheapest is chosen."""
        return self.usd_per_step, self.name


class OtherPoolFinder:
    """Finds the cheapest other pool for each spot gang of one job, of those on which its rules let it run.

    A pool that is interrupted more often counts as dearer in that proportion.
    """

    def __init__(self, job: Job, routes: Routes) -> None:
        self._job, self._routes = job, routes
        self._gangs: dict[int, list[SpotGang]] = {}
        self._moved: dict[RegionId, Usd] = {}
        self._tables: dict[int, _PoolTable] = {}

    def add(
        self, part: GangPart, accelerators: int, speed: Speed, lost_per_hour: float, transfers: Iterable[Transfer]
    ) -> None:
        """Add a gang of this part before the first is asked for; only one on spot that can be ordered is kept."""
        offer = part.offer
        if offer.market is not Market.SPOT or not offer.provisionable:
            return
        region = offer.region_id
        if region not in self._moved:
            self._moved[region] = self._routes.total_usd(t for t in transfers if t.what != "checkpoint")
        gang = SpotGang(offer, region, _usd_per_step(part, speed), lost_per_hour, self._moved[region])
        self._gangs.setdefault(accelerators, []).append(gang)

    def find(
        self, part: GangPart, accelerators: int, speed: Speed, lost_per_hour: float, usd_per_hour: float, steps: int
    ) -> tuple[str, OtherPools] | None:
        """Return where a gang goes on that leaves the pool of its spot part, and at what cost; None where it stays."""
        own, hours = _usd_per_step(part, speed), steps / speed.steps_per_hour
        table = self._table(accelerators)
        if own <= 0 or not table.gangs:
            return None
        ratio = np.maximum(1.0, table.usd_per_step / own)
        if lost_per_hour > 0:
            # All of the cost grows with the interruptions at most as they do.
            ratio *= np.maximum(1.0, table.lost_per_hour / lost_per_hour)
        move_hours = self._moves_usd(table, part.offer.region_id) / usd_per_hour
        cost = ratio * hours + move_hours
        cost[table.same_pools(part.offer)] = np.inf
        best = int(cost.argmin())  # of equal ones the first by rank
        if np.isinf(cost[best]):
            return None
        return table.gangs[best].name, OtherPools(float(ratio[best]), float(move_hours[best]))

    def _table(self, accelerators: int) -> _PoolTable:
        table = self._tables.get(accelerators)
        if table is None:
            table = self._tables[accelerators] = _PoolTable.of(self._gangs.get(accelerators, ()))
        return table

    def _moves_usd(self, table: _PoolTable, region: RegionId) -> Floats:
        """Return the dollars of bringing data and checkpoint to each pool; infinity where the gang may not go there."""
        moves = table.moves_usd.get(region)
        if moves is None:
            by_target = np.array(self._targets_usd(table.targets, region))
            by_target[table.targets_by_region.get(region, [])] = 0.0
            moves = table.moves_usd[region] = by_target[table.target]
        return moves

    def _targets_usd(self, targets: Sequence[tuple[RegionId, Usd]], region: RegionId) -> list[float]:
        """Return the dollars of bringing data and checkpoint to each other region."""
        if self._job.group is not None:
            return [np.inf] * len(targets)  # a group that runs stays in its region
        moves = self._routes.moves_usd(region, [to for to, _ in targets], self._job.checkpoint)
        return [
            np.inf if saved is None else (saved + moved).dollars()
            for (_, moved), saved in zip(targets, moves, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _PoolTable:
    """Pools for gangs of one size by rank, as columns: each spot gang of a job is held against all of them.

    ``by_place``: numbers of the pools of one machine type in one region. ``targets``: regions with the cost of data
    there, to which ``target`` has the number for each pool, and ``targets_by_region`` those of a region. ``moves_usd``:
    of each pool, by the region that a gang leaves, as they are asked for.
    """

    gangs: Sequence[SpotGang]
    usd_per_step: Floats
    lost_per_hour: Floats
    by_place: Mapping[tuple[RegionId, str], Sequence[int]]
    targets: Sequence[tuple[RegionId, Usd]]
    target: npt.NDArray[np.intp]
    targets_by_region: Mapping[RegionId, Sequence[int]]
    moves_usd: dict[RegionId, Floats]

    @classmethod
    def of(cls, gangs: Iterable[SpotGang]) -> _PoolTable:
        """Return the table of these gangs."""
        ranked = sorted(gangs, key=lambda gang: gang.rank)
        by_place: dict[tuple[RegionId, str], list[int]] = {}
        targets: dict[tuple[RegionId, Usd], int] = {}
        target: list[int] = []
        targets_by_region: dict[RegionId, list[int]] = {}
        for number, gang in enumerate(ranked):
            region = gang.region
            by_place.setdefault((region, gang.offer.instance_type), []).append(number)
            target.append(targets.setdefault((region, gang.moved), len(targets)))
        for (region, _), number in targets.items():
            targets_by_region.setdefault(region, []).append(number)
        return cls(
            ranked,
            np.array([gang.usd_per_step for gang in ranked]),
            np.array([gang.lost_per_hour for gang in ranked]),
            by_place,
            tuple(targets),
            np.array(target, dtype=np.intp),
            targets_by_region,
            {},
        )

    def same_pools(self, offer: Offer) -> list[int]:
        """Return the pools that may be of the same machines as the offer: one without a zone may be of any."""
        zones = {None, offer.zone}
        numbers = self.by_place.get((offer.region_id, offer.instance_type), ())
        return [n for n in numbers if offer.zone is None or self.gangs[n].offer.zone in zones]


def _usd_per_step(part: GangPart, speed: Speed) -> float:
    accelerators = part.machine.accelerator_count
    return part.offer.usd_per_hour.dollars() / accelerators / speed.steps_per_hour
