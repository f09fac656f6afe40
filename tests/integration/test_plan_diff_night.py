"""One job of the night loses a rule: the comparison shows that job, what follows from it, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.jobs.residency import Residency
from router.planning.explain.changes import plan_diff
from router.planning.planner import make_plan
from router.render.plan_diff_text import diff_text
from tests.support.night import nightly_request

FREED = "unet3d-crossvalidation"


@pytest.mark.slow
def test_one_job_of_24_loses_a_rule() -> None:
    # Within a wide gap, plans differ by what nothing explains.
    request = replace(nightly_request(), gap=0.005)
    jobs = tuple(j.model_copy(update={"residency": Residency()}) if j.name == FREED else j for j in request.jobs)
    found = plan_diff(
        make_plan(request), make_plan(replace(request, jobs=jobs)), {FREED: ("residency.allow EU -> empty",)}
    )
    first, *rest = found.shown
    assert (first.job, first.root) == (FREED, FREED)
    assert first.why.startswith("the job changed: residency.allow EU -> empty")
    # Within the gap a job may move for no cause that is known; what follows from that names it as its root.
    unexplained = {change.job for change in rest if change.unexplained}
    assert all(change.root in {FREED, *unexplained} for change in rest)
    assert any(cause.follows == FREED for change in found.changes for cause in change.causes)
    explained = [change for change in rest if change.root == FREED]
    assert all(change.causes[0].follows for change in explained)
    # Those without a cause come last, and there are few.
    assert found.shown[1 : 1 + len(explained)] == tuple(explained)
    assert len(found.changes) == 24
    assert len(found.shown) <= 6
    text = diff_text(found)
    assert not any(change.job in text for change in found.quiet if not any(change.job in c.why for c in found.shown))
