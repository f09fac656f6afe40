"""Measure a short all-reduce over the gang by the torch of the job's image, and compare it with the plan's figure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from router.agent.config import AgentConfig
from router.agent.preflight import PreflightCheck
from router.agent.protocol import LEAST_SHARE
from router.agent.supervise import ProcessExit

MODULE, RESULT = "stepfare_all_reduce", "all-reduce.json"
_NO_PYTHON = (126, 127)


@dataclass(frozen=True)
class AllReduceResult:
    """The measured bus bandwidth in GB/s, None where nothing was measured, and the check that it makes."""

    gb_per_s: float | None
    check: PreflightCheck


def with_all_reduce(config: AgentConfig) -> AgentConfig:
    """Return the configuration whose command measures the all-reduce, in the job's image or folder."""
    kind = "gpus" if config.gpus else "cpu"
    return replace(config, engine="command", command=f"exec python3 -m {MODULE} {kind}")


def judge_all_reduce(
    config: AgentConfig, content: dict[str, Any] | None, end: ProcessExit | None, last_line: str
) -> AllReduceResult:
    """Return the result of a measurement by what it wrote; ``end`` None is the end of its time.

    What the image lacks is no fault of the machines; an all-reduce that failed is one.
    """
    content = content or {}
    speed, skipped = content.get("gb_per_s"), content.get("skipped")
    if end is not None and end.code in _NO_PYTHON:
        skipped = "the job's image has no python3"
    if isinstance(skipped, str):
        return AllReduceResult(None, PreflightCheck("all-reduce", "", f"not measured: {skipped}"))
    if not isinstance(speed, (int, float)) or not 0 < speed < float("inf"):
        why = "it did not end in time"
        if end is not None:
            words = f"exit code {end.code}" if end.signal is None else f"signal {end.signal}"
            why = f"{words}: {last_line or 'no output'}"
        return AllReduceResult(None, PreflightCheck("all-reduce", f"it failed over {config.nodes} machines: {why}"))
    assumed = config.assumed_gb_per_s
    what = f"{speed:.3g} GB/s over {config.nodes} machines"
    if assumed is not None and speed < LEAST_SHARE * assumed:
        problem = f"{what}, less than half of the {assumed:.3g} GB/s that the plan assumes"
        return AllReduceResult(speed, PreflightCheck("all-reduce", problem, what))
    beside = "" if assumed is None else f", the plan assumes {assumed:.3g}"
    return AllReduceResult(speed, PreflightCheck("all-reduce", "", what + beside))
