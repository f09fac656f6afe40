"""Text and JSON of ``apply``: the gangs before confirmation, and the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pricing.money import Usd
from pricing.units import format_count
from router.controller.accept.accept import AcceptedOrders
from router.controller.accept.guardrails import CurrentPrice, Refusal
from router.controller.context import ControllerContext
from router.controller.provision.provision_order import ProvisionRequest, ProvisionResult, existing_result
from router.deploy.deploy_settings import Deploy
from router.faults.fault import describe_fault
from router.jobs.run_policy import RunPolicy
from router.render.record_table import RecordTable, TableColumn, attribute_columns, json_document
from router.render.tables import (
    PLAIN,
    Screen,
    format_day_time,
    format_timestamp,
    format_usd,
    wrap_text,
)
from router.state.records import Attempt

_NAMED = 3


def plan_table(
    site: ControllerContext,
    accepted: AcceptedOrders,
    prices: Sequence[CurrentPrice],
    refused: Sequence[Refusal],
    screen: Screen = PLAIN,
) -> str:
    """Return a table of gangs with their places and money at risk, followed by policies, secrets and refusals."""
    rows = [
        (request, at_risk, existing_result(site, request.plan, request.order, request.planned_at))
        for request, at_risk in zip(accepted.requests, accepted.at_risk, strict=True)
    ]
    lines = [_ORDERS.text(rows, screen), ""]
    if any(price.unsure for price in prices):
        lines.append("some prices could not be refreshed: the last known ones are used")
    lines.append(
        f"{format_count(len(accepted.requests), 'gang')}, expected {format_usd(accepted.expected_usd)}, "
        f"at risk up to {format_usd(accepted.at_risk_usd)} (next places included)"
    )
    lines += [wrap_text(policy_line) for policy_line in _policies(accepted, site.deploy)]
    for job, team, references in accepted.secrets:
        given = ", ".join(f"{name} is {reference}" for name, reference in references)
        lines.append(wrap_text(_printable(f"secrets of {job} (team {team}): {given}")))
    for refusal in refused:
        prefix = f"{refusal.job}: " if refusal.job else ""
        lines.append(wrap_text(f"refused: {prefix}{refusal.what} ({refusal.remedy})"))
    return "\n".join(lines)


def _policies(accepted: AcceptedOrders, deploy: Deploy) -> list[str]:
    jobs_by_policy: dict[str, list[str]] = {}
    for job, assigned in accepted.policies.items():
        why = ""
        if assigned.overridden is not None:
            why = f", as the deploy file says (--override-policy); the quote was made for {assigned.overridden}"
        elif assigned.quoted is not None:
            differs = assigned.quoted.name != deploy.policy
            why = ", as its quote was made for" + (
                f", not by {deploy.policy.value}, the deploy file's" if differs else ""
            )
        jobs_by_policy.setdefault(f"run by {assigned.policy}{why}", []).append(job)
    return [
        f"{', '.join(jobs) if len(jobs) <= _NAMED else f'{len(jobs)} jobs'}: {text}"
        for text, jobs in jobs_by_policy.items()
    ]


def _printable(text: str) -> str:
    """Return the text with unprintable characters replaced, so that a terminal cannot obey them."""
    return "".join(c if c.isprintable() else "?" for c in text)


OrderRow = tuple[ProvisionRequest, Usd, ProvisionResult | None]
_ORDERS: RecordTable[OrderRow] = RecordTable(
    (
        TableColumn("", lambda row: row[0].order.job, "JOB", width=20),
        TableColumn("", lambda row: row[0].choices[0].place, "PLACE", width=48),
        TableColumn("", lambda row: row[0].order.start, "START", format_day_time),
        TableColumn("", lambda row: row[0].order.expected_usd, "EXPECTED", format_usd, right=True),
        TableColumn("", lambda row: row[1], "AT MOST", format_usd, right=True),
        TableColumn("", lambda row: len(row[0].choices) - 1, "NEXT", right=True),
        TableColumn("", lambda row: row[2].result.value if row[2] else "to be made", "STATE"),
    )
)


def outcomes_table(site: ControllerContext, outcomes: Sequence[ProvisionResult], screen: Screen = PLAIN) -> str:
    """Return a table with one row per gang, followed by the causes of failures."""
    lines = [_OUTCOMES.text(_outcome_rows(site, outcomes), screen)]
    lines += [
        wrap_text(f"{o.order.job}: {describe_fault(o.fault, o.attempt.region if o.attempt else '')}: {o.message}")
        for o in outcomes
        if o.fault is not None
    ]
    return "\n".join(lines) + "\n"


def outcomes_json(site: ControllerContext, outcomes: Sequence[ProvisionResult]) -> str:
    """Return the same as JSON."""
    return json_document({"gangs": _OUTCOMES.records(_outcome_rows(site, outcomes))})


class OutcomeRow(NamedTuple):
    """The result for a gang, with its attempt as it is now."""

    outcome: ProvisionResult
    attempt: Attempt | None


def _of_attempt(take: Callable[[Attempt], object]) -> Callable[[OutcomeRow], object]:
    return lambda row: None if row.attempt is None else take(row.attempt)


def _policy(attempt: Attempt) -> object:
    runs = RunPolicy.recorded(attempt.policy)
    return None if runs is None else runs.content


_OUTCOMES: RecordTable[OutcomeRow] = RecordTable(
    (
        TableColumn("job", lambda row: row.outcome.order.job, "JOB", width=20),
        *attribute_columns("gang", of="outcome.order"),
        TableColumn("start", lambda row: row.outcome.order.start, "START", format_day_time, plain=format_timestamp),
        TableColumn("result", lambda row: row.outcome.result.value, "RESULT"),
        TableColumn("cause", lambda row: None if row.outcome.fault is None else row.outcome.fault.reason),
        *attribute_columns("message", of="outcome"),
        TableColumn("", _of_attempt(lambda attempt: f"{attempt.cloud}/{attempt.region}"), "PLACE", width=26),
        TableColumn("", _of_attempt(lambda attempt: attempt.machines), "MACHINES", right=True),
        TableColumn("attempt", _of_attempt(lambda attempt: attempt.id), "ATTEMPT", width=40),
        TableColumn("phase", _of_attempt(lambda attempt: attempt.phase.value), "NOW"),
        *attribute_columns("cloud", "region", "machines", "usd_per_hour", of="attempt"),
        TableColumn("policy", _of_attempt(_policy)),
    )
)


def _outcome_rows(site: ControllerContext, outcomes: Iterable[ProvisionResult]) -> list[OutcomeRow]:
    attempts = site.store.attempts
    return [OutcomeRow(each, None if each.attempt is None else attempts.get(each.attempt.id)) for each in outcomes]
