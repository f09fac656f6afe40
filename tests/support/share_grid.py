"""The useful share of the product beside that of simulated gangs, over a grid of habits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from router.jobs.goodput import GangRunRisk, useful_share
from tests.support.checkpointed_gangs import SavingGang, simulate_lives

LOADS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # interruptions in an interval
STALLS = (0.0, 0.02, 0.1, 0.5)  # as a share of the interval
WRITES = (0.0, 0.1, 0.5, 1.0)
RESTARTS = (0.0, 0.1, 1.0)  # as a share of the mean time between interruptions


@dataclass(frozen=True, slots=True)
class ShareComparison:
    """One gang: the share that the formula gives, the simulated one, and the same where restarts are hit too."""

    gang: SavingGang
    formula: float
    simulated: float

    @property
    def points(self) -> float:
        """How many percentage points the formula lies above the simulation."""
        return 100 * (self.formula - self.simulated)


def gangs_of(loads: Sequence[float], stalls: Sequence[float], writes: Sequence[float]) -> tuple[SavingGang, ...]:
    """Return a gang for each combination; the interval is an hour."""
    return tuple(
        SavingGang(load, 1.0, stall, write, wait=0.75 * restart / load, startup=0.25 * restart / load)
        for load, stall, write, restart in product(loads, stalls, writes, RESTARTS)
    )


def risk_of(gang: SavingGang) -> GangRunRisk:
    """Return the same gang as the planner describes it."""
    return GangRunRisk(
        nominal_steps_per_hour=1.0,
        relative_error=0.0,
        interruptions_per_hour=gang.rate,
        recovery_hours=gang.wait,
        startup_hours=gang.startup,
        interval_hours=gang.interval,
        stall_hours=gang.stall,
        loss_extra_hours=gang.write,
        resumes=True,
    )


def compare_shares(
    gangs: tuple[SavingGang, ...], lives: int, *, restart_is_hit: bool = False
) -> tuple[ShareComparison, ...]:
    simulated = simulate_lives(gangs, lives, seed=20, restart_is_hit=restart_is_hit).useful_share
    return tuple(
        ShareComparison(gang, useful_share(risk_of(gang)), float(share))
        for gang, share in zip(gangs, simulated, strict=True)
    )
