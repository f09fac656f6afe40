"""Run a back-test on several processes; the result does not depend on how many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.app.parallel import Advance, Engine, run_tasks
from router.backtest.windows import BacktestCell, BacktestPart, WindowLayout, list_backtest_parts, play_part
from router.spot.simulator.simulation import WindowOutcomes
from router.spot.simulator.traces import Floats

_Inputs = tuple[Sequence[BacktestCell], WindowLayout, bool]


def run_backtest(
    cells: Sequence[BacktestCell],
    windows: WindowLayout,
    policies: Sequence[str],
    *,
    paid: bool,
    processes: int,
    advance: Advance,
) -> Mapping[BacktestPart, WindowOutcomes | Floats]:
    """Play all parts and return the results in the order of :func:`router.backtest.windows.list_backtest_parts`.

    ``advance`` is called with the number of parts that are done. Processes are used as by
    :func:`router.app.parallel.run_tasks`.
    """
    parts = list(list_backtest_parts(cells, windows, policies))
    results = run_tasks(_play, (cells, windows, paid), parts, Engine(None, processes), advance)
    return dict(zip(parts, results, strict=True))


def _play(inputs: _Inputs, part: BacktestPart) -> WindowOutcomes | Floats:
    cells, windows, paid = inputs
    return play_part(cells, windows, part, paid=paid)
