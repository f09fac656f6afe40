"""Describe the fields of what a plan uses, for its JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from router.planning.document import plan_usage
from router.planning.find import placement_type

EVIDENCE = (
    "measured: points that the job states; learned: its earlier runs; published: its shape and published runs on the "
    "accelerator; shape: the shape alone."
)
# The description of a class is that of the field "".
USAGE_DESCRIPTIONS: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        plan_usage.PlanUsage: {
            "": "What the plan uses of limits and budgets, and the money at risk.",
            "month": "Calendar month (UTC) of the plan, for which budgets are counted, `YYYY-MM`.",
            "at_risk_usd": "Dollars if every order runs to its end at its max_usd_per_hour, or its fallback's.",
            "limits": "Limits that are full at some time or have a shadow price, by name.",
            "teams": "Teams that have a budget, by name.",
            "egress": "What leaves clouds that have a cap on egress, by cloud and month; absent where none has.",
            "cost_terms": "Terms of each placed job's cost, by name; left out where none is placed.",
            "placement_types": "What limits each job's speed, by name.",
            "speeds": "Evidence for the speeds of placed gangs, by job; left out where none is placed.",
            "digest": "SHA-256 of the usage without this field, with the plan's digest as `plan`, written like digest.",
        },
        plan_usage.LimitUsage: {
            "": "Use of one limit.",
            "limit": "Name of the limit, as in shadow_prices.",
            "kind": "quota or stock of the limits file; capacity of an offer; reservation.",
            "cloud": "Cloud; null where the limit holds for all clouds.",
            "region": "Region; null where the limit holds for all regions.",
            "market": "on_demand, spot or reserved; null where the limit holds for several.",
            "unit": "accelerators, vcpus or machines.",
            "amount": "How much there is.",
            "full": "Whether all of it is used at some time.",
            "use": "Use over time; none between the steps.",
        },
        plan_usage.UseStep: {
            "": "Use of a limit that stays the same for some time.",
            "start": "From here on.",
            "end": "Until here.",
            "used": "In the limit's unit; an outlook counts by the share of its time that is held.",
        },
        plan_usage.TeamUsage: {
            "": "Budget of a team with what is spent, ordered and foreseen in the month.",
            "team": "Team.",
            "budget_usd": "Budget of the month, dollars.",
            "spent_usd": "Spent before the plan, dollars.",
            "orders_usd": "Orders of this plan and the moves that they need, dollars.",
            "outlook_usd": "Outlook up to the end of the month, by its share of time, dollars.",
        },
        plan_usage.EgressUsage: {
            "": "What may leave a cloud in a month, and what does; GB are 10**9 bytes.",
            "cloud": "Cloud.",
            "month": "Calendar month (UTC), `YYYY-MM`.",
            "cap_gb": "The most GB that may leave it.",
            "before_gb": "GB that left before the plan.",
            "plan_gb": "GB that the moves of the plan take out.",
        },
        plan_usage.JobCostTerms: {
            "": "Terms of a placed job's cost; they add up to its cost_usd.",
            "job": "Job name.",
            "compute_usd": "Dollars for steps that last.",
            "lost_work_usd": "Dollars for steps that are expected to be repeated after interruptions.",
            "checkpoints_usd": "Dollars while checkpoints stop the training.",
            "restarts_usd": "Dollars for start-ups that are expected after interruptions.",
            "startups_usd": "Dollars for start-ups of the planned runs.",
            "moves_usd": "Dollars for moving data and checkpoints.",
            "stream_usd": "Dollars for data streamed from another region.",
            "idle_usd": "Dollars while machines wait for the last of their gang; left out where nothing is.",
            "fallback_usd": "Dollars expected of the gang behind a guarded run; left out where there is none.",
            "stated": "Quantities behind the terms that the job file states; left out where there are none.",
        },
        plan_usage.GangSpeed: {
            "": "The evidence for the speed of a placed gang.",
            "job": "Job name.",
            "gang": "Gang of the lines.",
            "accelerator": "Accelerator model, such as H100.",
            "accelerators": "Accelerators of all machines.",
            "speed_evidence": EVIDENCE,
            "speed_basis": "The same in words, with figures.",
            "relative_error": "Standard deviation of the run time, as a share of it.",
            "points": "Worth measuring first; left out where the speed is measured, little money rests on it, or "
            "twenty dearer jobs are named.",
        },
        plan_usage.PointToMeasure: {
            "": "A gang to measure for a quarter of an hour.",
            "accelerator": "Accelerator model.",
            "accelerators": "Accelerators of all machines.",
            "placement": "Machines x accelerators of each.",
            "cost_usd": "Dollars for the measurement, start-up included.",
            "error_after": "The relative_error once this point and those before it are measured.",
        },
        plan_usage.StatedQuantity: {
            "": "A quantity that the job file states, instead of a default or a model.",
            "term": "The term that rests on it, such as restarts_usd.",
            "field": "Its key in the job file, such as interruptions.restart.",
            "value": "Its value in words.",
        },
        placement_type.JobPlacementType: {
            "": "What limits a job's speed. Stated, it rules offers out; derived, only where it is used.",
            "job": "Job name.",
            "type": "communication, memory, data or compute; none: stated that nothing is ruled out.",
            "basis": "stated: in the job file; derived: from its workload.",
            "why": "How it was found, with the figures.",
            "term": "Largest term of its estimated step; left out where the speed is not estimated.",
            "term_share": "Median share of that term in a step, the terms one after the other; left out likewise.",
            "used": "Whether gangs against the type may be ruled out for it; left out where it is advice.",
        },
    }
)
