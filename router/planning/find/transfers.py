"""Determine which bytes must move for a job to use a region, and on which tariff."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pricing.book import PriceBook
from pricing.egress import INTERNET, Tariff
from pricing.money import Usd, divide_half_even
from pricing.places import Region, RegionId
from pricing.units import BYTES_PER_GB, BYTES_PER_GIB, gb_to_bytes, gib_to_bytes
from router.jobs.limits import Limits
from router.jobs.spec import Checkpoint, Job

# Rate of one stream between two regions, where none was measured; clouds advertise several times as much.
TRANSFER_GIB_PER_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes to move into a region once; ``what`` is data, stream or checkpoint."""

    what: str
    source: RegionId
    tariff: Tariff
    volume_bytes: int

    @property
    def free(self) -> bool:
        """Return whether no tier of the tariff has a price."""
        return self.tariff.top_price.nanos == 0

    @property
    def dearest(self) -> Usd:
        """Return the cost at the tariff's dearest tier, which budgets and dollar caps count."""
        return Usd(divide_half_even(self.volume_bytes * self.tariff.top_price.nanos, BYTES_PER_GB))

    @property
    def gib(self) -> float:
        """Return the volume in GiB."""
        return self.volume_bytes / BYTES_PER_GIB


@dataclass(frozen=True, slots=True)
class UnknownTariff:
    """A route on which no price of moving bytes is known: what goes there cannot be planned."""

    source: RegionId
    to: RegionId

    @property
    def reason(self) -> str:
        """Return what is unknown, in words."""
        return f"no known egress tariff from {self.source} to {self.to}"


class Routes:
    """Computes what moving bytes costs by one book and limits file; a checkpoint's move once for all jobs."""

    def __init__(self, book: PriceBook, limits: Limits) -> None:
        self.book, self._limits = book, limits
        self._moves: dict[tuple[RegionId, int], dict[RegionId, Usd | None]] = {}

    def total_usd(self, transfers: Iterable[Transfer]) -> Usd:
        """Return the cost of transfers, as :func:`transfer_usd`."""
        return Usd.total(transfer_usd(t.tariff, t.volume_bytes, self._limits) for t in transfers if not t.free)

    def moves_usd(self, source: RegionId, targets: Sequence[RegionId], saved: Checkpoint | None) -> list[Usd | None]:
        """Return the cost of moving the checkpoint from a region to each target; None where no tariff is known."""
        if saved is None:
            return [Usd(0) for _ in targets]
        volume = gib_to_bytes(saved.size_gib)
        costs = self._moves.setdefault((source, volume), {})
        for to in targets:
            if to not in costs:
                costs[to] = self._move_usd(source, to, volume)
        return [costs[to] for to in targets]

    def _move_usd(self, source: RegionId, to: RegionId, volume_bytes: int) -> Usd | None:
        tariff = tariff_of(source, to, self.book)
        return None if tariff is None else transfer_usd(tariff, volume_bytes, self._limits)


def transfer_usd(tariff: Tariff, volume_bytes: int, limits: Limits) -> Usd:
    """Return the cost of moving these bytes, at the tier where the limits file says this month stands.

    Free allowances are not counted on.
    """
    internet = tariff.scope == INTERNET
    already = gb_to_bytes(limits.egress_month_to_date_gb.get(tariff.cloud, 0)) if internet else 0
    return tariff.cost_of(already, volume_bytes, 0)


def transfers_into(job: Job, region: Region, book: PriceBook) -> tuple[Transfer, ...] | UnknownTariff:
    """Return what has to be moved into ``region`` (nothing with no bytes), or why its cost is unknown.

    Data that are copied move once unless they are there already; streamed data are read in full for what is left of the
    job; a checkpoint moves where the job has steps done. Only what crosses a region's border is listed.
    """
    wanted: list[tuple[str, RegionId, int]] = []
    data, status = job.data, job.status
    if data is not None and data.at != region.id:
        if data.mode == "stream":
            passes = Fraction(data.passes) * Fraction(job.steps_left, job.steps)
            wanted.append(("stream", data.at, round(gib_to_bytes(data.gib) * passes)))
        elif status is None or region.id not in status.data_in:
            wanted.append(("data", data.at, gib_to_bytes(data.gib)))
    if job.checkpoint is not None and status is not None and status.steps_done > 0:
        home = checkpoint_home(job)
        if home is not None and home != region.id:
            wanted.append(("checkpoint", home, gib_to_bytes(job.checkpoint.size_gib)))
    found: list[Transfer] = []
    for what, source, volume in wanted:
        if volume == 0:
            continue
        tariff = _tariff(source, region, book)
        if tariff is None:
            return UnknownTariff(source, region.id)
        found.append(Transfer(what, source, tariff, volume))
    return tuple(found)


def checkpoint_home(job: Job) -> RegionId | None:
    """Return the region of the job's checkpoint: as stated, else where the job runs; None when neither is known."""
    status = job.status
    if status is None:
        return None
    if status.checkpoint_in is not None:
        return status.checkpoint_in
    return RegionId(status.running.cloud, status.running.region) if status.running else None


def checkpoint_transfer(job: Job, source: RegionId, to: RegionId, book: PriceBook) -> Transfer | None:
    """Return the transfer of the checkpoint from one region to another; None where there is none to move.

    Raises LookupError if no tariff is known.
    """
    saved = job.checkpoint
    if saved is None:
        return None
    tariff = tariff_of(source, to, book)
    if tariff is None:
        raise LookupError(UnknownTariff(source, to).reason)
    return Transfer("checkpoint", source, tariff, gib_to_bytes(saved.size_gib))


def tariff_of(source: RegionId, to: RegionId, book: PriceBook) -> Tariff | None:
    """Return the tariff of moving bytes from one region to another; None where it is unknown."""
    region = book.region(to)
    return _tariff(source, region, book) if region else None


def _tariff(source: RegionId, region: Region, book: PriceBook) -> Tariff | None:
    origin = book.region(source)
    if origin is None:
        return book.egress.outbound(source.cloud, None)
    return book.egress.between(origin, region)


def cloud_cap_exceeded(limits: Limits, transfers: Iterable[Transfer], to: RegionId) -> str:
    """Return which cloud's cap on egress is less than these transfers alone take in a month ("" for none)."""
    leaving: dict[str, int] = {}
    for t in transfers if limits.egress_caps_gb else ():
        if t.source.cloud != to.cloud:
            leaving[t.source.cloud] = leaving.get(t.source.cloud, 0) + t.volume_bytes
    for cloud, volume in leaving.items():
        cap = limits.egress_caps_gb.get(cloud)
        if cap is not None and volume > gb_to_bytes(cap):
            return f"{volume / BYTES_PER_GB:,.0f} GB would leave {cloud}, at most {cap:,} GB may in a month"
    return ""


def cap_exceeded(job: Job, transfers: tuple[Transfer, ...]) -> str | None:
    """Return why these transfers break the job's egress cap; None when they do not."""
    cap = job.data.egress_cap if job.data else None
    if cap is None:
        return None
    gib = sum(t.gib for t in transfers)
    if cap.gib is not None and gib > cap.gib:
        return f"egress cap: {gib:,.0f} GiB to move, {cap.gib:,.0f} allowed"
    usd = Usd.total(t.dearest for t in transfers)
    if cap.usd is not None and usd > cap.usd:
        return f"egress cap: ${usd.dollars():,.2f} to move, ${cap.usd.dollars():,.2f} allowed"
    return None
