"""The decision against forecasts of spot prices, kept true on the recorded ones."""

from __future__ import annotations

import pytest

from tests.bench import price_forecast as study
from tests.bench.cells import PROBED
from tests.bench.forecast_rules import DAY, PERSISTENCE


@pytest.mark.skipif(not PROBED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize("refit", [10**6, DAY])
def test_no_forecast_saves_on_recorded_prices(refit: int) -> None:
    """Keep the decision of docs/design/placement-program.md true of what is compared."""
    prices = study.recorded_prices()
    scores = study.judge(prices, study.choose_gates(prices, refit), refit)
    saved = {name: study.saving(one, scores[PERSISTENCE]) for name, one in scores.items()}
    assert 0 < saved.pop(study.HINDSIGHT).value < 0.005
    assert all(one.low <= 0 for one in saved.values())
