"""The arithmetic of columns against the same said plainly: bounds of groups, costs of units, steps without a slot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from router.planning.columns.blocks import BlockPricer
from router.planning.columns.column import HoldingsDone, share_done
from router.planning.columns.paths import bound_paths
from router.planning.columns.relaxation import free_prices
from router.planning.columns.runs import NEVER, Surcharges
from router.planning.columns.table import build_table
from router.planning.columns.whole_slots import least_before
from tests.bench.nights import mid_size_request
from tests.support.scenes import problem_of

TABLE = build_table(problem_of(mid_size_request(1)))


@pytest.mark.parametrize("seed", range(4))
def test_groups_bounded_together_have_the_bounds_that_each_has_alone(seed: int) -> None:
    draw = np.random.default_rng(seed)
    prices = free_prices(TABLE)
    limit = draw.random(prices.limit.shape) * (draw.random(len(prices.limit)) < 0.3)[:, None] * 5.0
    charges = Surcharges.of(TABLE, replace(prices, limit=limit))
    groups = np.sort(draw.permutation(len(TABLE.block_first))[:40])
    free = np.full(len(groups), NEVER)
    together = bound_paths(TABLE, charges, groups, upper=free)
    for i in range(len(groups)):
        alone = bound_paths(TABLE, charges, groups[i : i + 1], upper=free[:1])
        assert (alone.value[0], alone.nu[0]) == (together.value[i], together.nu[i])


@pytest.mark.parametrize("seed", range(4))
def test_what_is_known_of_groups_is_what_is_found_anew(seed: int) -> None:
    """A pricer that has seen other prices of other limits says the same as one that has seen none."""
    draw = np.random.default_rng(seed)
    groups = np.sort(draw.permutation(len(TABLE.block_first))[:40])
    prices, upper = free_prices(TABLE), np.full(len(groups), NEVER)
    limit = draw.random(prices.limit.shape) * (draw.random(len(prices.limit)) < 0.3)[:, None] * 5.0
    known = BlockPricer(TABLE, TABLE)
    for _ in range(3):
        limit[draw.integers(len(limit))] = draw.random(limit.shape[1])
        charges = Surcharges.of(TABLE, replace(prices, limit=limit).rounded())
        fresh, seen = BlockPricer(TABLE, TABLE), known.over(TABLE)
        bounds, again = (each.bound_paths(charges, groups, upper) for each in (fresh, seen))
        assert (bounds.value.tolist(), bounds.nu.tolist()) == (again.value.tolist(), again.nu.tolist())
        whole, columns = fresh.bound_whole_slots(charges, groups, 320)
        seen_whole, seen_columns = seen.bound_whole_slots(charges, groups, 320)
        assert whole.tolist() == seen_whole.tolist()
        of_paths, seen_of_paths = (each.columns_of_paths(charges, bounds) for each in (fresh, seen))
        for some, others in ((columns, seen_columns), (of_paths, seen_of_paths)):
            assert [(each.job, each.holds, each.usd) for each in some] == [(x.job, x.holds, x.usd) for x in others]
            assert some


@pytest.mark.parametrize("seed", range(4))
def test_the_least_cost_of_units_is_that_of_every_number_before(seed: int) -> None:
    draw = np.random.default_rng(seed)
    before = np.where(draw.random((9, 40)) < 0.2, np.inf, draw.random((9, 40)) * 30)
    most, unit_usd = draw.integers(0, 39, 9), draw.random(9)
    found = least_before(before, most, unit_usd)
    for row in range(9):
        for units in range(40):
            done = range(max(0, units - int(most[row])), units + 1)
            plain = min(before[row, p] + unit_usd[row] * (units - p) for p in done)
            assert found[row, units] == pytest.approx(plain)


@pytest.mark.parametrize("seed", range(20))
def test_without_a_slot_a_job_does_what_the_other_slots_do(seed: int) -> None:
    draw = np.random.default_rng(seed)
    group = int(draw.integers(len(TABLE.block_first)))
    rows = TABLE.members(np.array([group]))
    slots = np.sort(draw.permutation(TABLE.slots)[: draw.integers(2, 14)])
    shares = np.where(draw.random(len(slots)) < 0.7, 1.0, draw.random(len(slots)))
    row_of = draw.choice(rows[:2], len(slots))
    holds = list(zip(slots.tolist(), row_of.tolist(), shares.tolist(), strict=True))
    found = HoldingsDone.of(TABLE, holds).shares_without(range(len(holds)))
    plain = [share_done(TABLE, holds[:i] + holds[i + 1 :]) for i in range(len(holds))]
    assert found == pytest.approx(plain, abs=1e-12)
