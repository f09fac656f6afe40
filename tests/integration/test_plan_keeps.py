"""`stepfare plan --out` keeps what `apply` needs beside the plan."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from router.controller.plans import limits_json
from router.jobs.limits import Limits
from router.planning.document.plan_json import plan_content, plan_from_json
from router.state.store import StateStore
from tests.support.deployed import Template, job


def test_the_jobs_and_the_limits(tmp_path: Path) -> None:
    made = Template(tmp_path / "site", [job("kept")])
    text = (made.folder / "plan.json").read_text()
    content = plan_content(plan_from_json(text, "plan.json"))
    with StateStore.open(f"sqlite:///{made.folder / 'home' / 'state.db'}", now=datetime.now(UTC)) as store:
        limits = Limits.model_validate_json(limits_json(store, content["digest"]))
        assert limits == Limits.model_validate({"clouds": ["sandbox"]})
        assert store.plans.job(content["jobs"][0]["job_digest"]) is not None
