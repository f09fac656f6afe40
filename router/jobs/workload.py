"""Define what a job computes: measured speeds, or the shape of a transformer from which a speed is estimated."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from router.jobs.fields import (
    Count,
    Flag,
    Positive,
    RefusedError,
    Spec,
    as_many,
    as_number,
    as_text,
    show_value,
)
from router.jobs.profile_point import ProfilePoint, wrong_points

_FEW_EXPERTS = 5.0  # parameters over active ones, below which a token uses two experts of few
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def parse_parameters(value: object) -> float:
    """Return a number of parameters from ``7e9`` or ``7B``; RefusedError below 10,000, where billions were meant."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?(?:[eE]\+?\d{1,2})?)\s*([KMBT]?)", value.strip())
        if match is None:
            raise RefusedError(f"{show_value(value)} is no number of parameters", "write e.g. 7e9 or 7B")
        value = float(match[1]) * _SCALE[match[2]]
    number = as_number(value)
    if number < 10_000:
        raise RefusedError(
            f"{show_value(value)} parameters are too few",
            f"the unit is parameters: write {show_value(value)}e9 or {show_value(value)}B",
        )
    return number


Parameters = Annotated[float, BeforeValidator(parse_parameters)]


def _auto_or_count(value: object) -> object:
    """Return None for ``auto``; RefusedError where it is neither that nor a whole number above 0."""
    if value is None or value == "auto":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise RefusedError(f"{show_value(value)} is no size", "write a whole number above 0, or auto")


Size = Annotated[
    int | None,
    BeforeValidator(_auto_or_count, json_schema_input_type=Literal["auto"] | Annotated[int, Field(ge=1)] | None),
]


def _parse_software(value: object) -> str:
    """Return the name in lower case, with - between its words."""
    return re.sub(r"[\s_]+", "-", as_text(value).lower())


def _parse_date(value: object) -> str:
    """Return a year, a month or a day as text; RefusedError otherwise."""
    text = str(value).strip()
    if not re.fullmatch(r"20\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?", text):
        raise RefusedError(f"{show_value(value)} is no date", "write a year, a month or a day: 2025, 2025-11")
    return text


Software = Annotated[str, BeforeValidator(_parse_software)]
SoftwareDate = Annotated[str, BeforeValidator(_parse_date, json_schema_input_type=str | int)]


class Layout(Spec):
    """How a transformer is split over the gang. What is left out, or ``auto``, is chosen: the fastest that fits."""

    tensor_parallel: Size = Field(default=None, description="Accelerators that share each layer.")
    pipeline_parallel: Size = Field(default=None, description="Stages that the layers are divided into.")
    context_parallel: Size = Field(default=None, description="Accelerators that share each sequence.")
    expert_parallel: Size = Field(default=None, description="Accelerators that share the experts of a layer.")
    data_parallel: Size = Field(default=None, description="Replicas; what the other sizes leave of the gang.")
    micro_batch: Size = Field(default=None, description="Sequences that a replica computes at a time.")
    accumulation: Size = Field(default=None, description="Micro-batches of a replica in a step.")
    virtual_stages: Size = Field(default=None, description="Parts of a stage that a pipeline takes in turn.")


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """The routed experts of a mixture: how many a layer has, how many a token uses, parameters of all of them."""

    count: int
    chosen: int
    parameters: float


class Transformer(Spec):
    """The shape of a transformer, and how it is trained. ``tokens_per_step`` is the global batch."""

    parameters: Parameters = Field(description="All parameters: 7e9, or 7B.", examples=[7e9, "70B"])
    layers: Count
    hidden: Count
    sequence_length: Count
    tokens_per_step: Count = Field(description="Tokens of the global batch (sequences x sequence length).")
    active_parameters: Parameters | None = Field(default=None, description="Used for a token, in a mixture of experts.")
    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4"] = "bf16"
    recompute: Literal["none", "selective", "full", "auto"] = "selective"
    lora: Flag = False
    quantised: Flag = Field(default=False, description="With lora: the frozen weights are held in 4 bit.")
    sharding: Literal["none", "zero1", "zero2", "zero3", "auto"] = "zero3"
    causal: Flag = True
    optimizer_bytes_per_parameter: Count = Field(default=16, description="Weights, gradients, optimizer states.")
    experts: Count | None = Field(default=None, description="Experts of a layer, in a mixture of experts.")
    experts_per_token: Count | None = Field(
        default=None,
        description="Experts that a token uses, beside `experts`. Left out: as in usual models so sparse.",
    )
    software: Software | None = Field(
        default=None,
        description="Training software, such as megatron, nemo, torchtitan, llm-foundry, deepspeed or maxtext. Left "
        "out: an average of what ran on such accelerators, and a wider interval.",
        examples=["megatron"],
    )
    software_date: SoftwareDate | None = Field(
        default=None,
        description="When that software was released: year, month or day. Left out: a release of mid-2025.",
        examples=["2025-11"],
    )
    vocabulary: Count | None = Field(default=None, description="Tokens of the vocabulary: the memory of its logits.")
    layout: Annotated[
        Layout | None,
        BeforeValidator(
            lambda value: {} if value == "auto" else value, json_schema_input_type=Literal["auto"] | Layout | None
        ),
    ] = Field(default=None, description="Left out: data parallel alone. `auto`: the fastest layout that fits.")

    @model_validator(mode="after")
    def _sensible(self) -> Transformer:
        if self.tokens_per_step < self.sequence_length:
            product = self.tokens_per_step * self.sequence_length
            raise RefusedError(
                f"{self.tokens_per_step} tokens are less than one sequence of {self.sequence_length}",
                f"tokens, not sequences: {self.tokens_per_step} sequences are {product} tokens",
                at=("tokens_per_step",),
            )
        if self.active_parameters is not None and self.active_parameters > self.parameters:
            raise RefusedError("more parameters are active than there are", at=("active_parameters",))
        if self.quantised and not self.lora:
            raise RefusedError("only the frozen weights of lora are quantised", "add lora: true", at=("quantised",))
        if self.experts_per_token is not None and self.experts is None:
            raise RefusedError(
                "nothing says how many experts a layer has", "add `experts:` beside it", at=("experts_per_token",)
            )
        if self.experts_per_token is not None and self.experts_per_token > (self.experts or 0):
            raise RefusedError("a token uses more experts than there are", at=("experts_per_token",))
        return self

    @property
    def software_year(self) -> float | None:
        """Return the year of the software with its month as a fraction; the middle of a year without a month."""
        if self.software_date is None:
            return None
        year, *rest = self.software_date.split("-")
        return int(year) + ((int(rest[0]) - 0.5) / 12 if rest else 0.5)

    @property
    def routed_experts(self) -> RoutedExperts:
        """Return the routed experts; where their numbers are not stated, those of usual models of such sparsity.

        The parameters follow: what is not active is in experts that a token does not use.
        """
        active = self.active_parameters or self.parameters
        if active >= self.parameters:
            return RoutedExperts(1, 1, 0.0)
        sparsity = self.parameters / active
        chosen = self.experts_per_token or (2 if sparsity < _FEW_EXPERTS else 8)
        count = self.experts or 2 ** math.ceil(math.log2(1.2 * sparsity * chosen))
        if self.experts_per_token is None:  # as many as leave parameters that all tokens share
            chosen = min(chosen, 2 ** max(0, math.floor(math.log2(count / sparsity))))
        unused = 1 - min(chosen, count - 1) / count if count > 1 else 1.0
        return RoutedExperts(count, chosen, min((self.parameters - active) / unused, self.parameters))


