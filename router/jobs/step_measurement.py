"""Choose which transformer to time on one accelerator, and turn its step times into a profile point. Pure.

What does not fit into memory is timed with fewer layers: a step is a constant and a term for each layer, as in
``step_model``, and both are read off the depths that were timed (``docs/design/speed.md``).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from router.jobs.layouts import ChosenLayout, memory_need
from router.jobs.workload import Transformer

PRECISIONS: Final = ("fp32", "tf32", "bf16", "fp16")
_MEMORY_SHARE: Final = 0.8  # of the accelerator's; PyTorch's buffers and fragments take the rest
_USUAL_VOCABULARY: Final = 32_000
_HEADS: Final = (128, 64, 32, 16)  # widths of an attention head, the usual one first
_TILE: Final = 64  # the feed-forward width is a multiple of it
_MOST_BATCH: Final = 8  # sequences; what a step costs for each hardly falls beyond
_LEAST_LAYERS: Final = 2
_RUN_ERROR: Final = 0.05  # of a short run in place of a long one
_DOUBLING_ERROR: Final = 0.03  # for each doubling of the layers beyond those that were timed
_LEAST_SHARE: Final = 0.05  # of the deepest step that its layers take
_CURVED: Final = 0.1  # share of a step by which a depth may be off the straight line
_TOO_UNCERTAIN: Final = 0.3


class MeasurementError(Exception):
    """The reason why nothing was measured, and what to do."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class DeviceFullError(Exception):
    """The device has too little memory for a shape."""


@dataclass(frozen=True, slots=True)
class MeasuredShape:
    """A dense transformer that fits on one accelerator: the job's widths, with ``layers`` of its layers.

    ``batch`` counts sequences; ``recompute`` says whether layers are computed again in the backward pass.
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    sequence: int
    batch: int
    precision: str
    recompute: bool
    causal: bool


@dataclass(frozen=True, slots=True)
class StepTimings:
    """The seconds of single steps of a shape, after the warm-up."""

    shape: MeasuredShape
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Return the standard deviation of a step as a share of the median, from the middle half of the steps."""
        if len(self.seconds) < 4:
            return (max(self.seconds) - min(self.seconds)) / self.median
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 1.349 / self.median

    @property
    def median_error(self) -> float:
        """Return the standard error of the median in seconds."""
        return 1.2533 * self.spread * self.median / math.sqrt(len(self.seconds))


@dataclass(frozen=True, slots=True)
class ScaledStep:
    """The seconds of a step with all layers, their relative error, and the timings behind them, deepest first."""

    seconds: float
    relative_error: float
    layers: int
    timings: tuple[StepTimings, ...]

    @property
    def whole(self) -> bool:
        return self.timings[0].shape.layers == self.layers

    @property
    def depths(self) -> str:
        if self.whole:
            return f"all {self.layers} layers"
        *others, last = (str(t.shape.layers) for t in self.timings)
        return f"{', '.join(others)} and {last} of {self.layers} layers"


@dataclass(frozen=True, slots=True)
class UnsoundScale:
    """The reason why the step with all layers cannot be told from the depths that were timed."""

    reason: str


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A measured step and its profile point."""

    step: ScaledStep
    fields: dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class DeviceMeasurement:
    """The points of a job, batches that gave none with the reason, and the accelerator's name in the price book.

    ``unlisted`` says why the book has no such accelerator; then the points bear the device's own name.
    """

    job: str
    device: str
    points: tuple[MeasuredPoint, ...]
    failed: tuple[tuple[int, str], ...]
    unlisted: str = ""


def find_shape_refusal(model: Transformer) -> str | None:
    """Return why a shape cannot be timed on one accelerator by a plain training loop; None where it can."""
    wanted = model.layout
    sizes = () if wanted is None else (wanted.tensor_parallel, wanted.pipeline_parallel, wanted.context_parallel)
    if (model.active_parameters or model.parameters) < model.parameters or model.experts:
        return "a mixture of experts is not measured: its experts are spread over accelerators"
    if model.lora:
        return "training of adapters (lora) is not measured"
    if model.precision not in PRECISIONS:
        return f"{model.precision} is not measured, only {', '.join(PRECISIONS)}"
    if any(size is not None and size > 1 for size in sizes):
        return "the layout splits a layer, the layers or the sequences over accelerators, and one is measured"
    if model.hidden % _HEADS[-1]:
        return f"hidden {model.hidden} is no multiple of {_HEADS[-1]}, so it has no attention heads of a usual width"
    if _layer_parameters(model) < 5 * model.hidden**2:
        return (
            f"{model.parameters:.3g} parameters are too few for {model.layers} layers of width {model.hidden}: "
            "a layer has four to attention and more to its feed-forward part, times the width squared"
        )
    return None


def shape_of(model: Transformer, layers: int, batch: int) -> MeasuredShape:
    """Return the shape with so many layers, each of as many parameters as the job's have on average.

    Attention has four matrices of the width squared, the feed-forward part two; input and output share an embedding.
    """
    wide = (_layer_parameters(model) - 4 * model.hidden**2) / (2 * model.hidden)
    head = next(width for width in _HEADS if model.hidden % width == 0)
    return MeasuredShape(
        layers=layers,
        hidden=model.hidden,
        heads=model.hidden // head,
        feed_forward=max(_TILE, round(wide / _TILE) * _TILE),
        vocabulary=_vocabulary(model),
        sequence=model.sequence_length,
        batch=batch,
        precision=model.precision,
        recompute=model.recompute == "full",
        causal=model.causal,
    )


def _vocabulary(model: Transformer) -> int:
    return model.vocabulary or max(_TILE, min(_USUAL_VOCABULARY, int(model.parameters / (4 * model.hidden))))


def _layer_parameters(model: Transformer) -> float:
    return (model.parameters - _vocabulary(model) * model.hidden) / model.layers


def choose_batches(model: Transformer, counts: Iterable[int]) -> tuple[int, ...]:
    """Return batches in sequences in the order to try them: powers of two up to an accelerator's share of a step.

    ``counts`` are the sizes of the job's gangs. Both ends come first: they tell most of how a step grows.
    """
    share = model.tokens_per_step / model.sequence_length / min(counts)
    top = max(1, min(_MOST_BATCH, int(share)))
    sizes = [2**power for power in range(top.bit_length())]
    ends = [sizes[-1], sizes[0], *reversed(sizes[1:-1])]
    return tuple(dict.fromkeys(ends))


def fitting_layers(model: Transformer, batch: int, memory_gib: float) -> int:
    """Return how many of the job's layers fit into the memory of one accelerator with this batch; 0 for none."""
    fitting, beyond = 0, model.layers + 1
    while beyond - fitting > 1:
        middle = (fitting + beyond) // 2
        if _need_gib(model, middle, batch) <= memory_gib * _MEMORY_SHARE:
            fitting = middle
        else:
            beyond = middle
    return fitting


