"""At whatever step of a gang's way elsewhere its watcher is killed, the next one goes on with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recovery_walk import STAGES, table, walk
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]


def test_a_watcher_may_be_killed_at_any_step_of_a_migration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Never two gangs, nothing orphaned, nothing lost that was saved; the same losses to the last bit. Every third of
    the steps; all of them: `make walk`."""
    verdicts = walk(STAGES[2::3], tmp_path)
    with capsys.disabled():
        print(f"\n{table(verdicts)}")  # noqa: T201  the table is what this test is for
    assert {verdict.step.name: verdict.wrong for verdict in verdicts if verdict.wrong} == {}
