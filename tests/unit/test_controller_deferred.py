"""What becomes of a gang that was being made when whoever made it was told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from router.controller.history.attempt_history import resumable_histories
from router.controller.history.lifecycle import POSTPONED
from router.controller.provision import provision_order
from router.controller.provision.provision import ProvisionError
from router.faults.fault import STOPPED
from router.state.records import Phase
from tests.support.bare_site import bare_site
from tests.support.state_values import NOW, attempt

_ERRAND: Any = type("AnErrand", (), {"order": None})()


@pytest.mark.parametrize(
    ("resumes", "told", "reason"),
    [("a1", True, POSTPONED), ("", True, "stopped"), ("a1", False, "stopped")],
    ids=["the watcher stops", "apply stops", "somebody released it"],
)
def test_a_job_whose_next_gang_was_being_made_goes_on_when_somebody_watches_again(
    resumes: str, told: bool, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise ProvisionError(STOPPED, "stopped")

    monkeypatch.setattr(provision_order, "provision", stopped)
    with bare_site(tmp_path, []) as site:
        site.store.attempts.add(attempt("a1", phase=Phase.FAILED, reason="lost", met_at=NOW, gone_at=NOW), [])
        one = attempt("a2", number=2, phase=Phase.PROVISIONING, resumes=resumes)
        site.store.attempts.add(one, [])
        if told:
            site.stop.set()
        outcome = provision_order._provision(site, _ERRAND, one, None)
        assert outcome.attempt is not None
        assert (outcome.attempt.phase, outcome.attempt.reason) == (Phase.FAILED, reason)
        assert bool(resumable_histories(site.store, [outcome.attempt], crashes=3)) is (reason == POSTPONED)
