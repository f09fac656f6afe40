"""Write a plan as JSON (canonical bytes with a digest over them) and read it back.

Schema: ``docs/schema/plan.json``. Money is a decimal string, times are UTC with ``Z``, shares and rates are numbers.
A field that has a default is left out at its default, so that one that a later version adds changes no plan without it.
``digest`` is SHA-256 over the document without ``digest``, ``plan_id``, ``name``, ``usage`` and ``inputs``; the last
two have digests of their own. A file whose digests do not match was edited and is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from datetime import datetime
from fractions import Fraction
from typing import Any, TypeVar

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from pricing.pool_experience import PoolExperience
from pricing.problems import InvalidInputError
from pricing.units import format_utc
from router.jobs.experience import Experience, LearnedSpeed
from router.jobs.fields import parse_name
from router.jobs.measured_speed import FabricRun
from router.jobs.run_policy import RunPolicy
from router.planning.document.inputs import GangUse, LimitAmount, LimitSource, PlanInputs
from router.planning.document.plan import (
    Alternative,
    CommitmentUse,
    ConstraintCost,
    Cut,
    DroppedOffers,
    JobCover,
    JobSummary,
    Lateness,
    Line,
    LineFallback,
    Plan,
    PlanCarbon,
    PlannedMove,
    Preemption,
    Relaxation,
    ShadowPrice,
    TeamStanding,
    Unplaced,
)
from router.planning.document.plan_terms import TRIAL
from router.planning.document.plan_usage import (
    EgressUsage,
    GangSpeed,
    JobCostTerms,
    LimitUsage,
    PlanUsage,
    PointToMeasure,
    StatedQuantity,
    TeamUsage,
    UseStep,
)
from router.planning.find.placement_type import JobPlacementType

SCHEMA_VERSION = 1
# The digest names what is ordered; these sections describe it.
SECTIONS = ("inputs", "usage")
# What `plan --optimistic -o json` adds for its reader: no part of a plan, and not read back.
OPTIMISTIC = "optimistic"
# Written as `book` and `horizon`.
NESTED = frozenset({"book_digest", "book_as_of", "horizon_start", "horizon_end"})
OUTSIDE_DIGEST = frozenset({"digest", "plan_id", "name", OPTIMISTIC, *SECTIONS})
T = TypeVar("T")
_MICROSECONDS_PER_HOUR = 3_600_000_000


def plan_to_json(plan: Plan) -> str:
    """Return the plan as canonical JSON: sorted keys, two spaces, a newline at the end.

    Equal plans give equal bytes.
    """
    content = plan_content(plan)
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def plan_content(plan: Plan) -> dict[str, Any]:
    """Return the document as plain data, digest and id included."""
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        **_fields(plan),
        "book": {"digest": plan.book_digest, "as_of": format_utc(plan.book_as_of)},
        "horizon": {"start": format_utc(plan.horizon_start), "end": format_utc(plan.horizon_end)},
        "moves": [_move(move) for move in plan.moves],
    }
    for name in NESTED:
        del content[name]
    if plan.learned is not None:
        content["learned"]["digest"] = plan.learned.digest
    digest = _digest(content)
    for name in SECTIONS:
        content[name]["digest"] = _section_digest(content[name], digest)
    return {**content, "digest": digest, "plan_id": f"plan-{digest[:12]}"}


def _digest(content: dict[str, Any]) -> str:
    return _sha256({key: value for key, value in content.items() if key not in OUTSIDE_DIGEST})


def _section_digest(section: dict[str, Any], plan_digest: str) -> str:
    """Return the digest of a section outside the plan's digest; it holds for one plan alone."""
    return _sha256({"plan": plan_digest, **{key: value for key, value in section.items() if key != "digest"}})


