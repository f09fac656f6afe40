"""Find why a job changed between two plans: its own causes, or the jobs whose change it follows from. Pure.

A cause is stated only where both plans show it. A job follows from another one where its earlier gang no longer fits
beside the other's use of a limit or a team's money, or where its later gang fits only since the other left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pricing.money import NANOS_PER_CENT, Usd
from router.planning.document.inputs import LimitAmount
from router.planning.document.plan_facts import JobPlacement, LimitHold, PlanFacts
from router.planning.document.plan_usage import TeamUsage
from router.planning.document.takers import Takers

CauseKind = Literal[
    "new", "gone", "job", "price", "place", "limit", "budget", "time", "speed", "moves", "displaced", "freed", "gap"
]
_SLACK = 1e-6
_LEAST_CHANGE = 1e-3  # of the hours billed; less of a change explains nothing
_LONGEST = 60  # characters of two values that are shown


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for a job's change; ``follows`` names the job that it follows from, "" for a cause of its own."""

    kind: CauseKind
    text: str
    follows: str = ""


def own_causes(name: str, before: PlanFacts, after: PlanFacts, fields: Sequence[str]) -> tuple[Cause, ...]:
    """Return the causes that lie in the job, its prices, limits, budget or time; ``fields`` are changes of its file."""
    old, new = before.jobs.get(name), after.jobs.get(name)
    if old is None or new is None:
        return (Cause("new", "new job"),) if old is None else (Cause("gone", "no longer among the jobs"),)
    causes = []
    if old.job_digest != new.job_digest:
        causes.append(Cause("job", f"the job changed: {', '.join(fields)}" if fields else "the job changed"))
    here, there = before.placements.get(name), after.placements.get(name)
    causes += _price_causes(name, before, after, here, there)
    causes += _limit_causes(name, before, after)
    causes += _budget_causes(name, before, after)
    # A restart is billed too: it follows from the job that goes first, and is no change of speed.
    if not causes and here is not None and here == there and new.preemption is None:
        causes += _same_place_causes(name, before, after)
    # From one night to the next it is true of most jobs, so that it explains only what nothing else does.
    passed = here is not None and old.start is not None and old.start < after.plan.as_of and old.start != new.start
    if not causes and passed:
        causes.append(Cause("time", "its earlier start has passed"))
    return tuple(causes)


def followed_causes(
    name: str, before: PlanFacts, after: PlanFacts, taking: Takers, leaving: Takers
) -> tuple[Cause, ...]:
    """Return the other jobs that this one makes way for, or whose room or money it now has.

    ``taking`` knows those that take more in the later plan, ``leaving`` those that took more in the earlier one.
    """
    found = [
        Cause("displaced", f"{job} now takes {limit}{_then(before, job, limit)}", job)
        for limit, job in _room_changes(name, before, after, taking)
    ]
    found += [
        Cause("freed", f"{job} no longer takes {limit}{_then(after, job, limit)}", job)
        for limit, job in _room_changes(name, after, before, leaving)
    ]
    preempted = after.jobs[name].preemption
    if preempted is not None:
        found += [Cause("displaced", f"{job} goes first", job) for job in preempted.by]
    team = before.jobs[name].team
    if _lacks_money(name, before, after):
        more = taking.of_team(team, name)
        found += [Cause("displaced", f"{job} takes more of team {team}'s budget", job) for job in more]
    if _lacks_money(name, after, before):
        less = leaving.of_team(team, name)
        found += [Cause("freed", f"{job} takes less of team {team}'s budget", job) for job in less]
    return tuple({cause.follows: cause for cause in reversed(found)}.values())[::-1]


def _then(other: PlanFacts, job: str, limit: str) -> str:
    """Return words for a job that takes the limit in the other plan too, at another time."""
    return " at that time" if any(hold.limit == limit for hold in other.holds_by_job.get(job, ())) else ""


def unexplained(name: str, before: PlanFacts, after: PlanFacts) -> Cause:
    """Return the cause of a change for which the plans show no other."""
    old, new = before.jobs[name], after.jobs[name]
    first, second = before.plan.inputs, after.plan.inputs
    if after.plan.restricted_to:
        return Cause("gap", "nothing of these teams is the cause: jobs of other teams are, or the gap of the plans")
    amounts = tuple(_amount_changes(before.limits, after.limits))
    # What teams have spent moves every night, and is a cause of its own where it decides anything.
    listed = amounts or _team_changes(before.teams, after.teams)
    if first.limits_digest != second.limits_digest and (amounts or not any(listed)):
        return Cause("limit", "; ".join(["the limits changed", *amounts[:3]]))
    there = after.placements.get(name)
    unknown = there is not None and before.nanos_per_hour(name, there) is None
    if before.plan.book_digest != after.plan.book_digest and unknown:
        return Cause("price", f"the prices changed; {there} was not among its best before")
    more = new.cost_usd - old.cost_usd
    allowed = Usd(round(after.plan.gap_asked * after.plan.cost_usd.nanos))
    if abs(more.nanos) <= max(allowed.nanos, NANOS_PER_CENT):
        return Cause("gap", f"equal within the gap ({_signed(more)}; {_usd(allowed)} of the plan are within it)")
    return Cause("gap", "neither plan shows a cause; both are within their gap")


