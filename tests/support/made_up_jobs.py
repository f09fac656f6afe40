"""Jobs and limits from short descriptions, through the same models that read a user's YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from router.jobs.limits import Limits
from router.jobs.spec import Job


def make_job(fields: Mapping[str, Any]) -> Job:
    """A job; besides the models' own fields ``options`` [(accelerator, count)], ``profile`` points,
    ``startup_minutes``, ``spot``, ``regions``, ``machines``, ``rdma``, ``on_demand_share``, ``min_saving``,
    ``max_moves``, all flat."""
    rest = dict(fields)
    options: Sequence[tuple[str, int]] = rest.pop("options")
    gang = {"options": [f"{accelerator}:{count}" for accelerator, count in options]}
    for name in ("regions", "machines", "rdma", "on_demand_share", "min_saving", "max_moves", "same_zone", "mixed"):
        if name in rest:
            gang[name] = rest.pop(name)
    if "startup_minutes" in rest:
        rest["startup"] = timedelta(minutes=rest.pop("startup_minutes"))
    if "spot" in rest:
        rest["market"] = {"spot": rest.pop("spot")}
    rest["workload"] = {"profile": rest.pop("profile")}
    return Job.model_validate({"team": "red", "gang": gang, **{k: v for k, v in rest.items() if v is not None}})


def simple_job(name: str, option: tuple[str, int], *, steps: int, steps_per_hour: float, **more: Any) -> Job:
    """A job with one gang option of one speed, surely known unless ``relative_error`` says otherwise."""
    point = {
        "accelerator": option[0],
        "count": option[1],
        "steps_per_hour": steps_per_hour,
        "relative_error": more.pop("relative_error", 0.0),
    }
    return make_job({"name": name, "steps": steps, "options": [option], "profile": [point], **more})


def make_limits(fields: Mapping[str, Any]) -> Limits:
    return Limits.model_validate(dict(fields))