def _tokens_of(point: dict[str, Any], tokens: object, sequence: object) -> object:
    """Return the tokens of a step of the point, as written: its own batch counts where it states one."""
    batch, each = point.get("batch"), point.get("batch_per_accelerator")
    count = point.get("count", str(point.get("accelerators", "")).partition(":")[2])
    if isinstance(each, int | float) and str(count).isdecimal():
        batch = each * int(count)
    if isinstance(batch, int | float) and isinstance(sequence, int | float):
        return batch * sequence
    return tokens


class Workload(Spec):
    """Measured points, a transformer's shape, or both: measured points win where they apply."""

    profile: Annotated[tuple[ProfilePoint, ...], BeforeValidator(as_many)] = ()
    transformer: Transformer | None = None
    batch: Positive | None = Field(
        default=None,
        description="Samples of a step of the job. Left out: the transformer's sequences, else the points' batch.",
    )

    @property
    def step_batch(self) -> float | None:
        """Return the samples of a step of the job; None where nothing says it."""
        if self.batch is not None:
            return self.batch
        if self.transformer is not None:
            return self.transformer.tokens_per_step / self.transformer.sequence_length
        return next((point.batch for point in self.profile if point.batch is not None), None)

    @model_validator(mode="before")
    @classmethod
    def _share_tokens(cls, value: Any) -> Any:
        """Add the transformer's tokens per step to points in tokens that do not state their own."""
        if not isinstance(value, dict) or not isinstance(value.get("transformer"), dict):
            return value
        tokens = value["transformer"].get("tokens_per_step")
        points = as_many(value.get("profile"))
        if tokens is None or not isinstance(points, (list, tuple)):
            return value
        sequence = value["transformer"].get("sequence_length")
        filled = [
            {"tokens_per_step": _tokens_of(p, tokens, sequence), **p}
            if isinstance(p, dict) and "tokens_per_second" in p
            else p
            for p in points
        ]
        return {**value, "profile": filled}

    @model_validator(mode="after")
    def _something(self) -> Workload:
        if not self.profile and self.transformer is None:
            raise RefusedError(
                "nothing says how fast it runs", "give measured `profile` points, or a `transformer` shape"
            )
        seen: dict[tuple[str | int | float | None, ...], int] = {}
        for index, point in enumerate(self.profile):
            key = (point.accelerator, point.count, point.fabric, point.batch, point.placement, point.precision)
            if key in seen:
                raise RefusedError(
                    f"a second point for {key[0]}:{key[1]}; the first is entry {seen[key] + 1}",
                    "keep one, or say over which `fabric`, or at which `placement` or `batch`, each was measured",
                    at=("profile", index),
                )
            seen[key] = index
        self._check_batches()
        finding = next(wrong_points(self.profile), None)
        if finding is not None:
            raise RefusedError(finding.what, finding.remedy, at=("profile", finding.index))
        return self

    def _check_batches(self) -> None:
        """Refuse points of several batches or precisions, unless it is said which are the job's."""
        if self.transformer is not None:
            return
        precisions = sorted({point.precision for point in self.profile if point.precision is not None})
        if len(precisions) > 1:
            raise RefusedError(
                f"points are in {' and '.join(precisions)}",
                "keep those of the precision that the job trains in",
                at=("profile",),
            )
        if self.batch is not None:
            return
        stated = [(index, point.batch) for index, point in enumerate(self.profile) if point.batch is not None]
        other = next((index for index, batch in stated if not math.isclose(batch, stated[0][1])), None)
        if other is not None:
            raise RefusedError(
                f"steps of {self.profile[other].batch:g} samples here, of {stated[0][1]:g} in entry {stated[0][0] + 1}",
                "say how many samples a step of the job has: add `batch` beside `profile`",
                at=("profile", other, "batch"),
            )
