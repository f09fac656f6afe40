"""Checks of a plan's money: every line, every move, budgets, totals, bound and gap."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction

from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.document.plan import Line
from tests.support.plan_view import View
from tests.support.schedules import within_cap
from tests.support.shipping import Need, checkpoint_need, needs_into
from tests.support.tariff_oracle import GIB, Shipment, bill, meter_name

RELATIVE = 1e-6


def check_line_costs(view: View) -> Iterator[str]:
    """A line costs its price times its hours, rounded once, half to even, and what its fallback is expected to cost."""
    for line in view.plan.lines:
        exact = round(Fraction(line.usd_per_hour.nanos) * line.hours)
        behind = line.fallback
        if behind is not None:
            own = round(Fraction(behind.usd_per_hour.nanos) * behind.hours)
            stays = (behind.cloud, behind.region) == (line.cloud, line.region)
            if behind.cost_usd.nanos < own or (stays and behind.cost_usd.nanos != own):
                yield f"{line.job} {line.start}: its fallback costs {behind.cost_usd}, not {own / 1e9}"
            exact += behind.cost_usd.nanos
        if line.cost_usd.nanos != exact:
            yield f"{line.job} {line.start}: costs {line.cost_usd}, not {exact / 1e9}"
        if line.hours < 0:
            yield f"{line.job} {line.start}: {line.hours} hours"


def expected_moves(view: View, job: Job) -> list[tuple[str, RegionId, Need]]:
    """(month, to, need) for all that a job's lines make necessary, in order of time."""
    result: list[tuple[str, RegionId, Need]] = []
    seen: dict[RegionId, datetime] = {}
    lies: RegionId | None = None
    for stretch in view.stretches(job):
        here, month = stretch.region, stretch.head.start.strftime("%Y-%m")
        if here not in seen:
            first = not seen
            seen[here] = stretch.head.start
            result += [
                (month, here, need) for need in needs_into(job, here, view.book) if first or need.what != "checkpoint"
            ]
        if lies is not None and lies != here and job.checkpoint is not None:
            result.append((month, here, checkpoint_need(job, lies, here, view.book)))
        lies = here
    return result


def check_moves(view: View) -> Iterator[str]:
    """Each move that is needed is there once, none else, in the right month, at the tariff's price."""
    shipments: list[Shipment] = []
    for job in view.jobs:
        expected = expected_moves(view, job)
        wanted = sorted((need.what, str(need.source), str(to), month) for month, to, need in expected)
        planned = [move for move in view.plan.moves if move.job == job.name]
        found = sorted((move.what, move.source, move.to, move.month) for move in planned if move.source != move.to)
        if wanted != found:
            yield f"{job.name}: moves {found}, needs {wanted}"
        for move in planned:
            if move.source == move.to and move.cost_usd.nanos:
                yield f"{job.name}: pays {move.cost_usd} for staying in {move.to}"
        for month, to, need in expected:
            if need.tariff is None:
                yield f"{job.name}: {need.what} from {need.source} to {to} has no known tariff"
                continue
            shipments.append(Shipment(need.tariff, month, need.volume))
            for move in planned:
                same = (move.what, move.source, move.to) == (need.what, str(need.source), str(to))
                if same and abs(move.gib - need.gib) > 1e-9 * need.gib + 1 / GIB:
                    yield f"{job.name}: moves {move.gib} GiB of {need.gib}"
        if not within_cap(job, [need for _, _, need in expected]):
            yield f"{job.name}: moves more than its egress cap"
    yield from _check_meters(view, shipments)


def check_egress_caps(view: View) -> Iterator[str]:
    """In no month more leaves a cloud for another than its cap, with what left before; where a cap concerns one of two
    clouds, no job takes its checkpoint from one to the other."""
    caps = {cloud: float(gb) for cloud, gb in dict(view.limits.egress_caps_gb).items()}
    left: dict[tuple[str, str], float] = {}
    for cloud, moved in dict(view.limits.egress_month_to_date_gb).items():
        left[cloud, view.now.strftime("%Y-%m")] = float(moved)
    before = dict(left)
    for job in view.jobs:
        for month, to, need in expected_moves(view, job):
            if need.source.cloud != to.cloud:
                place = (need.source.cloud, month)
                left[place] = left.get(place, 0.0) + need.volume / 1e9
        clouds = {stretch.region.cloud for stretch in view.stretches(job)}
        if job.checkpoint is not None and len(clouds) > 1 and clouds & caps.keys():
            yield f"{job.name}: takes its checkpoint along between {sorted(clouds)}, of which one has a cap"
    for (cloud, month), gb in left.items():
        if cloud in caps and gb > max(caps[cloud], before.get((cloud, month), 0.0)) + RELATIVE:
            yield f"{gb:.3f} GB leave {cloud} in {month}, its cap is {caps[cloud]}"