def fits_whole(model: Transformer, memory_gib: float) -> bool:
    """Return whether one accelerator holds all layers, at one sequence."""
    return fitting_layers(model, 1, memory_gib) == model.layers


def _need_gib(model: Transformer, layers: int, batch: int) -> float:
    vocabulary = _vocabulary(model)
    parameters = vocabulary * model.hidden + layers * _layer_parameters(model)
    # Weights, gradients and both moments of Adam are held in 32 bit.
    changes = {
        "parameters": parameters, "layers": layers, "vocabulary": vocabulary, "optimizer_bytes_per_parameter": 16,
    }  # fmt: skip
    again = "full" if model.recompute == "full" else "none"
    layout = ChosenLayout(1, 1, 1, 1, 1, float(batch), 1, again, "none")
    wide = 2.0 if model.precision in ("fp32", "tf32") else 1.0
    need = memory_need(model.model_copy(update=changes), layout)
    return need.states + wide * need.activations + need.logits


def choose_depths(top: int, layers: int) -> tuple[int, ...]:
    """Return the depths to time, deepest first: all layers where they fit, else the most, half and a quarter of it.

    Empty where fewer than two layers fit: a term for each layer cannot be told from one depth.
    """
    if top >= layers:
        return (layers,)
    if top < _LEAST_LAYERS:
        return ()
    return tuple(dict.fromkeys((top, max(1, top // 2), max(1, top // 4))))


def scale_step(timings: Sequence[StepTimings], layers: int) -> ScaledStep | UnsoundScale:
    """Return the step with all ``layers``: as timed, else by the straight line through the depths.

    UnsoundScale where the depths are not on a line, time does not grow with them, or the error is over 30 %.
    """
    timings = tuple(sorted(timings, key=lambda t: -t.shape.layers))
    deepest = timings[0]
    if deepest.shape.layers == layers:
        error = math.hypot(_RUN_ERROR, deepest.median_error / deepest.median)
        return _checked(ScaledStep(deepest.median, error, layers, timings))
    depths, medians = [t.shape.layers for t in timings], [t.median for t in timings]
    slope, constant = statistics.linear_regression(depths, medians)
    residuals = [median - constant - slope * depth for depth, median in zip(depths, medians, strict=True)]
    layers_share = slope * deepest.shape.layers / deepest.median
    if layers_share < _LEAST_SHARE or constant < -_CURVED * deepest.median:
        reason = "the time of a step does not grow with its layers as it should: something else used the device"
        return UnsoundScale(reason)
    curved = max(abs(r) / m for r, m in zip(residuals, medians, strict=True))
    if curved > _CURVED:
        return UnsoundScale(f"a depth is {curved:.0%} off the straight line through the others")
    seconds = constant + slope * layers
    deviation = _line_error(depths, residuals, [t.median_error for t in timings], layers)
    beyond = _DOUBLING_ERROR * math.log2(layers / deepest.shape.layers)
    error = math.hypot(_RUN_ERROR, deviation / seconds, beyond)
    return _checked(ScaledStep(seconds, error, layers, timings))


def _line_error(depths: Sequence[int], residuals: Sequence[float], errors: Sequence[float], at: int) -> float:
    """Return the standard error of a least-squares line at ``at``: by the errors of its points or by their residuals.

    The larger of the two counts.
    """
    number, middle = len(depths), statistics.fmean(depths)
    squares = sum((depth - middle) ** 2 for depth in depths)
    weights = [1 / number + (at - middle) * (depth - middle) / squares for depth in depths]
    stated = math.hypot(*(weight * error for weight, error in zip(weights, errors, strict=True)))
    if number < 3:
        return stated
    scatter = math.hypot(*residuals) / math.sqrt(number - 2)
    return max(stated, scatter * math.hypot(*weights))


def _checked(step: ScaledStep) -> ScaledStep | UnsoundScale:
    if step.relative_error > _TOO_UNCERTAIN:
        return UnsoundScale(f"the steps vary so much that the error would be {step.relative_error:.0%}")
    return step


def point_fields(step: ScaledStep, accelerator: str, device: str, date: str) -> dict[str, str | int | float]:
    """Return the fields of the profile point, as ``stepfare profile --add`` takes them."""
    shape = step.timings[0].shape
    return {
        "accelerators": f"{accelerator}:1",
        "placement": "1x1",
        "batch": shape.batch,
        "precision": shape.precision,
        "seconds_per_step": float(f"{step.seconds:.4g}"),
        "relative_error": round(step.relative_error, 3),
        "source": f"measured on {device}, {date}: {step.depths}",
        "date": date,
    }
