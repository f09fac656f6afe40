"""Twenty worlds of the fault campaign; `make drill` plays two hundred."""

from __future__ import annotations

import pytest

from tests.bench.campaign import campaign, details
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]

SEEDS, PARALLEL = range(20), 8


def test_nothing_is_lost_double_or_left_over_whatever_fails() -> None:
    verdicts = campaign(SEEDS, PARALLEL)
    wrong = [details(verdict) for verdict in verdicts if verdict.found.wrong]
    assert not wrong, "\n".join(wrong)
    assert sum(len(verdict.struck) for verdict in verdicts) >= 2 * len(SEEDS)
    jobs = sum(verdict.found.finished + len(verdict.found.reasons) for verdict in verdicts)
    assert sum(verdict.found.finished for verdict in verdicts) >= 0.9 * jobs
