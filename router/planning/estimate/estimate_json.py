"""JSON of estimates, with its schema: ``docs/schema/estimate.json``. Money is a decimal string, times are UTC."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from pricing.units import format_utc
from router.jobs.gang_layout import GangLayout
from router.jobs.layouts import deepspeed_config, launcher_flags
from router.jobs.speed import SpeedEvidence
from router.planning.document.plan_usage import JobCostTerms
from router.planning.document.plan_usage_schema import EVIDENCE
from router.planning.estimate.gang_estimates import GangEstimate, JobEstimate, Span, UsdSpan

SCHEMA_VERSION: Final = 1
_LAUNCHED = 2  # flags of torchrun, which stand before those of Megatron-LM

Money = Annotated[str, Field(pattern=r"^-?(0|[1-9][0-9]*)\.[0-9]{2,9}$", description="US dollars.")]


@dataclass(frozen=True)
class FigureInterval:
    """A figure and the interval that holds it four times in five; `high` is null where nothing bounds it."""

    expected: float
    low: float
    high: float | None


@dataclass(frozen=True)
class AmountInterval:
    """An amount and the interval that holds it four times in five; `high` is null where nothing bounds it."""

    expected: Money
    low: Money
    high: Money | None


@dataclass(frozen=True)
class EstimateCostTerms:
    """The terms of a cost in dollars; they add up to it. `moves_usd` and `stream_usd` are egress."""

    compute_usd: Money
    lost_work_usd: Money
    checkpoints_usd: Money
    restarts_usd: Money
    startups_usd: Money
    moves_usd: Money
    stream_usd: Money
    idle_usd: Money
    fallback_usd: Money


@dataclass(frozen=True)
class EstimatePart:
    """Machines of one offer in the gang; a gang with an on-demand core, of several zones or types has several."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    machines: int
    usd_per_hour: Annotated[str, Field(description="Price of one machine, dollars an hour.")]
    provisionable: Annotated[bool, Field(description="Whether it can be ordered from here.")]
    price_as_of: str
    price_source: str


@dataclass(frozen=True)
class EstimateAnswer:
    """The figures of a gang on the cheapest offer that can serve it, for the whole job in one run."""

    parts: tuple[EstimatePart, ...]
    machines: int
    usd_per_hour: Annotated[str, Field(description="Price of all machines, dollars an hour.")]
    nominal_steps_per_hour: Annotated[
        float, Field(description="Speed while it runs, between checkpoints and interruptions.")
    ]
    running_share: Annotated[
        float,
        Field(description="Share of the time in which it makes steps; the rest are waits, starts, saves, lost work."),
    ]
    steps_per_hour: Annotated[
        FigureInterval, Field(description="Over all the time: waits, checkpoints and interruptions counted.")
    ]
    tokens_per_s: Annotated[FigureInterval | None, Field(description="Likewise; null where no transformer is stated.")]
    relative_error: Annotated[float, Field(description="Standard deviation of the run time, as a share of it.")]
    speed_basis: Annotated[str, Field(description="Source of the speed: measured points, the shape, or both.")]
    speed_evidence: Annotated[SpeedEvidence, Field(description=EVIDENCE)]
    risk_basis: Annotated[str, Field(description="How often the gang is interrupted, and by which evidence.")]
    weak: Annotated[str, Field(description="Reasons to doubt price or risk.")]
    steps: Annotated[int, Field(description="Steps that the cost is for.")]
    cost_usd: Annotated[Money, Field(description="Expected cost of all steps, one start-up and moves included.")]
    terms: EstimateCostTerms
    usd_per_step: Annotated[AmountInterval, Field(description="Cost over steps.")]
    step_terms: Annotated[EstimateCostTerms, Field(description="The expected cost of a step by term.")]
    usd_per_million_tokens: AmountInterval | None


@dataclass(frozen=True)
class EstimateRefusal:
    """The reason why the gang has no answer: that of the offer that came farthest."""

    code: str
    reason: str
    offers_dropped: Annotated[dict[str, int], Field(description="Offers dropped in this market, by code.")]


