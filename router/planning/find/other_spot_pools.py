"""Find the spot pool to which a gang of a job goes when its own is a bad one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pricing.money import Usd
from pricing.offers import Offer
from pricing.places import Market, RegionId
from pricing.risk import GangRisk
from pricing.units import gib_to_bytes
from router.jobs.limits import Limits
from router.jobs.other_pools import OtherPools
from router.jobs.spec import Job
from router.jobs.speed import Speed
from router.planning.find.candidate import GangPart
from router.planning.find.gang_rates import TYPICAL_LIFE
from router.planning.find.transfers import Routes, Transfer, transfer_usd


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

    def __init__(self, job: Job, routes: Routes, limits: Limits) -> None:
        self._job, self._routes, self._limits = job, routes, limits
        self._gangs: dict[int, list[SpotGang]] = {}
        self._by_cost: dict[int, list[SpotGang]] = {}
        self._moves: dict[tuple[int, int], float] = {}

    def add(
        self, part: GangPart, accelerators: int, speed: Speed, risk: GangRisk, transfers: Iterable[Transfer]
    ) -> None:
        """Add a gang of this part before the first is asked for; only one on spot that can be ordered is kept."""
        offer = part.offer
        if offer.market is not Market.SPOT or not offer.provisionable:
            return
        paid = [t for t in transfers if not t.free and t.what != "checkpoint"]
        moved = Usd.total(transfer_usd(t.tariff, t.volume_bytes, self._limits) for t in paid)
        gang = SpotGang(offer, offer.region_id, _usd_per_step(part, speed), risk.per_hour_over(TYPICAL_LIFE), moved)
        self._gangs.setdefault(accelerators, []).append(gang)

    def find(
        self, part: GangPart, accelerators: int, speed: Speed, risk: GangRisk, usd_per_hour: float, steps: int
    ) -> tuple[str, OtherPools] | None:
        """Return where a gang goes on that leaves the pool of its spot part, and at what cost; None where it stays."""
        own, hours = _usd_per_step(part, speed), steps / speed.steps_per_hour
        if own <= 0:
            return None
        usual, region = risk.per_hour_over(TYPICAL_LIFE), part.offer.region_id
        best: tuple[float, str, OtherPools] | None = None
        for gang in self._sorted(accelerators):
            ratio = max(1.0, gang.usd_per_step / own)
            if best is not None and ratio * hours >= best[0]:
                break  # the move only adds to it
            if gang.region == region and _same_pool(gang.offer, part.offer):
                continue
            # All of the cost grows with the interruptions at most as they do.
            ratio *= max(1.0, gang.lost_per_hour / usual) if usual > 0 else 1.0
            if best is not None and ratio * hours >= best[0]:
                continue
            move = self._move_usd(region, gang)
            if move is None:
                continue
            found = OtherPools(ratio, move / usd_per_hour)
            cost = found.price_ratio * hours + found.move_hours
            if best is None or cost < best[0]:
                best = cost, gang.name, found
        return None if best is None else best[1:]

    def _sorted(self, accelerators: int) -> Sequence[SpotGang]:
        gangs = self._by_cost.get(accelerators)
        if gangs is None:
            gangs = sorted(self._gangs.get(accelerators, ()), key=lambda gang: gang.rank)
            self._by_cost[accelerators] = gangs
        return gangs

    def _move_usd(self, region: RegionId, to: SpotGang) -> float | None:
        """Return the dollars of bringing data and checkpoint to another pool; None where it may not go there."""
        if to.region == region:
            return 0.0
        if self._job.group is not None:
            return None  # a group that runs stays in its region
        if self._job.checkpoint is None:
            return to.moved.dollars()
        tariff = self._routes.tariff(region, to.region)
        if tariff is None:
            return None
        key = id(tariff), to.moved.nanos  # a tariff takes long to hash; those of a book live as long as it
        if key not in self._moves:
            saved = Transfer("checkpoint", region, tariff, gib_to_bytes(self._job.checkpoint.size_gib))
            usd = Usd(0) if saved.free else transfer_usd(tariff, saved.volume_bytes, self._limits)
            self._moves[key] = (usd + to.moved).dollars()
        return self._moves[key]


def _usd_per_step(part: GangPart, speed: Speed) -> float:
    accelerators = part.machine.accelerator_count
    return part.offer.usd_per_hour.dollars() / accelerators / speed.steps_per_hour


def _same_pool(offer: Offer, other: Offer) -> bool:
    """Return whether two offers of a region may be of the same machines: one without a zone may be of any."""
    return offer.instance_type == other.instance_type and (
        offer.zone == other.zone or offer.zone is None or other.zone is None
    )