def _check_meters(view: View, shipments: list[Shipment]) -> Iterator[str]:
    bills = bill(
        shipments,
        tariffs=view.book.tariffs,
        this_month=view.now.strftime("%Y-%m"),
        moved_bytes={c: round(gb * 10**9) for c, gb in dict(view.limits.egress_month_to_date_gb).items()},
    )
    charged: dict[tuple[str, str], int] = {}
    for move in view.plan.moves:
        if move.source != move.to:
            charged[move.month, move.meter] = charged.get((move.month, move.meter), 0) + move.cost_usd.nanos
    for key in sorted(bills.keys() | charged.keys()):
        # Half a nano-dollar of rounding, and one byte of volume where a share of the data is moved.
        if abs(Fraction(charged.get(key, 0)) - bills.get(key, Fraction(0))) > 2:
            yield f"{key}: charged {charged.get(key, 0)} nano-dollars, costs {float(bills.get(key, 0))}"
    known = {meter_name(item.tariff) for item in shipments}
    for move in view.plan.moves:
        if move.source != move.to and move.meter not in known:
            yield f"{move.job}: meter {move.meter!r} is not the one it moves on"


def _at_dearest(view: View, job: Job) -> float:
    lines = sum(line.cost_usd.dollars() for line in view.lines_of(job))
    return lines + sum(need.top_dollars for _, _, need in expected_moves(view, job))


def check_budgets(view: View) -> Iterator[str]:
    """Jobs and teams stay within budget, moves counted at their tariff's dearest tier."""
    for job in view.jobs:
        spent = _at_dearest(view, job)
        if job.budget is not None and spent > job.budget.dollars() * (1 + RELATIVE):
            yield f"{job.name}: {spent:.6f} of a budget of {job.budget}"
    for team in view.limits.teams:
        spent = sum(_at_dearest(view, job) for job in view.jobs if job.team == team.team)
        if spent + team.spent.dollars() > team.budget.dollars() * (1 + RELATIVE):
            yield f"team {team.team}: {spent:.6f} after {team.spent} of a budget of {team.budget}"


def check_totals(view: View) -> Iterator[str]:
    """Sums to the nano-dollar: lines and moves, orders, jobs, thresholds."""
    plan = view.plan
    lines = sum(line.cost_usd.nanos for line in plan.lines)
    moves = sum(move.cost_usd.nanos for move in plan.moves)
    if plan.cost_usd.nanos != lines + moves:
        yield f"total {plan.cost_usd}, lines and moves add up to {(lines + moves) / 1e9}"
    if plan.orders_usd.nanos != _orders(view):
        yield f"orders {plan.orders_usd}, they add up to {_orders(view) / 1e9}"
    for summary in plan.jobs:
        own = sum(line.cost_usd.nanos for line in plan.lines if line.job == summary.job)
        own += sum(move.cost_usd.nanos for move in plan.moves if move.job == summary.job)
        if summary.cost_usd.nanos != own:
            yield f"{summary.job}: {summary.cost_usd}, its lines and moves add up to {own / 1e9}"
    least, most = 0, 0
    for job in view.jobs:
        runs = view.runs(job)
        running = job.status is not None and job.status.running is not None
        whole = sum(not view.stays(job, run) and run[0].head.kind == "order" for run in runs)
        # In the outlook a share of a slot takes a share of a start, and a share that rises another.
        shares = sum(stretch.head.kind == "outlook" and stretch.head.startup for run in runs for stretch in run)
        least += max(0, whole - (0 if running else 1)) * job.gang.min_saving.nanos
        most += max(0, whole + shares - (0 if running else 1)) * job.gang.min_saving.nanos
    if not least <= plan.threshold_usd.nanos <= most:
        yield f"thresholds {plan.threshold_usd}, starts make {least / 1e9} to {most / 1e9}"


def _orders(view: View) -> int:
    """Order lines, and the moves into regions that orders use."""
    orders: list[Line] = [line for line in view.plan.lines if line.kind == "order"]
    used = {(line.job, f"{line.cloud}/{line.region}") for line in orders}
    moves = sum(move.cost_usd.nanos for move in view.plan.moves if (move.job, move.to) in used)
    return sum(line.cost_usd.nanos for line in orders) + moves


def check_status(view: View) -> Iterator[str]:
    """The words about the result are what the figures say."""
    plan = view.plan
    value = plan.cost_usd.dollars() + plan.threshold_usd.dollars()
    value -= sum(use.covered_usd.dollars() for use in plan.commitments)
    value += 0.0 if plan.carbon is None else plan.carbon.carbon_usd.dollars()
    bound = plan.bound_usd.dollars()
    if bound > value * (1 + 1e-9) + 1e-9:
        yield f"bound {bound} above the plan's own {value}"
    gap = (value - bound) / value if value > 0 else 0.0
    if abs(gap - plan.gap) > 1e-6:
        yield f"gap {plan.gap}, figures say {gap}"
    if plan.status == "optimal" and (gap > plan.gap_asked + 1e-6 or not plan.stage_one_proven):
        yield f"optimal with a gap of {gap}, asked {plan.gap_asked}, stage one {plan.stage_one_proven}"
    if plan.status == "time_limit" and not plan.time_limit_hit:
        yield "status time_limit, which was not hit"
    if plan.status == "infeasible" and plan.lines:
        yield "infeasible, yet it has lines"
    placed = {line.job for line in plan.lines}
    left = [item.job for item in plan.unplaced]
    names = sorted(job.name for job in view.jobs)
    if sorted([*placed, *left]) != names:
        yield f"placed {sorted(placed)} and unplaced {sorted(left)} are not {names}"
    if sorted(summary.job for summary in plan.jobs) != names:
        yield "not every job has its summary"
