"""Define what a job computes: measured speeds, or the shape of a transformer from which a speed is estimated."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from router.jobs.fields import (
    Count,
    Flag,
    NotNegative,
    Positive,
    RefusedError,
    Spec,
    Text,
    as_many,
    as_number,
    show_value,
)

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


class ProfilePoint(Spec):
    """A measured speed: ``count`` accelerators did ``steps_per_hour``, with this relative error (standard deviation).

    ``fabric`` is the network between the machines, where there were several.
    """

    words: ClassVar[frozenset[str]] = frozenset(
        {"accelerators", "seconds_per_step", "tokens_per_second", "tokens_per_step"}
    )
    accelerator: Text = Field(examples=["H100"])
    count: Count = Field(description="Accelerators in the whole gang.")
    steps_per_hour: Positive
    fabric: Literal["rdma", "ethernet"] | None = None
    relative_error: Annotated[NotNegative, Field(lt=1)] = 0.05
    source: str = Field(default="", description="Where the figure comes from.")

    @model_validator(mode="before")
    @classmethod
    def _from_other_units(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        value = dict(value)
        if "accelerators" in value:
            name, colon, count = str(value.pop("accelerators")).partition(":")
            if not (name and colon and count.isdecimal()) or "accelerator" in value:
                raise RefusedError(
                    "one accelerator and its count are needed", "write e.g. H100:8", at=("accelerators",)
                )
            value |= {"accelerator": name, "count": int(count)}
        given = [key for key in ("steps_per_hour", "seconds_per_step", "tokens_per_second") if key in value]
        if len(given) != 1:
            what = f"{given[0]} and {given[1]} are both given" if given else "no speed is given"
            remedy = "give one of steps_per_hour, seconds_per_step, tokens_per_second (with tokens_per_step)"
            raise RefusedError(what, remedy, at=tuple(given[1:2]))
        tokens = value.pop("tokens_per_step", None)
        if given[0] == "seconds_per_step":
            value["steps_per_hour"] = 3600 / _positive(value.pop("seconds_per_step"), "seconds_per_step")
        elif given[0] == "tokens_per_second":
            if tokens is None:
                raise RefusedError(
                    "how many tokens are a step is not said",
                    "add tokens_per_step beside it",
                    at=("tokens_per_second",),
                )
            speed = _positive(value.pop("tokens_per_second"), "tokens_per_second")
            value["steps_per_hour"] = 3600 * speed / _positive(tokens, "tokens_per_step")
        return value


def _positive(value: object, word: str) -> float:
    try:
        number = as_number(value)
    except RefusedError as error:
        raise RefusedError(error.what, error.remedy, at=(word,)) from None
    if number <= 0:
        raise RefusedError(f"{show_value(value)} is not more than 0", at=(word,))
    return number


class Transformer(Spec):
    """The shape of a transformer, and how it is trained. ``tokens_per_step`` is the global batch."""

    parameters: Parameters = Field(description="All parameters: 7e9, or 7B.", examples=[7e9, "70B"])
    layers: Count
    hidden: Count
    sequence_length: Count
    tokens_per_step: Count = Field(description="Tokens of the global batch (sequences x sequence length).")
    active_parameters: Parameters | None = Field(default=None, description="Used for a token, in a mixture of experts.")
    precision: Literal["bf16", "fp8"] = "bf16"
    recompute: Literal["none", "selective", "full"] = "selective"
    lora: Flag = False
    sharding: Literal["none", "zero1", "zero3"] = "zero3"
    causal: Flag = True
    optimizer_bytes_per_parameter: Count = Field(default=16, description="Weights, gradients, optimizer states.")

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
        return self


class Workload(Spec):
    """Measured points, a transformer's shape, or both: measured points win where they apply."""

    profile: Annotated[tuple[ProfilePoint, ...], BeforeValidator(as_many)] = ()
    transformer: Transformer | None = None

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
        filled = [
            {"tokens_per_step": tokens, **p} if isinstance(p, dict) and "tokens_per_second" in p else p for p in points
        ]
        return {**value, "profile": filled}

    @model_validator(mode="after")
    def _something(self) -> Workload:
        if not self.profile and self.transformer is None:
            raise RefusedError(
                "nothing says how fast it runs", "give measured `profile` points, or a `transformer` shape"
            )
        seen: dict[tuple[str, int, str | None], int] = {}
        for index, point in enumerate(self.profile):
            key = (point.accelerator, point.count, point.fabric)
            if key in seen:
                raise RefusedError(
                    f"a second point for {key[0]}:{key[1]}; the first is entry {seen[key] + 1}",
                    "keep one, or say over which `fabric` each was measured",
                    at=("profile", index),
                )
            seen[key] = index
        return self
