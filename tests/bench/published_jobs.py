"""Write each published run as a job file, and read its estimate as a user would.

Three forms: the layout as the source states it, ``layout: auto``, and nothing about the layout at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from router.jobs.layouts import AGAIN, estimate_kind
from router.jobs.speed import Speed, UnknownSpeed, speed_from_shape
from router.jobs.step_model import Coefficients
from router.jobs.workload import Transformer
from tests.bench.published_runs import Run

FORMS = ("stated", "auto", "none")
KINDS = tuple(":".join(parts) for parts in product(("dense", "experts"), FORMS, ("unknown", "old", "known")))


def job_shape(run: Run, form: str, software: bool = True) -> dict[str, Any]:
    """Return `workload.transformer` of the run's job file, in one of the forms; its software stated or not."""
    shape: dict[str, Any] = run.model.model_dump(mode="json", exclude_defaults=True)
    if not software:
        shape = {name: value for name, value in shape.items() if not name.startswith("software")}
    layout = run.layout
    if form == "auto":
        shape |= {"layout": "auto", "sharding": "auto", "recompute": "auto"}
    if form == "stated":
        sizes = {
            "tensor_parallel": layout.tensor,
            "pipeline_parallel": layout.pipeline,
            "context_parallel": layout.context,
            "expert_parallel": layout.expert,
        }
        if layout.microbatch >= 1 and layout.microbatch == int(layout.microbatch):
            sizes["micro_batch"] = int(layout.microbatch)
        shape |= {"layout": sizes, "sharding": layout.sharding}
        shape["recompute"] = run.recompute if run.recompute in AGAIN else "auto"
    return shape


def estimate_run(run: Run, form: str, fit: Coefficients, software: bool = True) -> Speed | UnknownSpeed:
    """Return the estimate of the run's job file on its gang by the coefficients of ``fit``."""
    model = Transformer.model_validate(job_shape(run, form, software))
    return speed_from_shape(model, run.links, run.gang.accelerator, fit)


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run with the logarithm of estimated over published tokens/s; NaN where there is no estimate.

    ``kind`` is what its correction and interval depend on, ``fold`` the part of the runs with which it was left out.
    """

    run: Run
    error: float
    kind: str
    fold: int
    reason: str = ""


def judge_runs(
    runs: Sequence[Run], fits: Sequence[Coefficients], folds: Iterable[int], form: str, software: bool
) -> list[JudgedRun]:
    """Return every run with its error by the fit that never saw it, its layout in one of the forms.

    In the form that states the layout only those runs count whose source states it.
    """
    judged = []
    for run, fold in zip(runs, folds, strict=True):
        if form == "stated" and not run.layout_known:
            continue
        fit = fits[fold]
        found = estimate_run(run, form, fit, software)
        kind = estimate_kind(Transformer.model_validate(job_shape(run, form, software)), fit)
        if isinstance(found, UnknownSpeed):
            judged.append(JudgedRun(run, math.nan, kind, fold, found.reason))
        else:
            rate = found.steps_per_hour / 3600 * run.tokens_per_step
            judged.append(JudgedRun(run, math.log(rate / run.tokens_per_s), kind, fold))
    return judged


def judge_all(runs: Sequence[Run], fits: Sequence[Coefficients], folds: Sequence[int]) -> list[JudgedRun]:
    """Return every run in every form, with and without its software."""
    cases = [(form, software) for form in FORMS for software in (True, False)]
    return [one for form, software in cases for one in judge_runs(runs, fits, folds, form, software)]
