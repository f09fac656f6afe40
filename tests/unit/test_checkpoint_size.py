"""The size of a checkpoint that the job file leaves out: published sizes, sharding, optimizers, refusals."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from router.jobs.checkpoint_size import STATE_BYTES, checkpoint_bytes_per_parameter
from router.jobs.spec import Job

SHAPE = {"parameters": "176.2B", "layers": 70, "hidden": 14336, "sequence_length": 2048, "tokens_per_step": 4194304}
JOB: dict[str, Any] = {
    "name": "bloom",
    "team": "red",
    "steps": 1000,
    "workload": {"transformer": SHAPE},
    "gang": {"accelerators": "A100-80GB:384"},
}


def job(checkpoint: dict[str, Any], **shape: Any) -> Job:
    document = copy.deepcopy(JOB) | {"checkpoint": checkpoint}
    document["workload"]["transformer"] |= shape
    return Job.model_validate(document)


def gib(checkpoint: dict[str, Any], **shape: Any) -> float:
    found = job(checkpoint, **shape).checkpoint
    assert found is not None
    return found.size_gib


def refusal(checkpoint: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        Job.model_validate(copy.deepcopy(JOB) | {"checkpoint": checkpoint} | changes)
    (error,) = caught.value.errors()
    refused = error.get("ctx", {}).get("error")
    return f"{error['msg']} {getattr(refused, 'at', '')} {getattr(refused, 'remedy', '')}"


def test_a_published_checkpoint_has_about_the_estimated_size() -> None:
    """BLOOM with Adam under ZeRO: 2.3 TB, whether these are powers of ten or of two."""
    assert 2.3e12 <= gib({}) * 2**30 <= 2.3 * 2**40


def test_sharding_and_optimizer_decide() -> None:
    assert checkpoint_bytes_per_parameter("adamw", sharded=True) == 14
    assert checkpoint_bytes_per_parameter("adamw", sharded=False) == 12
    assert checkpoint_bytes_per_parameter("adamw-8bit", sharded=True) == 8
    assert gib({}, sharding="none") == pytest.approx(gib({}) * 12 / 14, rel=1e-3)
    assert gib({"optimizer": "sgd"}) == pytest.approx(gib({}) * 10 / 14, rel=1e-3)
    sizes = [checkpoint_bytes_per_parameter(name, sharded=True) for name in STATE_BYTES]
    assert min(sizes) >= 6


def test_the_estimate_enters_the_job_as_if_it_had_been_written() -> None:
    estimated = job({"write_gib_per_s": 8, "asynchronous": True})
    assert estimated.checkpoint is not None
    stated = job({"size_gib": estimated.checkpoint.size_gib, "write_gib_per_s": 8, "asynchronous": True})
    assert estimated == stated
    assert estimated.digest == stated.digest


def test_a_stated_size_stands() -> None:
    assert gib({"size_gib": 40}) == 40


@pytest.mark.parametrize(
    ("checkpoint", "changes", "words"),
    [
        ({"optimizer": "adamw", "size_gib": 4}, {}, "both given ('checkpoint', 'optimizer') keep one"),
        ({"optimizer": "adan"}, {}, "adan is not known ('checkpoint', 'optimizer') did you mean adam?"),
        ({}, {"workload": {"transformer": SHAPE | {"lora": True}}}, "adapters are is not said"),
        ({"optimizer": "adamw"}, {"workload": {"profile": {"accelerators": "H100:8", "steps_per_hour": 1}}}, "no size"),
        ({}, {"workload": {"profile": {"accelerators": "H100:8", "steps_per_hour": 1}}}, "Field required"),
        ({}, {"workload": {"transformer": SHAPE | {"parameters": "many"}}}, "no number of parameters"),
    ],
)
def test_too_little_is_refused(checkpoint: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    assert words in refusal(checkpoint, **changes)
