"""Break the costs of a month down by label, team, project, job and attempt.

Each level adds up to the one above, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from router.showback.apportion import sum_known
from router.showback.facts import UNALLOCATED
from router.showback.labels import LABEL, label_name
from router.showback.report.query import ReportContext
from router.showback.report.values import divide_known, strip_zeros

# The words that lead down, in their order.
KINDS: Final = ("team", "project", "job", "attempt")
WHAT: Final = "what"
_ORDER: Final = (*KINDS, WHAT)
LevelPath = tuple[tuple[str, str], ...]
_LINE_WORDS: Final = ("currency", "team", "project", "job", "attempt", "what")


@dataclass(frozen=True, slots=True)
class SpendSums:
    """The cost on the basis of the report, the waste in it, and the hours; None is unknown.

    Sums are in one form, whatever scale the facts had.
    """

    cost: Decimal | None
    waste: Decimal | None
    hours: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendLine:
    """The costs of a month in a currency with the same owner, attempt and item; None is unknown or none.

    ``labels`` are the job's, by name.
    """

    currency: str
    team: str | None
    project: str | None
    job: str | None
    attempt: str | None
    what: str
    sums: SpendSums
    start: datetime
    labels: tuple[tuple[str, str], ...] = ()

    def word(self, kind: str) -> str:
        """Return its word of that kind, also of a label; :data:`UNALLOCATED` where nobody is named."""
        label = label_name(kind)
        found: str | None = getattr(self, kind) if label is None else dict(self.labels).get(label)
        return found or UNALLOCATED


def query_lines(context: ReportContext) -> tuple[SpendLine, ...]:
    """Return the costs of the month by owner, attempt and item, the dearest first.

    The rollups have labels (:meth:`~router.showback.report.rollup_tables.RollupTables.add_labels`).
    """
    words = ", ".join((*_LINE_WORDS, "labels"))
    order = f"currency, cost DESC NULLS LAST, {words}"
    rows = context.sum_by(words, "cost", "waste", "hours", "start", order=order)
    return tuple(
        SpendLine(
            **{name: row[name] for name in (*_LINE_WORDS, "start")},
            sums=SpendSums(row["cost"], row["waste"], row["hours"]),
            labels=tuple(sorted(row["labels"] or ())),
        )
        for row in rows
    )


@dataclass(frozen=True, slots=True)
class LevelRow:
    """A part of a level: its words by kind, :data:`UNALLOCATED` where nobody is named, and its sums; None is unknown.

    ``path`` leads to the level of the part, None where there is none below.
    """

    words: tuple[tuple[str, str], ...]
    sums: SpendSums
    share: Decimal | None
    first: datetime
    path: LevelPath | None


@dataclass(frozen=True, slots=True)
class LevelTable:
    """The parts of a level in one currency by one kind of word, the dearest first, and their sums."""

    kind: str
    currency: str
    rows: tuple[LevelRow, ...]
    sums: SpendSums


@dataclass(frozen=True, slots=True)
class SpendLevel:
    """A level of a month's costs. ``totals`` and ``above`` are by currency: of the level, and of the one above it.

    Each of the ``tables`` of a currency is all of the level, by one kind of word; ``parts`` is it once, by all of them.
    """

    path: LevelPath
    tables: tuple[LevelTable, ...]
    parts: tuple[LevelTable, ...]
    totals: tuple[tuple[str, Decimal | None], ...]
    above: tuple[tuple[str, Decimal | None], ...]


def find_level(lines: Sequence[SpendLine], path: LevelPath) -> SpendLevel | None:
    """Return the level of that path; None where the month has nothing of it. ValueError for a path that leads nowhere.

    A path is a label, team, project and job in this order, each at most once; some may be left out.
    """
    ranks = [_rank(kind) for kind, _ in path]
    if not path or max(ranks) == len(KINDS) or ranks != sorted(set(ranks)):
        what = f"{'/'.join(kind for kind, _ in path) or 'nothing'} leads nowhere"
        raise ValueError(f"{what}: name {LABEL}NAME, team, project and job in this order")
    above = _lines_of(lines, path[:-1])
    here = _lines_of(above, path[-1:])
    if not here:
        return None
    below = KINDS[ranks[-1] + 1 : -1] or (KINDS[-1], WHAT)
    tables = [_table(here, path, (kind,), currency) for kind in below for currency in _currencies(here)]
    parts = [_table(here, path, below, currency) for currency in _currencies(here)]
    return SpendLevel(path, tuple(tables), tuple(parts), _totals(here), _totals(above))


def label_names(lines: Iterable[SpendLine]) -> tuple[str, ...]:
    """Return the names of all labels that jobs of the lines have, in order."""
    return tuple(sorted({name for line in lines for name, _ in line.labels}))


def _rank(kind: str) -> int:
    """Return the place of a kind in a path, a label before all; the number of kinds for one that no path has."""
    if label_name(kind) is not None:
        return -1
    return KINDS.index(kind) if kind in KINDS[:-1] else len(KINDS)


def _sum_lines(lines: Iterable[SpendLine]) -> SpendSums:
    every = [(line.sums.cost, line.sums.waste, line.sums.hours) for line in lines]
    totals = (sum_known(amounts) for amounts in zip(*every, strict=True))
    return SpendSums(*(None if total is None else strip_zeros(total) for total in totals))


def _lines_of(lines: Iterable[SpendLine], path: LevelPath) -> list[SpendLine]:
    return [line for line in lines if all(line.word(kind) == name for kind, name in path)]


def _currencies(lines: Iterable[SpendLine]) -> list[str]:
    return sorted({line.currency for line in lines})


def _totals(lines: Sequence[SpendLine]) -> tuple[tuple[str, Decimal | None], ...]:
    return tuple(
        (currency, _sum_lines(line for line in lines if line.currency == currency).cost)
        for currency in _currencies(lines)
    )


def _table(lines: Sequence[SpendLine], path: LevelPath, kinds: Sequence[str], currency: str) -> LevelTable:
    """Return the lines by the last of ``kinds`` and the words above it; by items alone where that is all there is."""
    known, kind = {name for name, _ in path}, kinds[-1]
    order = kinds if kinds == (WHAT,) else _ORDER[: _ORDER.index(kind) + 1]
    words = tuple(each for each in order if each not in known)
    groups: dict[tuple[str, ...], list[SpendLine]] = {}
    for line in lines:
        if line.currency == currency:
            groups.setdefault(tuple(map(line.word, words)), []).append(line)
    own = [line for group in groups.values() for line in group]
    whole = _sum_lines(own)
    rows = [_row(tuple(zip(words, key, strict=True)), group, whole.cost, path) for key, group in groups.items()]
    rows.sort(key=lambda row: (row.sums.cost is None, -(row.sums.cost or Decimal(0)), [name for _, name in row.words]))
    return LevelTable(kind, currency, tuple(rows), whole)


def _row(words: LevelPath, lines: Sequence[SpendLine], whole: Decimal | None, path: LevelPath) -> LevelRow:
    sums = _sum_lines(lines)
    leads = words[-1][0] in KINDS[:-1]
    full = sorted((*path, *words), key=lambda part: _rank(part[0])) if leads else ()
    return LevelRow(
        words=words,
        sums=sums,
        share=divide_known(sums.cost, whole),
        first=min(line.start for line in lines),
        path=tuple(full) if leads else None,
    )
