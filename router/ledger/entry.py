"""Define one entry of the ledger, planned or metered cost, and the month whose books it goes into."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fractions import Fraction

from pricing.money import ZERO, Usd, UsdPerHour, divide_half_even
from pricing.places import Market
from router.ledger.month import Month

# Units of quantities as FOCUS writes them; rows that people add may have others.
HOURS, GB, GIB_HOURS, STEPS = "Hours", "GB", "GiB-Hours", "Steps"
# The currency of all entries.
CURRENCY = "USD"
_TICK = timedelta(microseconds=1)


class ClosedError(ValueError):
    """The books of that month are closed, and the entry does not say which entry or month it corrects."""


class LedgerEntryKind(StrEnum):
    """The origin of an entry. The first two are stepfare's own, the others people's (`stepfare ledger add`)."""

    PLANNED = "planned"
    METERED = "metered"
    FEE = "fee"
    CREDIT = "credit"
    TAX = "tax"
    ADJUSTMENT = "adjustment"

    @property
    def is_added(self) -> bool:
        """Return whether a person wrote it."""
        return self not in (LedgerEntryKind.PLANNED, LedgerEntryKind.METERED)


class CostItem(StrEnum):
    MACHINE = "machine"
    DISK = "disk"
    EGRESS = "egress"
    STORAGE = "storage"
    OTHER = "other"


class MachineUse(StrEnum):
    """The use of a machine's time: ``work``, or a kind of waste. docs/ledger.md says how each is found."""

    WORK = "work"
    STARTUP = "startup"
    FAILED_LAUNCH = "failed_launch"
    CHECKPOINT_OVERHEAD = "checkpoint_overhead"
    RESTART_LOST_WORK = "restart_lost_work"
    IDLE_ALLOCATED = "idle_allocated"
    OVERRUN = "overrun"
    COMMITMENT_UNUSED = "commitment_unused"
    RESERVATION_UNUSED = "reservation_unused"

    @property
    def is_waste(self) -> bool:
        """Return whether nothing came of the time."""
        return self is not MachineUse.WORK


# Uses of time that was paid for and that no job had.
UNUSED_USES = (MachineUse.COMMITMENT_UNUSED, MachineUse.RESERVATION_UNUSED)


class CostBasis(StrEnum):
    """The cost that sums, unit costs, waste and variances are computed from."""

    BILLED = "billed"  # cash: what invoices charge
    EFFECTIVE = "effective"  # accrual: commitments spread over what they cover


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A ledger line: ``quantity`` of ``unit`` of something (``what``), for ``usd``.

    It covers the time from ``start`` until before ``end`` (UTC). ``key`` is unique: the same event again has the same
    key. ``period`` is the month in whose books it stands: that of ``start``, unless it ``corrects`` something: the key
    of an entry, or a month that was closed before this was known. ``unpriced``: the price is not known; ``usd`` is 0
    then, and the quantity stands.

    For machines the quantity is hours, of each of ``machines``, at ``usd_per_hour`` for all of them. A metered entry is
    about one machine (``attempt``, ``rank``) and one use of its time; ``use`` is None where that is not known, as in
    all entries that were metered before uses were. ``steps`` are those that the time was planned to do, or, if metered,
    those that were saved in it, which stand with rank 0 alone; ``lost_steps`` were done and then lost. 0 where that is
    not known.

    ``resource`` is the cloud's name for it: the machine's id, its disk, the store that was read. ``price_as_of`` and
    ``price_source`` say what priced it; ``on_demand_usd_per_hour`` is the list price on demand of one such machine, in
    that place and at that time. Empty or None: not known. Entries that a person added say ``who`` and why (``reason``),
    and may name a document (``reference``). ``closing`` names the last closing before the entry was written; the store
    sets it. ValueError when that does not hold.
    """

    key: str
    kind: LedgerEntryKind
    recorded_at: datetime
    period: Month
    start: datetime
    end: datetime
    usd: Usd
    what: CostItem = CostItem.MACHINE
    use: MachineUse | None = None
    quantity: Fraction = Fraction(0)
    unit: str = HOURS
    usd_per_hour: UsdPerHour | None = None
    unpriced: bool = False
    corrects: str = ""
    plan: str = ""
    job: str = ""
    job_digest: str = ""
    team: str = ""
    project: str | None = None
    cost_center: str | None = None
    gang: str = ""
    attempt: str = ""
    rank: int | None = None
    cloud: str = ""
    region: str = ""
    zone: str | None = None
    instance_type: str = ""
    market: Market | None = None
    accelerator: str = ""
    accelerators: int = 0
    machines: int = 0
    steps: int = 0
    lost_steps: int = 0
    price_as_of: str = ""
    price_source: str = ""
    who: str = ""
    reason: str = ""
    reference: str = ""
    resource: str = ""
    on_demand_usd_per_hour: UsdPerHour | None = None
    closing: str = ""

    def __post_init__(self) -> None:
        for why in (_time_problem(self), _money_problem(self), _subject_problem(self)):
            if why:
                raise ValueError(f"{self.key}: {why}")

    @property
    def hours(self) -> Fraction:
        """Return the hours of single machines; 0 of anything else."""
        return self.quantity * self.machines if self.what is CostItem.MACHINE and self.unit == HOURS else Fraction(0)

    def usd_until(self, moment: datetime) -> Usd:
        """Return the money that falls before the moment, by time: the parts between moments add up exactly."""
        whole = (self.end - self.start) // _TICK
        before = min(max((moment - self.start) // _TICK, 0), whole)
        return Usd(divide_half_even(self.usd.nanos * before, whole))

    def usd_in(self, month: Month) -> Usd:
        """Return the money whose time falls into the month, whichever month's books it stands in."""
        return self.usd_until(month.ends) - self.usd_until(month.begins)


def utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _time_problem(entry: LedgerEntry) -> str:
    for name in ("recorded_at", "start", "end"):
        if getattr(entry, name).utcoffset() != timedelta(0):
            return f"{name} is not in UTC"
    if entry.end <= entry.start:
        return "a period that ends when it begins, or before"
    if not entry.corrects and entry.period != Month.of(entry.start):
        return f"of {Month.of(entry.start)}, but in the books of {entry.period} without correcting anything"
    return ""


def _money_problem(entry: LedgerEntry) -> str:
    rates = [rate.nanos for rate in (entry.usd_per_hour, entry.on_demand_usd_per_hour) if rate is not None]
    if entry.quantity < 0 or entry.machines < 0 or min(rates, default=0) < 0:
        return "quantities, prices and machines are never negative"
    if (
        entry.usd < ZERO
        and entry.kind not in (LedgerEntryKind.CREDIT, LedgerEntryKind.ADJUSTMENT, LedgerEntryKind.TAX)
        and not entry.corrects
    ):
        return "money is never negative but for credits, taxes, adjustments and corrections"
    if entry.usd > ZERO and entry.kind is LedgerEntryKind.CREDIT and not entry.corrects:
        return "a credit is not above zero"
    if entry.unpriced and entry.usd != ZERO:
        return "no price is known, but there is an amount"
    return ""


def _subject_problem(entry: LedgerEntry) -> str:
    if entry.kind.is_added:
        return "" if entry.who and entry.reason else "who added it and why has to be said"
    if entry.what is CostItem.MACHINE and entry.machines < 1:
        return "hours of machines are of at least one"
    if entry.kind is LedgerEntryKind.METERED and not entry.attempt:
        return "a metered entry is about something of an attempt"
    if (
        entry.kind is LedgerEntryKind.METERED
        and entry.what is CostItem.MACHINE
        and (entry.rank is None or entry.machines != 1)
    ):
        return "metered hours are of one machine of an attempt"
    return ""


def book_entry(entry: LedgerEntry, closed: Month | None) -> LedgerEntry:
    """Return the entry as it may be appended when all months up to ``closed`` are closed (None: no month is).

    An entry that was planned or metered in a closed month, and is known only now, goes into the books of the month in
    which it was recorded, the first open one at the earliest, and says which month it corrects. ClosedError for an
    entry that a person adds: that person decides which month it belongs to, and says what it corrects.
    """
    if closed is None or entry.period > closed:
        return entry
    if entry.kind.is_added or entry.corrects:
        raise ClosedError(
            f"{entry.key}: the books of {entry.period} are closed; "
            f"`period: {closed.next}` with `corrects: {entry.period}` puts it into open ones"
        )
    return replace(entry, period=max(closed.next, Month.of(entry.recorded_at)), corrects=str(entry.period))
