"""What the demo says for finance, where there is nothing to say too."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pricing.money import Usd, UsdPerHour
from router.cli.demo import summarize_spending
from router.ledger.entry import MachineUse
from router.state.store import StateStore
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, entry

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def state(folder: Path) -> StateStore:
    return open_state(folder / "state.db", NOW)


def test_an_empty_ledger_is_said(tmp_path: Path) -> None:
    state(tmp_path).close()
    assert summarize_spending(tmp_path, NOW) == "Nothing was metered."


def test_a_job_over_two_months_has_a_table_for_each(tmp_path: Path) -> None:
    """An hour of start-up and one of work in November, one of work in December: 2 each, 3 on demand; 2000 steps."""
    begin = datetime(2026, 11, 30, 22, tzinfo=UTC)
    entries = [
        entry(
            f"k{n}",
            rank=0,
            start=begin + n * HOUR,
            end=begin + (n + 1) * HOUR,
            use=use,
            usd=Usd.parse("2"),
            machines=1,
            on_demand_usd_per_hour=UsdPerHour.parse("3"),
            steps=0 if use is MachineUse.STARTUP else 1000,
        )
        for n, use in enumerate((MachineUse.STARTUP, MachineUse.WORK, MachineUse.WORK))
    ]
    with state(tmp_path) as store:
        store.ledger.add(entries)
    header, november, waste, _, december = summarize_spending(tmp_path, NOW).splitlines()
    assert header.split()[:5] == ["TEAM", "JOB", "COST", "WORK", "WASTE"]
    assert november.split() == ["research", "llama", "4.0000", "2.0000", "2.0000", "4.0000", "6.0000", "2.0000"]
    assert waste == "  waste: startup 2.0000"
    assert december.split() == ["research", "llama", "2.0000", "2.0000", "-", "2.0000", "3.0000", "1.0000"]