def _sha256(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def optional_fields(kind: type) -> frozenset[str]:
    """Return the fields of a part of the plan that its JSON form leaves out at their default."""
    return frozenset(field.name for field in fields(kind) if field.default is not MISSING)


def _plain(value: Any) -> Any:
    """Return a frozen value as JSON data, field by field."""
    if isinstance(value, (Usd, UsdPerHour)):
        return str(value)
    if isinstance(value, datetime):
        return format_utc(value)
    if isinstance(value, RunPolicy):
        return value.content
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Fraction):
        return round(float(value), 6)
    return _fields(value) if hasattr(value, "__dataclass_fields__") else value


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a frozen value without those that have a default and are at it."""
    given = ((field, getattr(value, field.name)) for field in fields(value))
    content = {f.name: _plain(each) for f, each in given if f.default is MISSING or each != f.default}
    if isinstance(value, (Line, LineFallback)):
        content["billed_microseconds"] = int(value.hours * _MICROSECONDS_PER_HOUR)
    return content


def _move(move: PlannedMove) -> dict[str, Any]:
    content: dict[str, Any] = _plain(move)
    content["from"] = content.pop("source")
    return content


_MAKE = "stepfare plan --out plan.json"


def plan_from_json(text: str, where: str = "") -> Plan:
    """Return the plan that the text holds.

    Raises InvalidInputError when it is no plan, of a later schema, or not what its digest says.
    """
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if where.endswith((".yaml", ".yml")):
            raise InvalidInputError.single(
                "is YAML, such as a file of jobs, and no plan", where=where, remedy=f"make one of it: {_MAKE} {where}"
            ) from None
        raise InvalidInputError.single(
            f"is not JSON: {error.msg}", where=f"{where}:{error.lineno}:{error.colno}", remedy="make the plan again"
        ) from None
    if not isinstance(content, dict) or "schema_version" not in content:
        what = "is no plan: schema_version is missing"
        raise InvalidInputError.single(what, where=where, remedy=f"name a file that {_MAKE} made")
    if content["schema_version"] != SCHEMA_VERSION:
        raise InvalidInputError.single(
            f"schema_version {content['schema_version']} is not {SCHEMA_VERSION}, which this stepfare reads",
            where=where,
        )
    if content.get("digest") != _digest(content):
        raise _changed(where, "digest")
    for name in SECTIONS:
        section = content.get(name)
        if not isinstance(section, dict) or section.get("digest") != _section_digest(section, content["digest"]):
            raise _changed(where, f"{name}.digest")
    try:
        return _plan(content)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError.single(f"is no plan: {error!r}", where=where) from None


def _changed(where: str, field: str) -> InvalidInputError:
    return InvalidInputError.single(
        "was changed after it was made: its digest does not fit",
        where=where,
        field=field,
        remedy="make the plan again with stepfare plan --out",
    )


def _plan(c: dict[str, Any]) -> Plan:
    return Plan(
        as_of=_read_time(c["as_of"]),
        expires_at=_read_time(c["expires_at"]),
        book_digest=c["book"]["digest"],
        book_as_of=_read_time(c["book"]["as_of"]),
        horizon_start=_read_time(c["horizon"]["start"]),
        horizon_end=_read_time(c["horizon"]["end"]),
        status=c["status"],
        stage_one_proven=c["stage_one_proven"],
        time_limit_hit=c["time_limit_hit"],
        cost_usd=Usd.parse(c["cost_usd"]),
        orders_usd=Usd.parse(c["orders_usd"]),
        threshold_usd=Usd.parse(c["threshold_usd"]),
        bound_usd=Usd.parse(c["bound_usd"]),
        gap=c["gap"],
        gap_asked=c["gap_asked"],
        solver=c["solver"],
        lines=tuple(_read_line(x) for x in c["lines"]),
        moves=tuple(_read(PlannedMove, {**m, "source": m["from"]}) for m in c["moves"]),
        unplaced=tuple(
            _read(Unplaced, {**u, "relaxations": _many(Relaxation, u["relaxations"])}) for u in c["unplaced"]
        ),
        shadow_prices=_many(ShadowPrice, c["shadow_prices"]),
        jobs=tuple(_read_job(j) for j in c["jobs"]),
        cuts=_many(Cut, c.get("cuts", ())),
        inputs=_read_inputs(c["inputs"]),
        usage=_read_usage(c["usage"]),
        fair_share=_many(TeamStanding, c.get("fair_share", [])),
        carbon=_read(PlanCarbon, c["carbon"]) if "carbon" in c else None,
        commitments=tuple(
            _read(CommitmentUse, {**use, "jobs": _many(JobCover, use["jobs"])}) for use in c.get("commitments", [])
        ),
        learned=_read_learned(c["learned"]) if "learned" in c else None,
        restricted_to=tuple(c.get("restricted_to", ())),
        name=parse_name(c.get("name", TRIAL)),
    )


def _read_inputs(content: dict[str, Any]) -> PlanInputs:
    return PlanInputs(
        limits_digest=content["limits_digest"],
        limits=_many(LimitAmount, content["limits"]),
        use=_many(GangUse, content["use"]),
        sources=_many(LimitSource, content.get("sources", [])),
    )


def _read_learned(content: dict[str, Any]) -> Experience:
    speeds = [{**row, "attempts": tuple(row["attempts"])} for row in content.get("speeds", ())]
    fabrics = _many(FabricRun, [{**row, "at": _read_time(row["at"])} for row in content.get("fabrics", ())])
    pools = [{**row, "market": Market(row["market"])} for row in content.get("pools", ())]
    return Experience(_many(LearnedSpeed, speeds), _many(PoolExperience, pools), fabrics)


def _read_usage(content: dict[str, Any]) -> PlanUsage:
    limits = [{**limit, "use": _many(UseStep, limit["use"])} for limit in content["limits"]]
    usage = {
        **content,
        "limits": _many(LimitUsage, limits),
        "teams": _many(TeamUsage, content["teams"]),
        "egress": _many(EgressUsage, content.get("egress", ())),
        "cost_terms": tuple(
            _read(JobCostTerms, {**terms, "stated": _many(StatedQuantity, terms.get("stated", ()))})
            for terms in content.get("cost_terms", ())
        ),
        "placement_types": _many(JobPlacementType, content.get("placement_types", ())),
        "speeds": tuple(
            _read(GangSpeed, {**speed, "points": _many(PointToMeasure, speed.get("points", ()))})
            for speed in content.get("speeds", ())
        ),
    }
    return _read(PlanUsage, usage)


def _read_line(content: dict[str, Any]) -> Line:
    policy = RunPolicy.read(content["policy"]) if "policy" in content else None
    behind = _read(LineFallback, _with_hours(content["fallback"])) if "fallback" in content else None
    return _read(Line, {**_with_hours(content), "policy": policy, "fallback": behind})


def _with_hours(content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the exact hours in place of the rounded ones."""
    return {**content, "hours": Fraction(content["billed_microseconds"], _MICROSECONDS_PER_HOUR)}


