"""Read from the state what plans predicted and what came of their orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from pricing.problems import InvalidInputError
from router.controller.history.run_records import is_interrupted
from router.ledger.entry import CostItem, LedgerEntryKind
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_from_json
from router.showback.plan_accuracy import Accuracy, PlanAccuracy, StepFigures, compare, predict, sum_accuracy
from router.state.records import Attempt
from router.state.store import StateStore

# Why an order that ended is not compared.
_NO_STEPS, _NO_PLAN, _NO_PRICE = "reported no steps", "have no plan with steps", "have no price"
_LONGEST_PLAN = timedelta(days=31)
_Key = tuple[str, str]


def plan_accuracy(store: StateStore, since: datetime, until: datetime) -> PlanAccuracy:
    """Return predicted and measured figures by job and in sum, of a job's orders that ended in that time.

    Orders of which a gang still runs are no part of it. Those that cannot be compared are counted by the reason.
    """
    runs: dict[_Key, list[Attempt]] = {}
    for attempt in store.overview.runs(since - _LONGEST_PLAN, until)[0]:
        runs.setdefault((attempt.plan, attempt.job), []).append(attempt)
    ended = {key: found for key, found in runs.items() if _ended_between(found, since, until)}
    plans = _plans(store, {plan for plan, _ in ended})
    begun = min((a.made_at for found in ended.values() for a in found if a.made_at is not None), default=until)
    costs = _costs(store, set(ended), begun, until)
    rows: list[Accuracy] = []
    left_out: Counter[str] = Counter()
    for (plan, job), attempts in sorted(ended.items()):
        predicted = predict(plans[plan], job) if plan in plans else None
        cost = costs.get((plan, job), (0, 0.0))
        if predicted is None or cost is None:
            left_out[_NO_PLAN if predicted is None else _NO_PRICE] += 1
            continue
        steps, usd = cost
        measured = StepFigures(steps, _hours(attempts), usd, sum(is_interrupted(a) for a in attempts))
        row = compare(job, predicted, measured)
        if row is None:
            left_out[_NO_STEPS] += 1
        else:
            rows.append(row)
    return PlanAccuracy(sum_accuracy(rows), left_out)


def _ended_between(attempts: Iterable[Attempt], since: datetime, until: datetime) -> bool:
    ends = [attempt.gone_at if attempt.phase.is_over else None for attempt in attempts]
    known = [end for end in ends if end is not None]
    return len(known) == len(ends) and since <= max(known) <= until


def _plans(store: StateStore, digests: Iterable[str]) -> dict[str, Plan]:
    """Return the stored plans of these digests; none of a plan that this version cannot read."""
    plans = {}
    for digest in sorted(digests):
        text = store.plans.plan(digest)
        try:
            if text is not None:
                plans[digest] = plan_from_json(text)
        except InvalidInputError:
            continue
    return plans


def _costs(
    store: StateStore, keys: set[_Key], since: datetime, until: datetime
) -> dict[_Key, tuple[int, float] | None]:
    """Return the steps saved and the dollars metered for machines by plan and job; None where a price is unknown."""
    found: dict[_Key, tuple[int, float]] = {}
    unpriced: set[_Key] = set()
    for entry in store.ledger.entries(since=since, until=until, kind=LedgerEntryKind.METERED):
        key = (entry.plan, entry.job)
        if key in keys and entry.what is CostItem.MACHINE:
            steps, usd = found.get(key, (0, 0.0))
            found[key] = (steps + entry.steps, usd + entry.usd.dollars())
            if entry.unpriced:
                unpriced.add(key)
    return {key: None if key in unpriced else sums for key, sums in found.items()}


def _hours(attempts: Iterable[Attempt]) -> float:
    """Return the hours that machines ran until the training ended, without the first start of each order."""
    orders: dict[tuple[str, datetime], list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.number):
        if attempt.met_at is not None or (attempt.gang, attempt.start) in orders:
            orders.setdefault((attempt.gang, attempt.start), []).append(attempt)
    total = timedelta(0)
    for first, *later in orders.values():
        spans = [(first.met_at, first), *((each.made_at, each) for each in later)]
        for begun, attempt in spans:
            ended = attempt.result_at or attempt.gone_at
            if begun is not None and ended is not None:
                total += max(ended - begun, timedelta(0))
    return total / timedelta(hours=1)