@dataclass(frozen=True)
class EstimateLayout:
    """How the job is split over the gang: sizes of parallelism, and what each replica does in a step."""

    tensor_parallel: int
    pipeline_parallel: int
    virtual_stages: Annotated[int, Field(description="Parts of a stage that a pipeline takes in turn; 1: it does not.")]
    context_parallel: int
    expert_parallel: int
    data_parallel: int
    micro_batch: float
    accumulation: int
    recompute: str
    sharding: str


@dataclass(frozen=True)
class EstimateMemory:
    """The GiB that each accelerator needs, by what needs them, and what a job can use of its memory."""

    fits: bool
    need_gib: float
    usable_gib: float
    states_gib: Annotated[float, Field(description="Weights, gradients and optimizer states.")]
    activations_gib: float
    logits_gib: float
    largest: Annotated[str, Field(description="The term that needs most.")]


@dataclass(frozen=True)
class EstimateStepParts:
    """The estimated seconds that each part of a step would take alone; `step_s` is shorter where they overlap."""

    matrices_s: float
    attention_s: float
    launches_s: float
    memory_s: float
    tensor_s: float
    experts_s: float
    exchange_s: float
    bubble_s: float
    step_s: float
    largest: Annotated[str, Field(description="compute, memory, communication or pipeline bubble.")]
    largest_share: Annotated[float, Field(ge=0, le=1, description="Its share of all parts.")]


@dataclass(frozen=True)
class LauncherFlags:
    """Flags of launchers for the layout; null where the job states no transformer."""

    torchrun: tuple[str, ...]
    megatron: tuple[str, ...] | None
    deepspeed: dict[str, Any] | None


@dataclass(frozen=True)
class EstimateRow:
    """One gang in one market; exactly one of `answer` and `refusal` is given.

    `layout`, `memory` and `step_parts` are null without a transformer; where no layout fits they are of the one that
    needs least memory. Where a speed is measured, they are what the estimate would choose.
    """

    gang: str
    accelerator: str
    accelerators: int
    market: str
    answer: EstimateAnswer | None
    refusal: EstimateRefusal | None
    layout: EstimateLayout | None
    memory: EstimateMemory | None
    step_parts: EstimateStepParts | None
    launcher: LauncherFlags | None


@dataclass(frozen=True)
class EstimatedBook:
    """The price book."""

    digest: str
    as_of: str


@dataclass(frozen=True)
class EstimateDocument:
    """The cost of a step of one job on each gang that was asked for; rows with an answer come first, cheapest first."""

    schema_version: Annotated[int, Field(description="Rises when a reader of the older form would misread the newer.")]
    job: str
    now: str
    book: EstimatedBook
    steps_left: int
    tokens_per_step: int | None
    rows: tuple[EstimateRow, ...]


def estimate_document(estimate: JobEstimate, now: datetime) -> EstimateDocument:
    """Return the estimate as plain values."""
    return EstimateDocument(
        schema_version=SCHEMA_VERSION,
        job=estimate.job.name,
        now=format_utc(now),
        book=EstimatedBook(estimate.book_digest, estimate.book_as_of.isoformat()),
        steps_left=estimate.steps_left,
        tokens_per_step=estimate.tokens_per_step,
        rows=tuple(_row(row) for row in estimate.rows),
    )


def estimate_to_json(estimate: JobEstimate, now: datetime) -> str:
    """Return the estimate as JSON; equal estimates give equal bytes."""
    return json.dumps(asdict(estimate_document(estimate, now)), indent=2, ensure_ascii=False) + "\n"


def launcher_of(row: GangEstimate) -> LauncherFlags | None:
    """Return the flags of launchers for a row; None for one without an answer."""
    if row.answer is None:
        return None
    machines, each = row.answer.machines, row.answer.accelerators_per_machine
    if row.layout is None:
        return LauncherFlags((f"--nnodes={machines}", f"--nproc-per-node={each}"), None, None)
    flags = launcher_flags(row.layout.layout, machines, each)
    return LauncherFlags(flags[:_LAUNCHED], flags, deepspeed_config(row.layout.layout))


