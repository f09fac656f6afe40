"""Turn runs and paths into columns: whole schedules of one job with their cost and their use of what jobs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from router.planning.columns.paths import Path
from router.planning.columns.runs import RunPricer, Surcharges
from router.planning.columns.table import Floats, Ints, Table
from router.planning.problem.commitments import cover_rate
from router.planning.problem.problem import free_starts, most_starts
from router.planning.problem.run_costs import compute_usd, external_usd
from router.planning.problem.schedule import ScheduledRun, SlotHold, runs_of, starts_of

_DONE = 1 - 1e-9
_LEAST_SHARE = 1e-6
_HALVINGS = 30

Hold = tuple[int, int, float]
"""A slot, a row of the table, and the share of the slot that is held."""


@dataclass(frozen=True, slots=True)
class Column:
    """A schedule of one job. ``usd``: the objective without moves; ``counted``: dollars as budgets count them.

    ``use`` and ``amount`` are what it takes: limit x T + slot, and how much. ``moves`` are meter, month, gigabytes.
    ``cover`` and ``committed`` are what it uses of committed spend: pool x T + slot, and dollars,
    in each slot at most what it buys.
    """

    job: int
    holds: tuple[Hold, ...]
    usd: float
    counted: float
    use: Ints
    amount: Floats
    moves: tuple[tuple[int, int, float], ...]
    cover: Ints
    committed: Floats

    @property
    def last(self) -> int:
        """Return the last slot held."""
        return self.holds[-1][0]

    @property
    def is_on_one_offer(self) -> bool:
        """Return whether all that is held is of one row."""
        return len({row for _, row, _ in self.holds}) == 1


def slot_holds(table: Table, column: Column) -> tuple[SlotHold, ...]:
    """Return what the column holds as holdings of its job, by slot and candidate."""
    slots = {slot.index: slot for slot in table.problem.window(table.jobs[column.job])}
    return tuple(SlotHold(slots[t], table.rows[r].candidate.key, share) for t, r, share in column.holds)


def run_column(table: Table, pricer: RunPricer, row: int, start: int) -> Column:
    """Return the unbroken run of a row from a slot, which must be possible."""
    return run_columns(table, pricer, np.array([row], dtype=np.int64), np.array([start], dtype=np.int64))[0]


def run_columns(table: Table, pricer: RunPricer, rows: Ints, starts: Ints) -> list[Column]:
    """Return the unbroken runs of rows from slots, all of which must be possible."""
    ends, shares = pricer.ends(rows, starts)
    columns = []
    for row, start, end, share in zip(rows.tolist(), starts.tolist(), ends.tolist(), shares.tolist(), strict=True):
        holds = tuple((slot, row, share if slot == end - 1 else 1.0) for slot in range(start, end))
        used = _used_by_run(table, row, start, end) if table.has_cover else {}
        columns.append(_column(table, holds, float(table.usd[row]), float(table.counted[row]), used))
    return columns


def _used_by_run(table: Table, row: int, start: int, end: int) -> dict[int, float]:
    """Return the dollars of committed spend that the run uses, by pool x T + slot."""
    if table.committed[row] <= 0:
        return {}
    job, pool = int(table.job[row]), int(table.pool[row])
    left, used = float(table.need[row] + table.startup[row]), {}
    for slot in range(start, min(end, table.horizon)):
        hours = min(left, float(table.hours[job, slot]))
        left -= hours
        if table.bought[pool, slot] > 0:
            used[pool * table.slots + slot] = min(hours * float(table.committed[row]), float(table.bought[pool, slot]))
    return used


def _used_by_runs(table: Table, runs: Sequence[ScheduledRun]) -> dict[int, float]:
    """Return the same of runs with exact times."""
    used: dict[int, float] = {}
    for run in runs if table.has_cover else ():
        rate = cover_rate(table.problem.limits, run.candidate) if run.order else None
        for slot in () if rate is None else table.problem.slots[: table.horizon]:
            hours = (min(run.end, slot.end) - max(run.start, slot.start)) / timedelta(hours=1)
            if rate is not None and hours > 0 and table.bought[rate.pool, slot.index] > 0:
                place = rate.pool * table.slots + slot.index
                used[place] = used.get(place, 0.0) + hours * rate.dollars
    bought = table.bought.ravel()
    return {place: min(usd, float(bought[place])) for place, usd in used.items()}


def path_column(table: Table, path: Path, charges: Surcharges) -> Column | None:
    """Return the path made to do just what its job needs, exactly priced; None where it cannot.

    ``charges`` decide which slots at the edges of its runs are given up or added.
    """
    holds = _fitted(table, list(zip(path.slots, path.rows, [1.0] * len(path.slots), strict=True)), charges)
    return None if holds is None else priced_column(table, holds)


def mixed_column(table: Table, low: Path, high: Path) -> Column | None:
    """Return the mixture of two paths that does just what the job needs; None where they differ in the horizon."""
    horizon = table.horizon
    if [p for p in zip(low.slots, low.rows, strict=True) if p[0] < horizon] != [
        p for p in zip(high.slots, high.rows, strict=True) if p[0] < horizon
    ]:
        return None
    few, many = (set(zip(path.slots, path.rows, strict=True)) for path in (low, high))
    places = sorted(few | many)
    in_few, in_many = (np.array([place in own for place in places], dtype=np.float64) for own in (few, many))

    def mixture(part: float) -> Floats:
        shares: Floats = np.minimum(1.0, (1 - part) * in_few + part * in_many)
        return np.where(shares > _LEAST_SHARE, shares, 0.0)

    part = _least_part(PlacesDone.of(table, places), mixture)
    if part is None:
        return None
    shares = zip(places, mixture(part).tolist(), strict=True)
    return priced_column(table, [(slot, row, share) for (slot, row), share in shares if share > 0])


def _least_part(done: PlacesDone, shares: Callable[[float], Floats]) -> float | None:
    """Return the least part, of 0 to 1, with whose shares the whole job is done; None where there is none."""
    if done.share(shares(1.0)) < _DONE:
        return None
    below, above = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        if done.share(shares(middle)) < _DONE:
            below = middle
        else:
            above = middle
    return above


def merged_columns(table: Table, columns: Sequence[Column], x: Floats) -> list[Column]:
    """Return, for each job that holds several columns in part, their mixtures that are schedules too.

    Beyond the horizon a job may hold shares, so columns in one region that agree within it can be mixed as they are.
    """
    parts: dict[tuple[int, int, tuple[Hold, ...]], list[int]] = {}
    for number in np.flatnonzero((x > _LEAST_SHARE) & (x < 1 - _LEAST_SHARE)).tolist():
        column = columns[number]
        if table.whole[column.job] or column.last < table.horizon:
            continue
        inside = tuple(hold for hold in column.holds if hold[0] < table.horizon)
        parts.setdefault((column.job, int(table.block[column.holds[0][1]]), inside), []).append(number)
    merged = []
    for _, numbers in sorted(parts.items()):
        if len(numbers) < 2:
            continue
        weight = x[numbers] / x[numbers].sum()
        shares: dict[tuple[int, int], float] = {}
        for number, part in zip(numbers, weight.tolist(), strict=True):
            for slot, row, share in columns[number].holds:
                shares[slot, row] = shares.get((slot, row), 0.0) + part * share
        holds = [(t, r, min(1.0, share)) for (t, r), share in sorted(shares.items()) if share > _LEAST_SHARE]
        mixture = priced_column(table, holds)
        if mixture is not None and mixture.counted <= table.allowance[mixture.job]:
            merged.append(mixture)
    return merged


@dataclass(frozen=True, eq=False)
class HoldingsDone:
    """The hours and starts of a job's holdings, which say what share of the job they do.

    ``held`` and ``rises`` are hours and starts by row, ``own_rises`` starts by holding. Starts are taken off as
    :mod:`router.planning.problem.schedule` does.
    """

    table: Table
    holds: Sequence[Hold]
    held: dict[int, float]
    rises: dict[int, float]
    own_rises: Sequence[float]

    @classmethod
    def of(cls, table: Table, holds: Sequence[Hold]) -> HoldingsDone:
        """Add up the hours and starts of these holdings."""
        held: dict[int, float] = {}
        rises: dict[int, float] = {}
        before: dict[int, tuple[int, float]] = {}
        own: list[float] = []
        hours_of = table.hours_of_rows
        for slot, row, share in holds:
            held[row] = held.get(row, 0.0) + hours_of[row][slot] * share
            last, level = before.get(row, (-2, 0.0))
            rise = max(0.0, share - (level if last == slot - 1 else 0.0))
            own.append(rise)
            rises[row] = rises.get(row, 0.0) + rise
            before[row] = (slot, share)
        return cls(table, holds, held, rises, own)

    def _on_row(self, row: int, hours: float, rises: float) -> float:
        need, startup = self.table.work_of_rows[row]
        return max(0.0, min(hours / (need + startup), (hours - startup * rises) / need))

    def share(self) -> float:
        """Return the share of the job that is done."""
        return sum(self._on_row(row, hours, self.rises[row]) for row, hours in self.held.items())

    def shares_without(self, places: Sequence[int]) -> list[float]:
        """Return the share that is done without each one of these holdings."""
        by_row = {row: self._on_row(row, hours, self.rises[row]) for row, hours in self.held.items()}
        number = {(slot, row): i for i, (slot, row, _) in enumerate(self.holds)}
        whole, shares = sum(by_row.values()), []
        for place in places:
            slot, row, share = self.holds[place]
            hours = self.held[row] - self.table.hours_of_rows[row][slot] * share
            rises, after = self.rises[row] - self.own_rises[place], number.get((slot + 1, row))
            if after is not None:  # the next holding starts by itself then
                rises += self.holds[after][2] - self.own_rises[after]
            shares.append(whole - by_row[row] + self._on_row(row, hours, rises))
        return shares


@dataclass(frozen=True, eq=False)
class PlacesDone:
    """The slots and rows that a job may hold, laid out to say what share of it is done with any shares of them.

    ``row`` numbers the rows [n], ``before`` is the place of the row's slot before [n], n where there is none.
    """

    row: Ints
    before: Ints
    hours: Floats
    need: Floats
    startup: Floats

    @classmethod
    def of(cls, table: Table, places: Sequence[tuple[int, int]]) -> PlacesDone:
        """Lay out slots and rows."""
        numbers = {place: number for number, place in enumerate(places)}
        rows, row = np.unique([row for _, row in places], return_inverse=True)
        return cls(
            row,
            np.array([numbers.get((slot - 1, own), len(places)) for slot, own in places], dtype=np.int64),
            np.array([table.hours_of_rows[own][slot] for slot, own in places]),
            table.need[rows],
            table.startup[rows],
        )

    def share(self, shares: Floats) -> float:
        """Return the share of the job that is done with these shares, as :class:`HoldingsDone` counts it."""
        rises = np.maximum(0.0, shares - np.append(shares, 0.0)[self.before])
        held = np.bincount(self.row, self.hours * shares)
        worked = (held - self.startup * np.bincount(self.row, rises)) / self.need
        return float(np.maximum(0.0, np.minimum(held / (self.need + self.startup), worked)).sum())


def share_done(table: Table, holds: Sequence[Hold]) -> float:
    """Return the share of the job that these holdings do."""
    return HoldingsDone.of(table, holds).share()


def priced_column(table: Table, holds: Sequence[Hold]) -> Column | None:
    """Return the column of these holdings, priced as the plan will price them.

    None where they are not enough, or start more often than the job may.
    """
    number = int(table.job[holds[0][1]])
    job = table.jobs[number]
    if share_done(table, holds) < _DONE or _starts_too_late(table, holds):
        return None
    slots = {slot.index: slot for slot in table.problem.window(job)}
    held = [SlotHold(slots[t], table.rows[r].candidate.key, share) for t, r, share in holds]
    try:
        runs = runs_of(table.problem, job, held)
    except RuntimeError:
        return None
    paid, starts, most = compute_usd(runs).dollars(), starts_of(runs), most_starts(job)
    if most is not None and starts > most + _LEAST_SHARE:
        return None
    threshold = max(0.0, starts - free_starts(job)) * job.gang.min_saving.dollars()
    counted = paid + float(table.dearest_moves[table.block[holds[0][1]]])
    used = _used_by_runs(table, runs)
    return _column(table, tuple(holds), paid + external_usd(runs).dollars() + threshold, counted, used)


def _starts_too_late(table: Table, holds: Sequence[Hold]) -> bool:
    """Return whether a share rises, which takes part of a start, in a slot in which no run may begin."""
    shares = {(slot, row): share for slot, row, share in holds}
    return any(
        slot >= table.start_end[row] and share > shares.get((slot - 1, row), 0.0) + _LEAST_SHARE
        for slot, row, share in holds
    )


def counted_again(table: Table, column: Column) -> Column:
    """Return the column as it takes the limits of a table whose rows are the same."""
    taken = _taken(table, column.holds)
    places = sorted(taken)
    return replace(column, use=np.array(places, dtype=np.int64), amount=np.array([taken[place] for place in places]))


def _taken(table: Table, holds: Sequence[Hold]) -> dict[int, float]:
    """Return what the holdings take of limits and caps on egress, by limit x T + slot."""
    taken: dict[int, float] = {}
    for slot, row, share in holds:
        for limit, amount in table.use_of_kinds[table.kind[row]]:
            place = limit * table.slots + slot
            taken[place] = taken.get(place, 0.0) + amount * share
    first = holds[0]
    month = int(table.month[first[0]])
    for cloud in np.flatnonzero(table.cap_gb[table.block[first[1]]]).tolist():
        place = int(table.cap_limits[cloud, month]) * table.slots
        taken[place] = float(table.cap_gb[table.block[first[1]], cloud])
    return taken


def _column(
    table: Table, holds: tuple[Hold, ...], usd: float, counted: float, committed: Mapping[int, float]
) -> Column:
    taken, first = _taken(table, holds), holds[0]
    month = int(table.month[first[0]])
    places = sorted(taken)
    moves = tuple((move.meter, month, move.gb) for move in table.moves[int(table.block[first[1]])])
    return Column(
        job=int(table.job[first[1]]),
        holds=holds,
        usd=usd,
        counted=counted,
        use=np.array(places, dtype=np.int64),
        amount=np.array([taken[place] for place in places]),
        moves=moves,
        cover=np.array(sorted(committed), dtype=np.int64),
        committed=np.array([committed[place] for place in sorted(committed)]),
    )


def _fitted(table: Table, holds: list[Hold], charges: Surcharges) -> list[Hold] | None:
    """Return the holdings without what is not needed, or with what they lack; None where nothing can be added."""
    if not holds:
        return None
    while share_done(table, holds) < _DONE:
        added = _cheapest_neighbour(table, holds, charges)
        if added is None:
            return None
        holds = sorted([*holds, added])
    while True:
        edges = _edges(holds)
        without = HoldingsDone.of(table, holds).shares_without(edges)
        spare = [i for i, share in zip(edges, without, strict=True) if share >= _DONE]
        if not spare:
            break
        dearest = max(spare, key=lambda i: (_per_hour(table, holds[i], charges), i))
        holds = holds[:dearest] + holds[dearest + 1 :]
    return _loosened(table, holds, charges)


def _per_hour(table: Table, hold: Hold, charges: Surcharges) -> float:
    slot, row, _ = hold
    hours = table.hours[table.job[row], slot]
    rate = table.usd[row] / (table.need[row] + table.startup[row])
    covered = table.committed[row] * charges.cover[table.pool[row], slot]
    return float(charges.slot[table.kind[row], slot] / max(hours, 1e-9) + rate - covered)


def _edges(holds: Sequence[Hold]) -> list[int]:
    """Return the places of holdings at either end of an unbroken run."""
    edges = []
    for i, (slot, row, _) in enumerate(holds):
        before = i > 0 and holds[i - 1][:2] == (slot - 1, row)
        after = i + 1 < len(holds) and holds[i + 1][:2] == (slot + 1, row)
        if not (before and after):
            edges.append(i)
    return edges


def _cheapest_neighbour(table: Table, holds: Sequence[Hold], charges: Surcharges) -> Hold | None:
    """Return the cheapest free slot beside a run, on the run's row."""
    taken = {slot for slot, _, _ in holds}
    free: list[Hold] = []
    for i in _edges(holds):
        slot, row, _ = holds[i]
        after = (slot + 1, row, 1.0)
        if slot + 1 < table.end[row] and slot + 1 not in taken:
            free.append(after)
        if slot - 1 >= table.first[row] and slot - 1 < table.start_end[row] and slot - 1 not in taken:
            free.append((slot - 1, row, 1.0))
    return min(free, key=lambda hold: (_per_hour(table, hold, charges), hold), default=None)


def _loosened(table: Table, holds: list[Hold], charges: Surcharges) -> list[Hold]:
    """Return the holdings with the last slot of the dearest run beyond the horizon cut to the share that is needed."""
    if table.whole[table.job[holds[0][1]]]:
        return holds
    ends = [
        i
        for i, (slot, row, _) in enumerate(holds)
        if slot >= table.horizon and not (i + 1 < len(holds) and holds[i + 1][:2] == (slot + 1, row))
    ]
    if not ends:
        return holds
    dearest = max(ends, key=lambda i: (_per_hour(table, holds[i], charges), i))
    whole, cut = np.array([share for _, _, share in holds]), np.arange(len(holds)) == dearest
    part = _least_part(PlacesDone.of(table, [hold[:2] for hold in holds]), lambda part: np.where(cut, part, whole))
    slot, row, _ = holds[dearest]
    return [*holds[:dearest], (slot, row, 1.0 if part is None else part), *holds[dearest + 1 :]]
