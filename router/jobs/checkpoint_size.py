"""Estimate the size of a checkpoint from the shape of a transformer and its optimizer.

A checkpoint from which training resumes holds the weights in 32 bits and the optimizer's states; gradients are not
saved. Sharded training (ZeRO, Megatron's distributed optimizer) saves the 16-bit weights beside the shards.
Published: BLOOM 176B with Adam took 2.3 TB, 13 to 14 bytes a parameter, of which 329 GB were the 16-bit weights alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pricing.units import BYTES_PER_GIB
from router.jobs.fields import RefusedError, suggest
from router.jobs.workload import parse_parameters

# Bytes of optimizer states a parameter: 32-bit moments of 4, 8-bit moments of 1; factored ones take next to nothing.
STATE_BYTES: Final[Mapping[str, int]] = {
    "adafactor": 0,
    "adam": 8,
    "adamw": 8,
    "adamw-8bit": 2,
    "lion": 4,
    "muon": 4,
    "sgd": 4,
}
DEFAULT_OPTIMIZER: Final = "adamw"
WEIGHT_BYTES, MODEL_COPY_BYTES = 4, 2


def checkpoint_bytes_per_parameter(optimizer: str, *, sharded: bool) -> int:
    """Return the bytes of a checkpoint for each parameter: 14 with sharded Adam, 12 without sharding.

    RefusedError for an optimizer that is not in the table.
    """
    if optimizer not in STATE_BYTES:
        raise RefusedError(f"the size of a checkpoint of {optimizer} is not known", suggest(optimizer, STATE_BYTES))
    return WEIGHT_BYTES + STATE_BYTES[optimizer] + (MODEL_COPY_BYTES if sharded else 0)


def with_estimated_size(checkpoint: Mapping[str, Any], workload: object) -> dict[str, Any]:
    """Return a job file's ``checkpoint`` with ``size_gib``; where none is stated, by the transformer of ``workload``.

    Values are as the file has them. What cannot be read is left for the fields' own rules to refuse. RefusedError where
    a size is stated beside an optimizer, or the file says too little for an estimate.
    """
    filled = dict(checkpoint)
    optimizer = filled.pop("optimizer", None)
    if "size_gib" in filled:
        if optimizer is not None:
            raise RefusedError("size_gib and optimizer are both given", "keep one of them", at=("optimizer",))
        return filled
    shape = workload.get("transformer") if isinstance(workload, Mapping) else None
    if not isinstance(shape, Mapping):
        if optimizer is not None:
            what = "without the shape of a transformer an optimizer gives no size"
            raise RefusedError(what, "write size_gib in its place", at=("optimizer",))
        return filled
    if shape.get("lora"):
        raise RefusedError("how large the adapters are is not said", "add size_gib", at=("size_gib",))
    try:
        parameters = parse_parameters(shape.get("parameters"))
    except RefusedError:
        return {**filled, "size_gib": 0.0}  # the job is refused for its parameters, and for them alone
    try:
        each = checkpoint_bytes_per_parameter(
            str(optimizer or DEFAULT_OPTIMIZER), sharded=shape.get("sharding", "zero3") != "none"
        )
    except RefusedError as error:
        raise RefusedError(error.what, error.remedy, at=("optimizer",)) from None
    filled["size_gib"] = float(f"{parameters * each / BYTES_PER_GIB:.4g}")
    return filled
