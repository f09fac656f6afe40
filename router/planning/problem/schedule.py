"""Turn the program's answer into whole runs with exact times in microseconds; return time that is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from pricing.money import ZERO, Usd
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.problem.commitments import fill_rank
from router.planning.problem.problem import PlacementProblem, Slot

NOTHING = 1e-6
_IDLE = 1e-9  # hours
_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SlotHold:
    """A share of a slot that a job holds on a candidate (1.0 inside the horizon)."""

    slot: Slot
    key: str
    share: float


Holdings = Mapping[str, tuple[SlotHold, ...]]
"""Holds by job, in time order; a job that is left out is absent."""


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """One period of a job on one candidate, inside the horizon or beyond it.

    ``startups`` start-ups are paid in it (0 when it continues an earlier run), then ``productive`` hours of work;
    ``end`` is when the reserved time is used up; ``share`` of ``start``..``end`` is held (1 for orders).
    """

    job: str
    candidate: Candidate
    order: bool
    start: datetime
    end: datetime
    share: float
    startups: float
    productive: timedelta
    steps: int

    @property
    def billed(self) -> timedelta:
        """Return the time expected to be billed, in whole microseconds."""
        working = round(self.productive / _MICRO * self.candidate.billed_per_reserved)
        return timedelta(microseconds=working + round(self.candidate.startup / _MICRO * self.startups))

    @property
    def fallback_billed(self) -> timedelta:
        """Return the time of the fallback expected to be billed, in whole microseconds; none without one."""
        return timedelta(microseconds=round(self.productive / _MICRO * self.candidate.fallback_per_reserved))

    @property
    def fallback_usd(self) -> Usd:
        """Return what the fallback is expected to cost, moving there included."""
        fallback = self.candidate.fallback
        if fallback is None:
            return ZERO
        return fallback.usd_per_hour.over(self.fallback_billed) + self.candidate.fallback_moves.over(self.productive)


@dataclass(slots=True)
class _Piece:
    candidate: Candidate
    order: bool
    slots: list[Slot]
    shares: list[float]
    startups: float
    extra: float = 0.0  # start-ups beyond these
    productive: float = 0.0  # hours
    starts: _Piece | None = None  # the piece that goes on with a start-up that is longer than this one

    @property
    def is_used(self) -> bool:
        """Return whether the job works in it, or starts up in it for a piece in which it works."""
        return self.productive > _IDLE or (self.starts is not None and self.starts.is_used)

    @property
    def held(self) -> float:
        return sum(s.hours * share for s, share in zip(self.slots, self.shares, strict=True))

    @property
    def room_for_starts(self) -> float:
        """Return the number of further start-ups that the time held is enough for."""
        return max(0.0, self.held / self.candidate.startup_hours - self.startups)

    @property
    def room(self) -> float:
        return max(0.0, self.held - (self.startups + self.extra) * self.candidate.startup_hours)


def runs_of(problem: PlacementProblem, job: Job, holds: Sequence[SlotHold]) -> tuple[ScheduledRun, ...]:
    """Return the job's runs in time order: the cheapest step is filled first, surplus time is dropped from the end.

    RuntimeError if the holds cannot carry the steps (a bug, not an input).
    """
    pieces = _pieces(problem, job, holds)
    stays = any(p.candidate.running and p.startups == 0 for p in pieces)
    need = float(steps_to_do(job, running=stays))
    missing = _fill(pieces, need, problem, job)
    used = [p for p in pieces if p.is_used]
    while len(used) < len(pieces):  # a start in a dropped piece has to be made in another one
        pieces = used
        missing = _fill(pieces, need, problem, job)
        used = [p for p in pieces if p.is_used]
    if missing > 1e-12 * need:
        _stretch(job, pieces, missing, need)
    _at_least_one_start(pieces)
    return _finished(job, pieces, need)


def _fill(pieces: list[_Piece], whole: float, problem: PlacementProblem, job: Job) -> float:
    """Set the productive hours of every piece in the order of :func:`fill_rank`; return the steps without room."""
    need = whole
    found = {p.candidate.key: p.candidate for p in pieces}.values()
    for candidate in sorted(found, key=lambda c: fill_rank(problem.limits, job, c)):
        own = [p for p in pieces if p.candidate is candidate]
        need -= _work(own, candidate, need, whole) * candidate.on_time_steps_per_hour
    return need


def _work(pieces: list[_Piece], candidate: Candidate, need: float, whole: float) -> float:
    """Fill these pieces of one candidate, and return the hours that they work.

    Start-ups are what the program asks for: what the shares rise by, and at least the candidate's part of one start,
    unless the job runs there and goes on.
    """
    rate, startup = candidate.on_time_steps_per_hour, candidate.startup_hours
    held, rises = sum(p.held for p in pieces), sum(p.startups for p in pieces)
    goes_on = candidate.running and pieces[0].slots[0].index == 0
    part = 0.0 if goes_on else rate / whole  # share of a start for each hour of work
    hours = max(0.0, min(need / rate, held / (1 + startup * part)))
    _add_starts(pieces, max(0.0, hours * part - rises))
    left = hours
    for piece in pieces:
        piece.productive = min(piece.room, left)
        left -= piece.productive
    return hours - left


def _add_starts(pieces: list[_Piece], more: float) -> None:
    """Add this part of a start to the first piece that still works after it; to all alike where there is none.

    A piece that only starts up would be dropped, and its time with it.
    """
    if pieces[0].candidate.startup == timedelta(0):
        rooms = [1.0, *[0.0] * (len(pieces) - 1)]
    else:
        rooms = [p.room_for_starts for p in pieces]
        enough = next((i for i, room in enumerate(rooms) if room > more + NOTHING), None)
        if enough is not None:
            rooms = [room if i == enough else 0.0 for i, room in enumerate(rooms)]
        more = min(more, sum(rooms))
    total = sum(rooms)
    for piece, room in zip(pieces, rooms, strict=True):
        piece.extra = more * (room / total) if total > 0 else 0.0


def _pieces(problem: PlacementProblem, job: Job, holds: Sequence[SlotHold]) -> list[_Piece]:
    pieces: list[_Piece] = []
    by_key: dict[str, list[SlotHold]] = {}
    for hold in holds:
        by_key.setdefault(hold.key, []).append(hold)
    for key, found in by_key.items():
        candidate = problem.candidate(job.name, key)
        before = 1.0 if candidate.running else 0.0  # the share held in the slot before
        previous = -1
        for hold in found:
            if hold.slot.index != previous + 1:
                before = 0.0
            rise = max(0.0, hold.share - before)
            last = pieces[-1] if pieces and pieces[-1].candidate is candidate else None
            # Beyond the horizon a line ends where its share changes, so that shares add up in every slot. It goes on
            # where all that it held so far is its start: a piece that does no work is dropped, and its start with it.
            starting = last is not None and last.room <= _IDLE
            level = hold.slot.order or starting or abs(hold.share - before) <= NOTHING
            if before > 0 and level and last is not None and last.order == hold.slot.order:
                last.slots.append(hold.slot)
                last.shares.append(hold.share)
                last.startups += rise
            else:
                pieces.append(_Piece(candidate, hold.slot.order, [hold.slot], [hold.share], rise))
            previous, before = hold.slot.index, hold.share
    _carry_starts(pieces)
    return sorted(pieces, key=lambda p: (p.slots[0].index, p.candidate.key))


def _carry_starts(pieces: Sequence[_Piece]) -> None:
    """Let a start-up that is longer than its piece go on in the next one, where that adjoins on the same candidate."""
    for piece, after in pairwise(pieces):
        adjoins = after.candidate is piece.candidate and after.slots[0].index == piece.slots[-1].index + 1
        if adjoins and piece.startups * piece.candidate.startup_hours > piece.held + _IDLE:
            fits = piece.held / piece.candidate.startup_hours
            after.startups += piece.startups - fits
            piece.startups, piece.starts = fits, after


def _at_least_one_start(pieces: list[_Piece]) -> None:
    """Make up for what rounding leaves of the one start of a job that does not run yet."""
    if pieces and not any(p.candidate.running for p in pieces):
        pieces[0].extra += max(0.0, 1.0 - sum(p.startups + p.extra for p in pieces))


def _stretch(job: Job, pieces: list[_Piece], need: float, whole: float) -> None:
    """Add the steps left over by rounding to the last piece beyond the horizon.

    If they are few, add them to the last piece of all when no piece lies beyond the horizon.
    """
    loose = [p for p in pieces if not p.order]
    if not loose and need > 1e-5 * whole:
        raise RuntimeError(f"{job.name}: {need} of {whole} steps are not carried by what it holds")
    piece = (loose or pieces)[-1]
    piece.productive += need / piece.candidate.on_time_steps_per_hour


def _finished(job: Job, pieces: list[_Piece], whole: float) -> tuple[ScheduledRun, ...]:
    runs: list[ScheduledRun] = []
    done, counted = 0.0, 0
    for index, piece in enumerate(pieces):
        c = piece.candidate
        done += piece.productive * c.on_time_steps_per_hour
        upto = round(whole) if index == len(pieces) - 1 else round(done)
        productive = timedelta(microseconds=round(piece.productive * 3_600_000_000))
        start = piece.slots[0].start
        startups = piece.startups + piece.extra
        held = productive + startups * c.startup
        full = min(piece.shares) > 1 - NOTHING
        # What rounding adds to the time held must not end after the slots, which may end at the deadline.
        end = min(start + held, piece.slots[-1].end) if full else piece.slots[-1].end
        share = 1.0 if full else min(max(piece.shares), held / (end - start))
        runs.append(ScheduledRun(job.name, c, piece.order, start, end, share, startups, productive, upto - counted))
        counted = upto
    return tuple(runs)


def starts_of(runs: Sequence[ScheduledRun]) -> float:
    """Return the number of start-ups that the runs pay."""
    return sum(run.startups for run in runs)
