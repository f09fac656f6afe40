"""Build the JSON Schema of what :mod:`router.planning.document.plan_json` writes: ``docs/schema/plan.json``.

Types are read off the frozen values, so that a field cannot be added to a plan without a description (KeyError).
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import Any, Literal

from pricing.money import Usd, UsdPerHour
from pricing.pool_experience import PoolExperience
from router.jobs.experience import Experience, LearnedSpeed
from router.jobs.measured_speed import FabricRun
from router.jobs.run_policy import run_policy_schema
from router.planning.document import inputs, plan, plan_usage
from router.planning.document.plan_json import NESTED, OPTIMISTIC, SCHEMA_VERSION, optional_fields
from router.planning.document.plan_usage_schema import USAGE_DESCRIPTIONS
from router.planning.find import placement_type

_RESERVATION_COST = (
    "Of a reservation alone: amortised, its price counts in amortised_usd_per_hour; sunk, it is not counted any more; "
    "unknown, nobody stated it."
)


_USD_PER_HOUR = "Marginal price of all machines of the line, dollars an hour; zero on a reservation."
_GRAMS = "Grams of CO2e emitted in the hours billed; left out where the limits state no weight of carbon."
_CARBON_USD = "Dollars that they count at that weight; nobody pays them. Left out likewise."
_PLACE = {
    "cloud": "Cloud.",
    "region": "Region, in the cloud's own name.",
    "zone": "Zone; null where the price holds for the whole region.",
    "instance_type": "Machine type, in the cloud's own name.",
    "accelerator": "Accelerator model, such as H100.",
}
_FABRIC_RUN = {
    "": "The bus bandwidth that a gang measured before it trained.", "attempt": "The attempt whose gang it was.",
    "cloud": "Cloud.", "region": "Region.", "zone": "Zone; null where it is unknown.", "instance_type": "Machine type.",
    "machines": "Machines of the gang.", "gb_per_s": "GB/s, as nccl-tests define bus bandwidth.",
    "assumed_gb_per_s": "What its plan assumed; null: nothing.", "at": "When it was measured.",
}  # fmt: skip
PLAN_DESCRIPTIONS: Mapping[str, str] = {
    "plan": "Where each job runs, what it costs, and how sure that is. Money is a decimal string, times are UTC.",
    "schema_version": "Rises when a reader of the older form would misread the newer one.",
    "plan_id": "`plan-` and the first 12 digits of the digest.",
    "digest": (
        "SHA-256 of the document without digest, plan_id, usage and inputs, as JSON of sorted keys, no spaces, "
        "\\u escapes."
    ),
    "as_of": "The moment for which the plan was made.",
    "expires_at": "After this the prices are too old to order by.",
    "book": "The price book that was planned with.",
    "book_digest": "SHA-256 of the book's content.",
    "book_as_of": "The date of the book.",
    "horizon": "Orders are made for this stretch; what lies beyond it is an outlook.",
    "horizon_start": "First instant of the orders.",
    "horizon_end": "First instant of the outlook.",
    "status": (
        "optimal: the most jobs by priority are placed and the gap asked for is kept; feasible: placed, one of the two "
        "not proven; infeasible: it is proven that nothing can be placed; time_limit: nothing was found in time."
    ),
    "stage_one_proven": "Whether it is proven that no more jobs (by priority) could be placed.",
    "time_limit_hit": "Whether the time limit cut a phase short; only then may the same inputs give another plan.",
    "cost_usd": "Lines and moves, dollars.",
    "orders_usd": "Of it the orders and the moves into the regions that they use, dollars.",
    "threshold_usd": "Worth of the jobs' min_saving counted against further starts, dollars; in the gap, never paid.",
    "bound_usd": "Proven: no plan that places as many jobs has a lower objective (see gap), dollars.",
    "gap": "(objective - bound) / objective; the objective is cost + thresholds, less what commitments cover, and "
    "carbon_usd where it is weighed.",
    "gap_asked": "The gap at which the search could stop.",
    "solver": "Name of the solver.",
    "lines": "By job, then in time order.",
    "moves": "What is moved between regions, by job.",
    "unplaced": "Jobs that are left out, by name.",
    "shadow_prices": "Limits that cost jobs or money: those that place jobs first, then resolved ones, dearest first.",
    "jobs": "Every job, by name.",
    "cuts": "Phases that ended before they were done, by name; left out when there are none.",
    "fair_share": "Shares and recent use of teams, by name; left out where the limits file states no shares.",
    "carbon": "Emissions and their weight in the objective; left out where the limits state no weight of carbon.",
    "commitments": "Committed spend within the horizon; left out where the limits file states none.",
    "learned": "What earlier runs said of speeds and interruptions; left out where the plan was made without.",
    "restricted_to": (
        "Teams whose part of a plan this is; left out for a whole plan. Sums are of their jobs; bound_usd, and what is "
        "committed, used and unused of commitments, are 0, since they are of all jobs. It cannot be applied."
    ),
    "name": "Plans of one name follow each other; left out for `trial`, and outside the digest.",
    "inputs": "What limits and the use of them were, for comparing plans; outside the digest.",
    "usage": "What the plan uses of limits and budgets; outside the digest.",
}


FIELD_DESCRIPTIONS: Mapping[type, Mapping[str, str]] = {
    plan.Line: {
        "": "One stretch of a job on one offer. A gang with an on-demand core has two lines of the same gang and time.",
        **_PLACE,
        "job": "Job name.",
        "gang": "Lines with the same gang run together.",
        "kind": "order: inside the horizon, held whole; outlook: beyond it, a share of its time.",
        "provisionable": "Whether stepfare can order it.",
        "max_usd_per_hour": "Dollars an hour of all machines above which it must not be bought.",
        "market": "How it is bought.",
        "machines": "Number of machines.",
        "accelerators": "Accelerators of all machines.",
        "start": "From here on the machines are held.",
        "end": "Until here the machines are held.",
        "hours": "Hours expected to be billed, rounded to six decimals; exact in billed_microseconds.",
        "billed_microseconds": "Time expected to be billed, microseconds; cost_usd: usd_per_hour over it, + fallback.",
        "share": "Share of the time from start to end that is held; 1 for an order.",
        "startup": "Whether a start-up is paid in it.",
        "usd_per_hour": _USD_PER_HOUR,
        "amortised_usd_per_hour": "The same with reservations at what they really cost; null where that is unknown.",
        "steps": "Expected steps; on the gang's first line.",
        "steps_per_hour": "Expected steps an hour, checkpoints and interruptions counted.",
        "on_time_steps_per_hour": "Steps an hour reached with the job's confidence; by it time is reserved.",
        "billed_share": "Share of running time that is billed (waiting for a new gang is not).",
        "usd_per_step": "Amortised dollars a step of this line; null without steps, or where the price is unknown.",
        "cost_usd": "Dollars of the line.",
        "price_as_of": "Day of the price, `YYYY-MM-DD`, or undated.",
        "price_source": "Where the price is from.",
        "weak": "Why to doubt price or risk; empty when there is no doubt.",
        "reservation_cost": _RESERVATION_COST,
        "policy": "The policy that the accepted quote was made for, and that runs; absent where no quote was accepted.",
        "capacity": (
            "unknown: neither the offer nor the limits file says how many machines there are, and the plan takes them "
            "as unlimited. Left out otherwise."
        ),
        "grams_co2e": _GRAMS,
        "carbon_usd": _CARBON_USD,
        "carbon_doubt": "Figures that stand in for unknown ones in grams_co2e; left out where there are none.",
        "fallback": "The on-demand gang behind a guarded spot line; left out for any other.",
    },
    plan.LineFallback: {
        "": "The on-demand gang on which a spot line ends where the deadline guard says so, or its pool is left.",
        **_PLACE,
        "market": "How it is bought.",
        "machines": "Number of machines.",
        "accelerators": "Accelerators of all machines.",
        "usd_per_hour": "Price of all machines, dollars an hour.",
        "max_usd_per_hour": "Dollars an hour of all machines above which it must not be bought.",
        "hours": "Hours expected to be billed, over all runs; rounded to six decimals, exact in billed_microseconds.",
        "billed_microseconds": "Time expected to be billed, in microseconds.",
        "cost_usd": "Dollars expected, moving there included; part of the line's cost_usd.",
        "probability": "How often it is needed.",
        "refusal_probability": "How often it cannot be had when it is needed.",
        "reserved": "Whether limits are kept for it: without it the job would be less sure than it asks.",
    },
    plan.PlannedMove: {
        "": "Bytes moved into a region for a job.",
        "job": "Job name.",
        "what": "Training data copied, training data streamed, or a checkpoint.",
        "source": "`cloud/region` they come from.",
        "to": "`cloud/region` they go to.",
        "gib": "Volume in GiB (2^30 bytes).",
        "month": "Calendar month (UTC) that is billed, `YYYY-MM`: volumes add up over it.",
        "meter": "The tariff's key, by which volumes add up.",
        "cost_usd": "Its share of the meter's bill, dollars.",
    },
    plan.Unplaced: {
        "": "A job that is left out.",
        "job": "Job name.",
        "team": "Team of the job.",
        "priority": "Priority; higher ones are placed first.",
        "reason": "Why, in words.",
        "relaxations": "Changes of one rule each that would be enough.",
    },
    plan.Relaxation: {
        "": "The smallest change of one rule that would place a job, the others held in place. Both figures are upper "
        "ends: where all are planned again, less may do.",
        "change": "At most so much: `+3 h`, `+$210.00`, `allow aws/eu-west-1`.",
        "detail": "Of what, and where the job would then run.",
        "cost_usd": "What the job would then cost at most, dollars.",
    },
    **USAGE_DESCRIPTIONS,
    plan.PlanCarbon: {
        "": "Emissions of all lines.",
        "usd_per_tonne": "Dollars that a tonne of CO2e counts, by the limits file.",
        "grams_co2e": "Grams of CO2e of all lines.",
        "carbon_usd": "Dollars that they count in the objective; nobody pays them, and no budget counts them.",
    },
    plan.Cut: {
        "": "A phase of planning that ended before it was done.",
        "phase": (
            "offers, shortlist, placement, wider search, staying, repairs, confidence, early starts, shadow prices "
            "or explanations."
        ),
        "by": (
            "time: the clock, so that a run may differ from the next; work: a count, the same in every run; failure: "
            "the solver ended with an error, ran out of memory or was killed."
        ),
    },
    inputs.PlanInputs: {
        "": "Limits and budgets that the plan was made with, and what its gangs take of them.",
        "limits_digest": "SHA-256 of all limits, with hard budgets, spending and shortages.",
        "limits": "Limits of the file and capacities of the offers used, by name.",
        "use": "What each gang takes of each limit, by gang and limit.",
        "sources": "Limits and reservations that were read from clouds, by name; absent where none were.",
        "digest": "SHA-256 of the inputs without this field, with the plan's digest as `plan`, written like digest.",
    },
    inputs.LimitAmount: {
        "": "A limit on the use by all gangs at every instant.",
        "name": "Name of the limit, or of an offer's capacity.",
        "amount": "How much it allows.",
        "unit": "accelerators, vcpus or machines.",
    },
    inputs.LimitSource: {
        "": "A limit or reservation that was read from a cloud. The smaller of the two amounts binds.",
        "limit": "Name of the limit or reservation.",
        "source": "What was read: a quota or reservation of a cloud, or what its stock hint is.",
        "read_at": "When it was read.",
        "read": "How much the cloud allows or has.",
        "in_file": "How much the limits file says of the same machines; null where it has no such limit.",
        "unit": "accelerators, vcpus or machines.",
    },
    inputs.GangUse: {
        "": "What a gang takes of a limit while it holds its machines.",
        "gang": "Name of the gang, as in its lines.",
        "limit": "Name of the limit.",
        "amount": "How much it takes, in the limit's unit.",
    },
    plan.ShadowPrice: {
        "": "What more of a limit would bring over the whole plan: jobs placed first, then money.",
        "limit": "Name of the limit, of an offer's capacity, or of a team's budget.",
        "usd_per_unit": "Dollars that a unit saves; below zero where more jobs are placed and the bill rises.",
        "unit": "accelerators, vcpus, machines or USD.",
        "basis": "lp_estimate: the dual value of the relaxation; resolved: planned again with more of the limit; "
        "lp_resolved: of many jobs, the relaxation solved again; lp_at_least: the least that its bounds prove.",
        "raised_by": "Where solved again: by how many units the limit was raised; 1 where left out.",
        "machines": "Where solved again: how many machines of the blocked gang take that much; left out of budgets.",
        "instance_type": "Where solved again: the type of those machines.",
        "saves_usd": "Where solved again: dollars that the whole raise saves, without thresholds where resolved.",
        "places": "Resolved: how many more jobs it places, of the highest priority that gains; left out where none.",
    },
    plan.JobSummary: {
        "": "One job's result; start, finish and usd_per_step are null when it is left out.",
        "job": "Job name.",
        "job_digest": "SHA-256 of the job as it was read, values of environment variables left out.",
        "team": "Team of the job.",
        "project": "Project of the job.",
        "cost_usd": "Its lines and moves, dollars.",
        "usd_per_step": "Dollars a step, reservations at what they really cost, moves included.",
        "steps": "Steps that are planned.",
        "start": "When it starts.",
        "finish": "Until when it holds machines.",
        "deadline": "Its deadline.",
        "confidence": "How sure it asks to be done by the deadline.",
        "on_time_probability": "At least how sure it is to be done by its deadline; null without one.",
        "runner_up": "The best other way; null where there is none.",
        "alternatives": "Other ways to run the whole rest of the job, cheapest first: the order of fallbacks.",
        "constraint_costs": "What rules of the job cost it.",
        "dropped": "Offers that cannot serve it, by reason, most first.",
        "notes": "What to doubt in these figures.",
        "preemption": "What happens to a running job that makes way for others; absent for all other jobs.",
        "late": "By how much it ends after its deadline, as its file allows; absent for a job that ends in time.",
        "grams_co2e": _GRAMS,
        "carbon_usd": _CARBON_USD,
    },
    plan.CommitmentUse: {
        "": "A commitment of the limits file, and what the orders use of it. It is paid anyway.",
        "commitment": "Its name.",
        "committed_usd": "Dollars committed within the horizon, at the discounted prices.",
        "used_usd": "Of it what the orders use, dollars.",
        "unused_usd": "Of it what is lost, dollars.",
        "covered_usd": "Dollars of cost_usd, at on-demand prices, that it covers: they are not paid again.",
        "jobs": "The same by job, by name; parts add up to it.",
    },
    plan.JobCover: {
        "": "What a commitment covers of a job.",
        "job": "Job name.",
        "covered_usd": "Dollars of the job's cost_usd, at on-demand prices.",
    },
    plan.TeamStanding: {
        "": "A team's share and recent use, and what follows for its waiting jobs.",
        "team": "Name of the team.",
        "share": "Its share; 1 where none is stated.",
        "recent_usd": "Dollars that it used lately, older ones counted less.",
        "factor": "2 to the power of -(its part of all use / its part of all shares).",
        "band": "1 to 4: within a priority, jobs of band 1 are left out last.",
    },
    Experience: {
        "": "What was learned of earlier runs, as the plan used it: it is planned with instead of what jobs state.",
        "digest": "SHA-256 of the rows.",
        "speeds": "By job, then gang.",
        "pools": "By place, type, market and number of machines.",
        "fabrics": "All-reduces over gangs, the newest of each place and machine type; left out where there is none.",
    },
    FabricRun: _FABRIC_RUN,
    LearnedSpeed: {
        "": "The speed of a job's gang by its earlier runs.",
        "job": "Job of the plan.",
        "cloud": "Cloud of the newest run.",
        "instance_type": "Machine type of the newest run.",
        "accelerator": "Accelerator model, such as H100.",
        "accelerators": "Accelerators of all machines.",
        "machines": "Number of machines.",
        "fabric": "Network between the machines: rdma or ethernet; null for one machine.",
        "steps_per_hour": "Mean of the runs, older ones counted less; without starts and restarts.",
        "spread": "Relative standard deviation from run to run.",
        "weight": "How many runs of today they are worth.",
        "runs": "Number of runs.",
        "first_at": "When the earliest run ended.",
        "last_at": "When the latest run ended.",
        "attempts": "The newest runs: ids of attempts.",
    },
    PoolExperience: {
        "": "How long gangs or probes lived in a pool, and how often that ended; older ones counted less.",
        "cloud": "Cloud.",
        "region": "Region, in the cloud's own name.",
        "zone": "Zone; null where it is not known.",
        "instance_type": "Machine type, in the cloud's own name.",
        "market": "How it was bought.",
        "machines": "Machines of a gang.",
        "hours": "Hours in which they lived.",
        "exposure": "The same in operational time: ln(1 + hours / 0.6) of each life.",
        "interruptions": "Interruptions of them.",
        "runs": "Number of lives.",
        "kind": "gangs: machines that were held; availability: observations of whether any could be had.",
        "waited_hours": "Hours in which none could be had; 0 where nobody looked.",
        "waits": "How often that ended.",
        "first_at": "When the earliest of them ended.",
        "last_at": "When the latest of them ended.",
    },
    plan.Lateness: {
        "": "A job that is placed late because nothing holds its deadline.",
        "by_hours": "Hours from its deadline to its finish.",
        "planned_deadline": "The later deadline that the plan holds instead, with the job's confidence.",
        "why": "Why its own deadline does not hold.",
    },
    plan.Preemption: {
        "": "A running job that does not go on where it runs.",
        "what": "paused: it goes on later in its place; moved: elsewhere; left out.",
        "by": "Jobs that go first and hold what it would need, by name.",
        "restart_usd": "What its start-ups and moves cost, dollars; null where it is left out.",
    },
    plan.Alternative: {
        "": "Another way to run the whole rest of a job, the others held in place.",
        **_PLACE,
        "market": "How it is bought; spot for a spot gang with an on-demand core.",
        "machines": "Number of machines.",
        "accelerators": "Accelerators of all machines.",
        "usd_per_hour": "Marginal price of all machines, dollars an hour.",
        "usd_per_step": "Amortised dollars a step, moves included; null where the price is unknown.",
        "cost_usd": "What the job would then cost, dollars.",
        "finish": "Until when it would hold machines; null where it does not fit.",
        "provisionable": "Whether stepfare can order it.",
        "dominated": "Whether another offer of its region is at least as good in everything.",
        "lacks": "What it lacks; empty when it could be had, only dearer.",
        "reservation_cost": _RESERVATION_COST,
        "amortised_usd_per_hour": "Of a reservation alone: what all machines really cost an hour; null where unknown.",
        "grams_co2e": _GRAMS,
        "carbon_usd": _CARBON_USD,
        "mix": "Of a gang of two machine types alone: how many of each; instance_type is then one of them.",
    },
    plan.ConstraintCost: {
        "": "What a rule costs the job, the others held in place.",
        "rule": "residency, placement, egress cap, group, max_moves or deadline.",
        "saving_usd": "Dollars that the job would save without it.",
        "instead": "Where it would then run; empty where nothing is saved.",
    },
    plan.DroppedOffers: {
        "": "Offers that cannot serve the job, for one reason.",
        "reason": "Code of the reason.",
        "offers": "Their number.",
        "example": "The cheapest an accelerator-hour, with the reason in full.",
    },
}


Schema = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


_MONEY: Schema = {
    "type": "string",
    "pattern": r"^-?(0|[1-9][0-9]*)\.[0-9]{2,9}$",
    "examples": ["912.60", "0.006182354"],
    "description": "US dollars as an exact decimal string, to the nano-dollar.",
}


_TIME: Schema = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?Z$",
    "description": "An instant in UTC.",
}


_DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


_DEFINITIONS = {"usd": _MONEY, "time": _TIME}


# The classes with their names under `$defs`, which are published and stay when a class is renamed.
_PARTS: dict[type, str] = {
    plan.Line: "line",
    plan.PlannedMove: "move",
    plan.Unplaced: "unplaced",
    plan.Relaxation: "relaxation",
    plan.ShadowPrice: "shadow_price",
    plan.JobSummary: "job_summary",
    plan.Preemption: "preemption",
    plan.Lateness: "lateness",
    plan.TeamStanding: "team_standing",
    plan.Alternative: "alternative",
    plan.ConstraintCost: "constraint_cost",
    plan.DroppedOffers: "dropped_offers",
    plan.Cut: "cut",
    inputs.PlanInputs: "inputs",
    inputs.LimitAmount: "limit_amount",
    inputs.GangUse: "gang_use",
    inputs.LimitSource: "limit_source",
    plan_usage.PlanUsage: "usage",
    plan_usage.LimitUsage: "limit_usage",
    plan_usage.UseStep: "use_step",
    plan_usage.TeamUsage: "team_usage",
    plan_usage.EgressUsage: "egress_usage",
    plan_usage.GangSpeed: "gang_speed",
    plan_usage.JobCostTerms: "cost_terms",
    plan_usage.PointToMeasure: "point_to_measure",
    plan_usage.StatedQuantity: "stated_quantity",
    plan.PlanCarbon: "carbon",
    plan.CommitmentUse: "commitment_use",
    plan.JobCover: "job_cover",
    placement_type.JobPlacementType: "placement_type",
    Experience: "learned",
    LearnedSpeed: "learned_speed",
    PoolExperience: "pool_experience",
    FabricRun: "fabric_run",
    plan.LineFallback: "line_fallback",
}


# Fields are named as plan_json writes them: a move has `from`; book and horizon are objects.
_RENAMED: dict[tuple[type, str], str] = {(plan.PlannedMove, "source"): "from"}


_OPTIONAL = optional_fields(plan.Plan) | {OPTIMISTIC}


# Outside the plan's digest; each has a digest of its own.
_SECTIONS = frozenset({inputs.PlanInputs, plan_usage.PlanUsage})


_BOUNDS: dict[str, Schema] = {
    "accelerators": {"minimum": 1},
    "billed_share": {"minimum": 0, "maximum": 1},
    "by_hours": {"exclusiveMinimum": 0},
    "confidence": {"minimum": 0, "maximum": 1},
    "gap": {"minimum": 0, "maximum": 1},
    "gap_asked": {"minimum": 0},
    "gib": {"minimum": 0},
    "hours": {"minimum": 0},
    "machines": {"minimum": 1},
    "month": {"pattern": "^[0-9]{4}-[0-9]{2}$"},
    "market": {"enum": ["on_demand", "spot", "reserved"]},
    "on_time_probability": {"minimum": 0, "maximum": 1},
    "probability": {"minimum": 0, "maximum": 1},
    "refusal_probability": {"minimum": 0, "maximum": 1},
    "share": {"minimum": 0, "maximum": 1},
    "steps": {"minimum": 0},
    "used": {"minimum": 0},
    "what": {"enum": ["data", "stream", "checkpoint"]},
}


def plan_schema() -> Schema:
    """Return the schema (draft 2020-12) of one plan; equal on every call."""
    own = _properties(plan.Plan)
    properties: Schema = {
        "schema_version": {"const": SCHEMA_VERSION, "description": PLAN_DESCRIPTIONS["schema_version"]},
        "plan_id": {"type": "string", "pattern": "^plan-[0-9a-f]{12}$", "description": PLAN_DESCRIPTIONS["plan_id"]},
        "digest": {**_DIGEST, "description": PLAN_DESCRIPTIONS["digest"]},
        "book": _object(
            {"digest": {**_DIGEST, "description": PLAN_DESCRIPTIONS["book_digest"]}, "as_of": _at("book_as_of")}
        )
        | {"description": PLAN_DESCRIPTIONS["book"]},
        "horizon": _object({"start": _at("horizon_start"), "end": _at("horizon_end")})
        | {"description": PLAN_DESCRIPTIONS["horizon"]},
        **own,
        OPTIMISTIC: _optimistic_schema(),
    }
    return {
        "$schema": _DIALECT,
        "title": "A stepfare plan",
        "description": PLAN_DESCRIPTIONS["plan"],
        **_object(properties, _OPTIONAL),
        "$defs": {**_DEFINITIONS, **{name: _part(part) for part, name in _PARTS.items()}},
    }


def plan_schema_text() -> str:
    """Return the schema as it lies in ``docs/schema``: the same bytes every time, with a newline at the end."""
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"


def _optimistic_schema() -> Schema:
    """Return the schema of what `plan --optimistic` adds to its output, never to a plan that is stored."""
    usd: Schema = {"$ref": "#/$defs/usd"}
    usd_or_none: Schema = {"anyOf": [usd, {"type": "null"}]}
    text_or_none: Schema = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    job = _object(
        {
            "job": {"type": "string", "description": "Name of the job."},
            "before": {**text_or_none, "description": "Its place in this plan; null where it is left out."},
            "cost_before_usd": {**usd_or_none, "description": "Its cost in this plan, dollars."},
            "after": {**text_or_none, "description": "Its place at the lower end; null where it is left out."},
            "cost_after_usd": {**usd_or_none, "description": "Its cost at the lower end, dollars."},
        }
    )
    found = _object(
        {
            "cost_usd": {**usd, "description": "Cost of the other plan, dollars."},
            "difference_usd": {**usd, "description": "By how much it costs more than this plan, dollars."},
            "within_gap": {"type": "boolean", "description": "Whether the gaps of the two plans may explain that."},
            "unplaced": {"type": "array", "items": {"type": "string"}, "description": "Jobs that it leaves out."},
            "jobs": {"type": "array", "items": job, "description": "Jobs whose place or cost differs."},
        }
    )
    words = (
        "What `plan --optimistic` adds to its output: the plan of the same inputs with the interruptions of every spot "
        "pool at the lower end of their 80 % interval. A plan that is stored or written has none."
    )
    return {**found, "description": words}


def _object(properties: Schema, optional: frozenset[str] = frozenset()) -> Schema:
    """Return an object schema with every field required but the optional ones, and no other field."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _at(name: str) -> Schema:
    return {"$ref": "#/$defs/time", "description": PLAN_DESCRIPTIONS[name]}