def _read_job(content: dict[str, Any]) -> JobSummary:
    second, preempted, late = content["runner_up"], content.get("preemption"), content.get("late")
    return _read(
        JobSummary,
        {
            **content,
            "preemption": None if preempted is None else _read(Preemption, {**preempted, "by": tuple(preempted["by"])}),
            "late": None if late is None else _read(Lateness, late),
            "runner_up": _read(Alternative, second) if second is not None else None,
            "alternatives": _many(Alternative, content["alternatives"]),
            "constraint_costs": _many(ConstraintCost, content["constraint_costs"]),
            "dropped": _many(DroppedOffers, content["dropped"]),
            "notes": tuple(content["notes"]),
        },
    )


_TIMES = frozenset({"start", "end", "finish", "deadline", "planned_deadline", "read_at", "first_at", "last_at"})


def _many(kind: type[T], rows: Sequence[dict[str, Any]]) -> tuple[T, ...]:
    return tuple(_read(kind, row) for row in rows)


def _read(kind: type[T], content: dict[str, Any]) -> T:
    """Return the value of this class, its fields read by their names.

    The whole document keeps one naming rule: ``usd_per_hour`` rates, ``usd`` amounts, eight names of times.
    """
    values: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        value = content[field.name] if field.default is MISSING else content.get(field.name, field.default)
        if isinstance(value, str):
            if field.name.endswith("usd_per_hour"):
                value = UsdPerHour.parse(value)
            elif field.name.endswith("_usd") or field.name.startswith("usd_per_"):
                value = Usd.parse(value)
            elif field.name in _TIMES:
                value = _read_time(value)
        values[field.name] = value
    return kind(**values)


def _read_time(text: str) -> datetime:
    return datetime.fromisoformat(text)