def limit_changes(before: PlanFacts, after: PlanFacts) -> tuple[str, ...]:
    """Return the limits and budgets that changed, in words; a capacity counts only where both plans use the offer."""
    return (*_amount_changes(before.limits, after.limits), *_team_changes(before.teams, after.teams))


def spec_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields that differ between two job specifications, values below ``run`` left out."""
    return tuple(_field_changes(before, after, ""))


def _field_changes(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[str]:
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        at = f"{path}{key}"
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _field_changes(old, new, f"{at}.")
        elif at.startswith("run"):
            yield at
        elif new is None:
            yield f"{at} removed"
        elif old is None:
            yield f"{at} added"
        else:
            change = f"{_short(old)} -> {_short(new)}"
            yield f"{at} {change}" if len(change) <= _LONGEST else at


def _short(value: Any) -> str:
    return (", ".join(map(str, value)) or "empty") if isinstance(value, list) else str(value)


def _price_causes(
    name: str, before: PlanFacts, after: PlanFacts, here: JobPlacement | None, there: JobPlacement | None
) -> Iterator[Cause]:
    """Yield what the job's gang costs more at its old place, or less at its new one."""
    for place in dict.fromkeys(place for place in (here, there) if place is not None):
        old, new = before.nanos_per_hour(name, place), after.nanos_per_hour(name, place)
        if old is not None and new is not None and abs(old - new) > _SLACK * old:
            drives = here == there or (new > old) == (place == here)
            if drives:
                change = f"${old / 1e9:,.2f} -> ${new / 1e9:,.2f} an hour"
                yield Cause("price", f"{place} {'rose' if new > old else 'fell'}: {change}")
    gone = here is not None and here != there and after.nanos_per_hour(name, here) is None
    if gone and before.plan.book_digest != after.plan.book_digest:
        yield Cause("place", _refused_reason(name, after, here) or "the old place is no longer among its best")


def _refused_reason(name: str, after: PlanFacts, place: JobPlacement | None) -> str:
    """Return why the plan drops the offer of a place, where the reason is on record."""
    if place is None:
        return ""
    where = "/".join(p for p in (place.cloud, place.region, place.zone) if p)
    offer = f"{where}/{place.instance_type}/{place.market}: "
    examples = [dropped.example for dropped in after.jobs[name].dropped]
    return next((f"the old place is refused: {x.removeprefix(offer)}" for x in examples if x.startswith(offer)), "")


def _limit_causes(name: str, before: PlanFacts, after: PlanFacts) -> Iterator[Cause]:
    """Yield limits that leave no room for the old gang since they fell, or room for the new one since they rose."""
    for mine, other, fell in ((before, after, True), (after, before, False)):
        for hold in _without_room(name, mine, other):
            had, has = mine.limits.get(hold.limit), other.limits[hold.limit]
            if had is not None and had.amount > has.amount:
                text = _amounts(has, had) if not fell else _amounts(had, has)
                yield Cause("limit", text)


def _without_room(name: str, mine: PlanFacts, other: PlanFacts) -> Iterator[LimitHold]:
    """Yield the job's holds in one plan that do not fit beside the other jobs of the other plan, one a limit."""
    seen: set[str] = set()
    for hold in mine.holds_by_job.get(name, ()):
        limit = other.limits.get(hold.limit)
        start = max(hold.start, other.plan.horizon_start)
        if hold.limit in seen or limit is None or start >= hold.end:
            continue
        others = other.peak_use(hold.limit, start, hold.end, name)
        if others + hold.amount > limit.amount + _SLACK:
            seen.add(hold.limit)
            yield hold


def _room_changes(name: str, mine: PlanFacts, other: PlanFacts, takers: Takers) -> Iterator[tuple[str, str]]:
    """Yield limit and job for each job that takes, in the other plan alone, the room of one of the job's gangs."""
    for hold in _without_room(name, mine, other):
        had, has = mine.limits.get(hold.limit), other.limits[hold.limit]
        if had is None or had.amount <= has.amount:
            yield from ((hold.limit, job) for job in takers.of_limit(hold))


