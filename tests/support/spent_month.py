"""The month of ``examples/showback`` in a state of this process, for consoles over it: the commands of its README.

The state knows the jobs too, as one does that applied their plans; the ledger alone does not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from router.app.queries.context import QueryContext
from router.app.settings import AppSettings
from router.deploy.deploy_settings import Deploy
from router.jobs.job_json import job_json
from router.prices.cloud_settings import Clouds, LoadedClouds
from router.state.store import StateStore
from tests.support.command import run
from tests.support.console import OPERATOR
from tests.support.example_month import JOBS
from tests.support.repository import ROOT

README = ROOT / "examples" / "showback" / "README.md"
MADE_AT = datetime(2026, 12, 3, 9, tzinfo=UTC)
WHEN = "2026-12-03T09:00:00+00:00"
MONTH = "2026-11"
TEAMS = ("platform", "research", "search", "speech", "vision")
# What fills the state; the README's other commands ask it.
_FILLS = re.compile(r"^\$ stepfare ((?:ledger restore|ledger add|bills import|budget set) .+)$", re.MULTILINE)


@contextmanager
def spent_month(home: Path) -> Iterator[QueryContext]:
    """Fill a state below ``home`` with the month, and yield a context that asks it as its bills had come."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPFARE_HOME", str(home))
        patch.chdir(ROOT)
        for words in _FILLS.findall(README.read_text(encoding="utf-8")):
            done = run(*shlex.split(words))
            assert done.exit_code == 0, f"{words}: {done.output}"
        settings = AppSettings(Deploy(), LoadedClouds(Clouds(), {}), home, {})
        with StateStore.open(settings.state_url, now=MADE_AT) as store:
            store.plans.put_jobs({job.digest: job_json(job) for job in JOBS}, MADE_AT)
            yield QueryContext(settings, store, lambda: MADE_AT, OPERATOR)
