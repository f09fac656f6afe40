"""Exchange the places of jobs that differ in their names alone, so that each keeps its place of the previous plan.

Copies of a job, as in a sweep, are the same to every search: which of them runs where, and which is left out, is
chance. An exchange among them changes neither cost nor limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from router.jobs.spec import Job
from router.planning.document.plan import Line, Plan
from router.planning.find.candidate import Candidate
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold
from router.planning.program.solve import PlacementSolution, with_holdings

Place = tuple[tuple[str, str, str, str, str, int], ...]
"""A gang's parts: cloud, region, zone, machine type, market and machines of each."""


@dataclass(frozen=True)
class _Stay:
    """The places of a job's gangs and when the first of them starts."""

    places: frozenset[Place]
    start: datetime


def place_of_lines(gang: Iterable[Line]) -> Place:
    """Return the place of one gang of a plan."""
    return tuple(sorted((x.cloud, x.region, x.zone or "", x.instance_type, x.market, x.machines) for x in gang))


def place_of(candidate: Candidate) -> Place:
    """Return the place of a candidate."""
    return tuple(
        sorted(
            (p.offer.cloud, p.offer.region, p.offer.zone or "", p.offer.instance_type, p.offer.market.value, p.machines)
            for p in candidate.parts
        )
    )


def lines_by_gang(previous: Plan) -> dict[str, dict[str, list[Line]]]:
    """Return the lines of a plan by job and gang."""
    lines: dict[str, dict[str, list[Line]]] = {}
    for line in previous.lines:
        lines.setdefault(line.job, {}).setdefault(line.gang, []).append(line)
    return lines


def exchange_equal_jobs(answer: PlacementSolution, previous: Plan) -> PlacementSolution:
    """Return the answer with equal jobs at their previous places as far as some of them are there.

    Of equal jobs of which some are left out, those that the previous plan placed are placed first.
    """
    problem = answer.problem
    before = {
        name: _Stay(frozenset(map(place_of_lines, gangs.values())), min(x.start for g in gangs.values() for x in g))
        for name, gangs in lines_by_gang(previous).items()
    }
    holdings = dict(answer.holdings)
    for names in _equal_jobs(problem):
        held = [answer.holdings.get(name) for name in names]
        for name, number in _assign(names, [_stay_of(problem, names[0], holds) for holds in held], before).items():
            holds = held[number]
            if holds is None:
                holdings.pop(name, None)
            else:
                holdings[name] = holds
    if all(holdings.get(name) is answer.holdings.get(name) for name in problem.job):
        return answer
    return with_holdings(answer, holdings)


def _equal_jobs(problem: PlacementProblem) -> list[list[str]]:
    """Return the names of jobs that differ in nothing else.

    What a job has done and where it runs is part of it: copies whose files say that they run in the same place are
    equal, however few of them fit there.
    """
    alike: dict[tuple[object, ...], list[str]] = {}
    for job in problem.jobs:
        alike.setdefault(_key(problem, job), []).append(job.name)
    return [
        names
        for found in alike.values()
        if len(found) > 1
        for names in _with_equal_candidates(problem, found)
        if len(names) > 1
    ]


def _key(problem: PlacementProblem, job: Job) -> tuple[object, ...]:
    sets = (problem.stays, problem.in_time, problem.late)
    return job.model_dump_json(exclude={"name"}), *(job.name in names for names in sets)


def _with_equal_candidates(problem: PlacementProblem, names: Sequence[str]) -> Iterable[list[str]]:
    alike: dict[tuple[object, ...], list[str]] = {}
    for name in names:
        rates = tuple(
            (c.key, c.running, c.usd_per_hour, c.steps_per_hour, c.on_time_steps_per_hour, c.billed_share, c.startup)
            for c in problem.all_candidates[name]
        )
        alike.setdefault(rates, []).append(name)
    return alike.values()


def _stay_of(problem: PlacementProblem, name: str, holds: Sequence[SlotHold] | None) -> _Stay | None:
    if holds is None:
        return None
    places = frozenset(place_of(problem.candidate(name, hold.key)) for hold in holds)
    return _Stay(places, holds[0].slot.start)


def _assign(names: Sequence[str], stays: Sequence[_Stay | None], before: Mapping[str, _Stay]) -> dict[str, int]:
    """Return for each job which of the stays it gets; those nearest to previous ones are given first."""

    def distance(name: str, number: int) -> tuple[int, float]:
        then, now = before.get(name), stays[number]
        if then is None or now is None:
            return (0 if then is now else 3), 0.0
        return (1 if then.places == now.places else 2), abs((now.start - then.start).total_seconds())

    pairs = sorted((*distance(name, number), name, number) for name in names for number in range(len(stays)))
    number_of_job: dict[str, int] = {}
    taken: set[int] = set()
    for _, _, name, number in pairs:
        if name not in number_of_job and number not in taken:
            number_of_job[name] = number
            taken.add(number)
    return number_of_job
