"""A clock that was set back while a gang ran takes nothing off the ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from router.controller.release.release import release
from router.ledger.entry import LedgerEntryKind, MachineUse
from router.state.records import Phase
from tests.support.bare_site import bare_site
from tests.support.state_values import NOW, attempt, node

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


@pytest.mark.parametrize(
    ("made", "heard", "now", "ends"),
    [
        (NOW, NOW + 4 * MINUTE, NOW + 5 * MINUTE, NOW + 5 * MINUTE),
        (NOW, NOW + 4 * MINUTE, NOW + MINUTE, NOW + 4 * MINUTE),
        (NOW, NOW + 4 * MINUTE, NOW - 9 * MINUTE, NOW + 4 * MINUTE),
        (NOW, None, NOW - 9 * MINUTE, NOW + SECOND),
    ],
    ids=["not set back", "a little", "behind its beginning", "never heard of"],
)
def test_a_machine_is_metered_until_it_was_last_heard_of(
    made: datetime, heard: datetime | None, now: datetime, ends: datetime, tmp_path: Path
) -> None:
    with bare_site(tmp_path, []) as site:
        one = attempt("a1", phase=Phase.RUNNING)
        site.store.attempts.add(one, [node("a1", made_at=made, heard_at=heard)])
        release(replace(site, clock=lambda: now), one, "lost", "")
        (entry,) = site.store.ledger.entries(kind=LedgerEntryKind.METERED)
        assert entry.use is MachineUse.FAILED_LAUNCH
        assert (entry.start, entry.end, entry.usd) == (made, ends, node("a1").usd_per_hour.over(ends - made))