def estimate_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12); equal on every call."""
    schema = TypeAdapter(EstimateDocument).json_schema()
    definitions = {name: _closed(found) for name, found in schema.pop("$defs").items()}
    found = _closed(schema)
    found["properties"]["schema_version"] |= {"const": SCHEMA_VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **found,
        "title": "Answer of stepfare estimate",
        "$defs": definitions,
    }


def estimate_schema_text() -> str:
    """Return the text of the schema in ``docs/schema``."""
    return json.dumps(estimate_schema(), indent=2, ensure_ascii=False) + "\n"


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value without titles of fields, and with no other fields allowed."""
    for each in schema["properties"].values():
        each.pop("title", None)
    words = " ".join(str(schema.get("description", "")).split())
    kept = {name: value for name, value in schema.items() if name not in {"title", "description"}}
    return {"description": words, **kept, "additionalProperties": False}


def _row(row: GangEstimate) -> EstimateRow:
    refusal = row.refusal
    return EstimateRow(
        gang=str(row.option),
        accelerator=row.option.accelerator,
        accelerators=row.option.count,
        market=row.market.value,
        answer=None if row.answer is None else _project(EstimateAnswer, row.answer),
        refusal=None if refusal is None else EstimateRefusal(refusal.code, refusal.reason, dict(refusal.dropped)),
        layout=None if row.layout is None else _layout(row.layout),
        memory=None if row.layout is None else _memory(row.layout),
        step_parts=None if row.layout is None else _parts(row.layout),
        launcher=launcher_of(row),
    )


def _layout(gang_layout: GangLayout) -> EstimateLayout:
    layout = gang_layout.layout
    return EstimateLayout(
        tensor_parallel=layout.tensor,
        pipeline_parallel=layout.pipeline,
        virtual_stages=layout.stages,
        context_parallel=layout.context,
        expert_parallel=layout.expert,
        data_parallel=layout.data,
        micro_batch=_digits(layout.microbatch),
        accumulation=layout.accumulation,
        recompute=layout.recompute,
        sharding=layout.sharding,
    )


def _memory(gang_layout: GangLayout) -> EstimateMemory:
    need = gang_layout.need
    return EstimateMemory(
        fits=gang_layout.fits,
        need_gib=_digits(need.total),
        usable_gib=_digits(gang_layout.room_gib),
        states_gib=_digits(need.states),
        activations_gib=_digits(need.activations),
        logits_gib=_digits(need.logits),
        largest=gang_layout.largest_need,
    )


def _parts(gang_layout: GangLayout) -> EstimateStepParts:
    name, share = gang_layout.seconds.largest
    seconds = {
        f"{each.name}_s": _digits(getattr(gang_layout.seconds, each.name)) for each in fields(gang_layout.seconds)
    }
    return EstimateStepParts(**seconds, largest=name, largest_share=_digits(share))


def _project(kind: type[Any], record: object) -> Any:
    """Return a part of the document: each field is the record's of the same name, as JSON has it."""
    return kind(**{each.name: _plain(getattr(record, each.name)) for each in fields(kind)})


def _plain(value: object) -> object:
    match value:
        case Usd() | UsdPerHour():
            return str(value)
        case Market():
            return value.value
        case Span():
            high = None if value.high is None else _digits(value.high)
            return FigureInterval(_digits(value.expected), _digits(value.low), high)
        case UsdSpan():
            return _project(AmountInterval, value)
        case JobCostTerms():
            return _project(EstimateCostTerms, value)
        case tuple():
            return tuple(_project(EstimatePart, part) for part in value)
        case _:
            return value


def _digits(figure: float) -> float:
    """Return six significant digits: the last bits differ between machines."""
    return float(f"{figure:.6g}")
