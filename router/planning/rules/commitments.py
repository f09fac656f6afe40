"""Write the rows of committed spend into the placement program. Formulas: ``docs/design/rules-of-the-plan.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.planning.problem.commitments import CoverRate, Place, buyable_by_place, cover_rate, fill_rank, has_cover
from router.planning.problem.problem import PlacementProblem
from router.planning.rules.program import ProgramBuilder

Terms = list[tuple[int, float]]


class CoverRows:
    """Collects what candidates use of committed spend, then writes how much of it is covered."""

    def __init__(self, builder: ProgramBuilder, problem: PlacementProblem) -> None:
        self._builder, self._problem = builder, problem
        self._buyable = buyable_by_place(problem) if has_cover(problem.limits) else {}
        self._terms: dict[Place, Terms] = {}
        self._idle: dict[tuple[str, str], list[tuple[int, float]]] = {}

    def add_candidate(self, job: Job, candidate: Candidate, x: Mapping[int, int], worked: Terms) -> None:
        """Add the hours of orders that the candidate holds and does not use: they use nothing of a commitment.

        idle        i_t <= h_t x_t; i_t <= h_t (1 - l_t), since a job gives up the last of its time alone
        later       l_t >= x_(t+1); l_t >= l_(t+1)
        used        Σ (h_t x_t - i_t) <= w + R Σ z

        ``x`` are the shares by slot index and ``worked`` the terms of w + R Σ z.
        """
        rate = cover_rate(self._problem.limits, candidate)
        slots = [s for s in self._problem.slots_for(job, candidate) if s.order and s.index in x]
        if rate is None or not any((rate.pool, slot.index) in self._buyable for slot in slots):
            return
        builder, name = self._builder, f"{job.name} {candidate.key}"
        used: Terms = [(i, -a) for i, a in worked]
        later: int | None = None
        for slot in reversed(slots):
            later = self._add_later(f"{name} {slot.index}", x.get(slot.index + 1), later)
            idle = builder.variable(f"idle {name} {slot.index}", high=slot.hours)
            self._idle.setdefault((job.name, candidate.key), []).append((idle, slot.hours))
            builder.row(f"idle {name} {slot.index}", [(idle, 1.0), (x[slot.index], -slot.hours)], "<=", 0.0)
            if later is not None:
                terms = [(idle, 1.0), (later, slot.hours)]
                builder.row(f"idle at the end {name} {slot.index}", terms, "<=", slot.hours)
            used += [(x[slot.index], slot.hours), (idle, -1.0)]
            self._count(rate, slot.index, x[slot.index], idle, slot.hours)
        builder.row(f"used time {name}", used, "<=", 0.0)

    def add_filling(self, job: Job, started: Mapping[str, Sequence[int]]) -> None:
        """Let a candidate be idle only where none that the job fills after it is held.

        filled      i_t <= h_t (1 - q_c); q_c >= q_(c+1); q_c >= z of c+1, with candidates in the order of filling

        ``started`` are z by candidate key, and x of the first slot where the job runs there already.
        """
        builder, limits = self._builder, self._problem.limits
        ranked = sorted(self._problem.candidates[job.name], key=lambda c: fill_rank(limits, job, c))
        last = max((n for n, c in enumerate(ranked) if (job.name, c.key) in self._idle), default=-1)
        if last < 0 or len(ranked) < 2:
            return
        q = builder.variable(f"filled {job.name} {last}", high=1.0)
        after = [i for c in ranked[last + 1 :] for i in started.get(c.key, ())]
        for number in range(last, -1, -1):
            key = ranked[number].key
            for i in after:
                builder.row(f"fills {job.name} {number} {i}", [(i, 1.0), (q, -1.0)], "<=", 0.0)
            for idle, hours in self._idle.get((job.name, key), ()):
                builder.row(f"filled {job.name} {idle}", [(idle, 1.0), (q, hours)], "<=", hours)
            after = list(started.get(key, ()))
            if number:
                before = builder.variable(f"filled {job.name} {number - 1}", high=1.0)
                builder.row(f"fills {job.name} {number} before", [(q, 1.0), (before, -1.0)], "<=", 0.0)
                q = before

    def _add_later(self, name: str, after: int | None, later: int | None) -> int | None:
        """Return l_t: at least whether the candidate is held in the next slot, or in any after that."""
        if after is None or later is None:
            return later if after is None else after
        both = self._builder.variable(f"later {name}", high=1.0)
        self._builder.row(f"next {name}", [(after, 1.0), (both, -1.0)], "<=", 0.0)
        self._builder.row(f"later {name}", [(later, 1.0), (both, -1.0)], "<=", 0.0)
        return both

    def _count(self, rate: CoverRate, index: int, x: int, idle: int, hours: float) -> None:
        """Count p κ (h x - i); what is more than the slot buys is cut off, which whole x would not need."""
        place = (rate.pool, index)
        if place not in self._buyable:
            return
        used: Terms = [(x, -rate.dollars * hours), (idle, rate.dollars)]
        most = self._buyable[place].dollars()
        if rate.dollars * hours > most:
            name = f"part {idle}"
            part = self._builder.variable(name)
            self._builder.row(name, [(part, 1.0), *used], "<=", 0.0)
            self._builder.row(f"most {name}", [(part, 1.0), (x, -most)], "<=", 0.0)
            used = [(part, -1.0)]
        self._terms.setdefault(place, []).extend(used)

    def write(self) -> dict[Place, int]:
        """Add v_kt <= Σ p κ (h_t x_t - i_t), v_kt <= what slot t buys, -1 in the objective; return the indexes of v."""
        covered: dict[Place, int] = {}
        for place, terms in sorted(self._terms.items()):
            most = self._buyable[place].dollars()
            name = cover_row(place)
            covered[place] = v = self._builder.variable(name, high=most, cost=-1.0)
            others = self._problem.committed.get(place, 0.0)
            self._builder.row(name, [(v, 1.0), *terms], "<=", others)
        return covered


def cover_row(place: Place) -> str:
    """Return the name of the row of a pool of committed spend in a slot."""
    return f"commitment {place[0]} @{place[1]}"
