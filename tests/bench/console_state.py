"""A home with a large state for the bench of the console.

It has a plan of about 1,000 jobs, a ledger of a million rows, 200 gangs that run and 800 jobs that are over; or fewer.

It is made once for one size and kept in the machine's folder for temporary files; a run adds some entries to it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from pricing.money import Usd, UsdPerHour
from router.app.settings import AppSettings, open_state
from router.deploy.deploy_settings import Deploy
from router.ledger.budget import Budget, Scope
from router.ledger.entry import LedgerEntry, MachineUse
from router.ledger.month import Month
from router.planning.document.plan_json import plan_content, plan_to_json
from router.prices.cloud_settings import Clouds, LoadedClouds
from router.state.records import Phase
from router.state.store import StateStore
from tests.bench.plan_page import COPIES, EXAMPLES, large_nights
from tests.support.console import NIGHT
from tests.support.state_values import attempt, entry, node

ROWS = 1_000_000
MONTHS = (Month(2026, 10), Month(2026, 11))
TEAMS = ("research", "speech", "vision", "search", "robotics", "ads", "maps", "health")
_VERSION = 2
GANGS = 1000
_BATCH = 10_000
_A_LIFE = 64  # rows of an attempt: 16 machines in four stretches
_MACHINES = 16
_RATE, _ON_DEMAND = UsdPerHour.parse("27.52"), UsdPerHour.parse("55.04")


@dataclass(frozen=True, slots=True)
class StateSize:
    """Size of the state: rows of the ledger, gangs of which each fifth runs, the plan's examples and their copies."""

    rows: int = ROWS
    gangs: int = GANGS
    examples: int = EXAMPLES
    copies: int = COPIES

    @property
    def running(self) -> int:
        """Return how many of the gangs run; those are the first."""
        return self.gangs // 5


def large_home(size: StateSize) -> Path:
    """Return the home, made where it is missing: minutes for a million rows."""
    name = f"stepfare-console-load-{size.rows}-{size.gangs}-{size.examples}-{size.copies}-{_VERSION}"
    home = Path(tempfile.gettempdir()) / name
    if not (home / "ready").exists():
        home.mkdir(exist_ok=True)
        with opened(home) as store:
            _fill(store, size)
        (home / "ready").touch()
    return home


def opened(home: Path) -> StateStore:
    return open_state(AppSettings(Deploy(), LoadedClouds(Clouds(), {}), home, {}), NIGHT)


def ledger_entry(number: int) -> LedgerEntry:
    """A stretch of a spot machine, by a number that nothing else has."""
    attempt, stretch = f"a{number // _A_LIFE}", number % _A_LIFE
    job = number // _A_LIFE % 1000
    month = MONTHS[number // _A_LIFE % 2]
    start = month.begins + timedelta(minutes=number * 7 % (23 * 24 * 60))
    lasts = timedelta(seconds=2400, microseconds=number * 7919 % 10**8)
    return entry(
        f"load {number}",
        rank=stretch % _MACHINES,
        attempt=attempt,
        job=f"job-{job}",
        team=TEAMS[job % len(TEAMS)],
        project=f"project-{job % 40}",
        use=tuple(MachineUse)[number % 5],
        start=start,
        end=start + lasts,
        quantity=Fraction(lasts // timedelta(microseconds=1), 3_600_000_000),
        resource=f"i-{attempt}-{stretch % _MACHINES}",
        usd_per_hour=_RATE,
        usd=_RATE.over(lasts),
        on_demand_usd_per_hour=_ON_DEMAND,
        steps=number % 7,
        recorded_at=start + timedelta(hours=2),
    )


def _fill(store: StateStore, size: StateSize) -> None:
    before, today = large_nights(size.examples, size.copies)
    for plan in (before, today):
        store.made_plans.put(plan_content(plan)["digest"], plan_to_json(plan), plan.as_of, NIGHT, "bench", "night")
    _add_gangs(store, plan_content(today)["digest"], plan_to_json(today), size)
    for team in TEAMS[:3]:
        usd = Usd.parse("2000000")
        store.budgets.put(Budget(scope=Scope.TEAM, name=team, since=MONTHS[0], usd=usd, at=NIGHT, who="bench"))
    for first in range(store.ledger.head(), size.rows, _BATCH):
        store.ledger.append([ledger_entry(n) for n in range(first, min(first + _BATCH, size.rows))], after=first)
        if first % 100_000 == 0:
            print(f"  {first:,} ledger entries", flush=True)


def _add_gangs(store: StateStore, plan: str, text: str, size: StateSize) -> None:
    """Add an attempt of two machines for each job of the ledger's first ones; each fifth runs."""
    store.plans.put_plan(plan, text, NIGHT)
    for number in range(size.gangs):
        name, runs, made = f"a{number}", number < size.running, NIGHT - timedelta(hours=3 + number % 5)
        if store.attempts.get(name) is not None:
            continue
        ended: dict[str, Any] = (
            {} if runs else {"phase": Phase.FINISHED, "result": "finished", "result_at": NIGHT, "gone_at": NIGHT}
        )
        job: dict[str, Any] = {
            "job": f"job-{number}",
            "team": TEAMS[number % len(TEAMS)],
            "project": f"project-{number % 40}",
        }
        gang = attempt(name, plan=plan, **job, created_at=made, made_at=made, met_at=made, start=made, **ended)
        heard: dict[str, Any] = {
            "machine_id": f"i-{name}",
            "made_at": made,
            "agent": "running",
            "heard_at": NIGHT,
            "step": 900,
        }
        nodes = [node(name, rank, **heard, saved_step=800, step_seconds=3.6) for rank in range(gang.machines)]
        store.attempts.add(replace(gang, phase=Phase.RUNNING) if runs else gang, nodes)
        store.journal.note(name, "provisioning", made, disk_gib=500)
        store.journal.note(name, "met", made, ranks=gang.machines)
