"""What `apply` shows: the gangs before it asks, and what came of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from router.config.deploy_file import Deploy
from router.controller.accept import Accepted
from router.controller.context import Site
from router.controller.guardrails import PriceNow, Refusal
from router.controller.placement_options import most_at_risk
from router.controller.provision_order import Outcome, standing
from router.jobs.run_policy import RunPolicy
from router.render.tables import columns, dollars, stamp, when, wrapped
from router.state.records import Attempt

SCHEMA_VERSION = 1
_NAMED = 3


def plan_table(site: Site, accepted: Accepted, prices: Sequence[PriceNow], refused: Sequence[Refusal]) -> str:
    """Gangs with their places, money at risk, and what speaks against it."""
    rows = []
    for errand in accepted.errands:
        choice = errand.choices[0]
        stands = standing(site, errand.plan, errand.order)
        rows.append(
            (
                errand.order.job,
                choice.place,
                when(errand.order.start),
                dollars(errand.order.expected_usd),
                dollars(most_at_risk(errand.choices)),
                str(len(errand.choices) - 1),
                stands.result.value if stands else "to be made",
            )
        )
    header = ("JOB", "PLACE", "START", "EXPECTED", "AT MOST", "NEXT", "STATE")
    widths = {"JOB": 20, "PLACE": 48}
    lines = [columns(header, rows, frozenset({"EXPECTED", "AT MOST", "NEXT"}), widths), ""]
    if any(price.unsure for price in prices):
        lines.append("some prices could not be refreshed: the last ones that were had are used")
    lines.append(
        f"{len(accepted.errands)} gangs, expected {dollars(accepted.expected_usd)}, "
        f"at risk up to {dollars(accepted.at_risk_usd)} (next places included)"
    )
    lines += [wrapped(said) for said in _policies(accepted, site.deploy)]
    for job, team, references in accepted.secrets:
        given = ", ".join(f"{name} is {reference}" for name, reference in references)
        lines.append(wrapped(_printable(f"secrets of {job} (team {team}): {given}")))
    for refusal in refused:
        whose = f"{refusal.job}: " if refusal.job else ""
        lines.append(wrapped(f"refused: {whose}{refusal.what} ({refusal.remedy})"))
    return "\n".join(lines)


def _policies(accepted: Accepted, deploy: Deploy) -> list[str]:
    """Which policy runs which jobs, and why where it is not simply the deploy file's."""
    said: dict[str, list[str]] = {}
    for job, found in accepted.policies.items():
        why = ""
        if found.overridden is not None:
            why = f", as the deploy file says (--override-policy); the quote was made for {found.overridden}"
        elif found.quoted is not None:
            differs = found.quoted.name != deploy.policy
            why = ", as its quote was made for" + (
                f", not by {deploy.policy.value}, the deploy file's" if differs else ""
            )
        said.setdefault(f"run by {found.policy}{why}", []).append(job)
    return [f"{', '.join(jobs) if len(jobs) <= _NAMED else f'{len(jobs)} jobs'}: {text}" for text, jobs in said.items()]


def _printable(text: str) -> str:
    """The text without what a terminal would take for an order."""
    return "".join(c if c.isprintable() else "?" for c in text)


def outcomes_table(site: Site, outcomes: Sequence[Outcome]) -> str:
    """One line a gang."""
    rows = []
    for outcome in outcomes:
        attempt = _fresh(site, outcome)
        rows.append(
            (
                outcome.order.job,
                when(outcome.order.start),
                outcome.result.value,
                f"{attempt.cloud}/{attempt.region}" if attempt else "",
                str(attempt.machines) if attempt else "",
                attempt.id if attempt else "",
                (attempt.phase.value if attempt else ""),
            )
        )
    header = ("JOB", "START", "RESULT", "PLACE", "MACHINES", "ATTEMPT", "NOW")
    lines = [columns(header, rows, frozenset({"MACHINES"}), {"JOB": 20, "PLACE": 26, "ATTEMPT": 40})]
    lines += [wrapped(f"{o.order.job}: {o.cause}: {o.message}") for o in outcomes if o.cause is not None]
    return "\n".join(lines) + "\n"


def outcomes_json(site: Site, outcomes: Sequence[Outcome]) -> str:
    """The same for programs."""
    rows = []
    for outcome in outcomes:
        attempt = _fresh(site, outcome)
        rows.append(
            {
                "job": outcome.order.job,
                "gang": outcome.order.gang,
                "start": stamp(outcome.order.start),
                "result": outcome.result.value,
                "cause": None if outcome.cause is None else outcome.cause.value,
                "message": outcome.message,
                "attempt": None if attempt is None else attempt.id,
                "phase": None if attempt is None else attempt.phase.value,
                "cloud": None if attempt is None else attempt.cloud,
                "region": None if attempt is None else attempt.region,
                "machines": None if attempt is None else attempt.machines,
                "usd_per_hour": None if attempt is None else str(attempt.usd_per_hour),
                "policy": None
                if attempt is None or (runs := RunPolicy.recorded(attempt.policy)) is None
                else runs.content,
            }
        )
    return json.dumps({"schema_version": SCHEMA_VERSION, "gangs": rows}, indent=2) + "\n"


def _fresh(site: Site, outcome: Outcome) -> Attempt | None:
    return None if outcome.attempt is None else site.store.attempt(outcome.attempt.id)