def _part(kind: type) -> Schema:
    properties = _properties(kind)
    if kind in (plan.Line, plan.LineFallback):
        words = FIELD_DESCRIPTIONS[kind]["billed_microseconds"]
        properties["billed_microseconds"] = {"type": "integer", "minimum": 0, "description": words}
    if kind in _SECTIONS or kind is Experience:
        properties["digest"] = {**_DIGEST, "description": FIELD_DESCRIPTIONS[kind]["digest"]}
    schema = _object(properties, optional_fields(kind))
    if kind is plan.Line:
        # The field is absent where no quote was accepted.
        schema["properties"]["policy"] = run_policy_schema(FIELD_DESCRIPTIONS[kind]["policy"])
    return {"description": FIELD_DESCRIPTIONS[kind][""], **schema}


def _properties(kind: type) -> Schema:
    """Return the schemas of the fields by JSON name, in the order of the fields."""
    words = PLAN_DESCRIPTIONS if kind is plan.Plan else FIELD_DESCRIPTIONS[kind]
    hints = typing.get_type_hints(kind)
    properties: Schema = {}
    for field in fields(kind):
        if (kind is plan.Plan and field.name in NESTED) or (kind is plan.Line and field.name == "policy"):
            continue
        name = _RENAMED.get((kind, field.name), field.name)
        properties[name] = {**_type(hints[field.name], _BOUNDS.get(field.name, {})), "description": words[field.name]}
    return properties


_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", Fraction: "number"}


def _type(hint: Any, bounds: Schema) -> Schema:
    """Return a Python type as JSON Schema.

    Raises TypeError for one that a plan does not use.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Usd, UsdPerHour):
        return {"$ref": "#/$defs/usd"}
    if hint is datetime:
        return {"$ref": "#/$defs/time"}
    if hint in _PARTS:
        return {"$ref": f"#/$defs/{_PARTS[hint]}"}
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {"type": "string", "enum": [item.value for item in hint]}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint], **bounds}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _type(inner[0], {})}
    if origin is types.UnionType:
        known = next(kind for kind in inner if kind is not type(None))
        if known in _SECTIONS or known in (plan.PlanCarbon, plan.LineFallback, Experience):  # absent, never null
            return _type(known, bounds)
        return {"anyOf": [_type(known, bounds), {"type": "null"}]}
    raise TypeError(f"a plan holds no {hint}")