def _left(team: TeamUsage) -> Usd:
    return team.budget_usd - team.spent_usd


def _lacks_money(name: str, mine: PlanFacts, other: PlanFacts) -> bool:
    """Return whether the job's cost in one plan is more than the other plan leaves of its team's budget."""
    job = mine.jobs[name]
    money = other.teams.get(job.team)
    if money is None or name not in mine.placements:
        return False
    others = other.team_costs.get(job.team, Usd(0)) - (other.jobs[name].cost_usd if name in other.jobs else Usd(0))
    return others + job.cost_usd > _left(money)


def _budget_causes(name: str, before: PlanFacts, after: PlanFacts) -> Iterator[Cause]:
    """Yield the team's budget where its change decides whether the job's old or new cost is within it."""
    team = after.jobs[name].team
    old, new = before.teams.get(team), after.teams.get(team)
    if new is not None and (old is None or _left(new) < _left(old)) and _lacks_money(name, before, after):
        yield Cause("budget", _team_text(old, new))
    if old is not None and (new is None or _left(new) > _left(old)) and _lacks_money(name, after, before):
        yield Cause("budget", _team_text(old, new))


def _same_place_causes(name: str, before: PlanFacts, after: PlanFacts) -> Iterator[Cause]:
    """Yield why a job costs something else at the same place and price: billed time, its fallback, or moves."""
    hours = [sum(float(line.hours) for line in facts.lines[name]) for facts in (before, after)]
    # At one moment and on one book a job is as fast and as often interrupted as before: it only runs at other hours.
    same = (before.plan.as_of, before.plan.book_digest) == (after.plan.as_of, after.plan.book_digest)
    differ = round(hours[0], 2) != round(hours[1], 2) and abs(hours[1] - hours[0]) > _LEAST_CHANGE * hours[0]
    if differ and not same:
        yield Cause("speed", f"it is expected to be billed {hours[1]:,.2f} h, not {hours[0]:,.2f} h (speed or risk)")
    behind = [
        Usd.total(line.fallback.cost_usd for line in facts.lines[name] if line.fallback is not None)
        for facts in (before, after)
    ]
    if abs((behind[0] - behind[1]).nanos) > NANOS_PER_CENT and not same:
        text = f"its fallback on demand is expected to cost {_usd(behind[0])} -> {_usd(behind[1])} (time or risk)"
        yield Cause("speed", text)
    moves = [facts.move_costs.get(name, Usd(0)) for facts in (before, after)]
    if abs((moves[0] - moves[1]).nanos) > NANOS_PER_CENT:
        yield Cause("moves", f"moving its data costs {_usd(moves[0])} -> {_usd(moves[1])}")


def _amount_changes(before: Mapping[str, LimitAmount], after: Mapping[str, LimitAmount]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None:
            if old != new:
                yield _amounts(old, new)
        elif not name.startswith("capacity "):  # an offer that only one of the plans uses did not change
            found = old or new
            assert found is not None
            yield f"{name}: {'no longer there' if new is None else f'new, {found.amount:,} {found.unit}'}"


def _amounts(old: LimitAmount, new: LimitAmount) -> str:
    return f"{old.name}: {old.amount:,} -> {new.amount:,} {new.unit}"


def _team_changes(before: Mapping[str, TeamUsage], after: Mapping[str, TeamUsage]) -> Iterator[str]:
    for team in sorted(before.keys() | after.keys()):
        old, new = before.get(team), after.get(team)
        if old is None or new is None or (old.budget_usd, old.spent_usd) != (new.budget_usd, new.spent_usd):
            yield _team_text(old, new)


def _team_text(old: TeamUsage | None, new: TeamUsage | None) -> str:
    """Return how a budget changed, in words; where only the spending did, say so."""
    found = old or new
    assert found is not None
    name = f"budget of team {found.team}"
    if old is None or new is None:
        return f"{name}: {'no longer there' if new is None else f'new, {_usd(new.budget_usd)}'}"
    if old.budget_usd == new.budget_usd:
        return f"{name}: spent {_usd(old.spent_usd)} -> {_usd(new.spent_usd)} of {_usd(new.budget_usd)}"
    return f"{name}: {_usd(old.budget_usd)} -> {_usd(new.budget_usd)}"


def _usd(amount: Usd) -> str:
    return f"${amount.dollars():,.2f}"


def _signed(amount: Usd) -> str:
    return f"{'-' if amount.nanos < 0 else '+'}${abs(amount.dollars()):,.2f}"
