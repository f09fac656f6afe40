"""The study of interruption rules on the public recordings: what plans assume of them holds on their second halves."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.interruption_rates import (
    DATA,
    WAIT_MULTIPLES,
    gain_interval,
    make_folds,
    score_fold,
    share_of_waits_over,
)
from tests.bench.interruption_rules import (
    AGE,
    BAND,
    CONSTANT,
    MEMORYLESS,
    OWN_AGE,
    OWN_PRIOR,
    PRODUCT,
    UNKNOWN,
    read_recordings,
)


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")
def test_no_public_recording_is_read_twice() -> None:
    recordings = read_recordings(DATA)
    assert len({(r.folder, r.name) for r in recordings}) == len(recordings) == 47
    assert len({r.counts.tobytes() for r in recordings if r.lost.any()}) == sum(bool(r.lost.any()) for r in recordings)
    assert {r.kind for r in recordings} == {
        *(("aws", name) for name in ("CPU", "K80", "V100")),
        *(("gcp", name) for name in ("CPU", "H100")),
    }
    assert sorted({r.machines for r in recordings}) == [1, 4, 16]
    assert sum(UNKNOWN in r.counts for r in recordings) == 13


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")
def test_the_rule_of_the_product_foresees_the_second_halves_best() -> None:
    folds = make_folds(read_recordings(DATA))
    found = score_fold(folds["cut in time"])
    for name in (BAND, CONSTANT, MEMORYLESS, OWN_PRIOR, OWN_AGE, AGE):
        assert gain_interval(found[PRODUCT], found[name], 200)[0] > 0, name
    left_out = score_fold(folds["a pool left out"])
    for name in (BAND, CONSTANT, MEMORYLESS, OWN_PRIOR, OWN_AGE, AGE):
        assert gain_interval(left_out[PRODUCT], left_out[name], 200)[2] > 0, name


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")
def test_waits_that_plans_assume_are_those_of_second_halves() -> None:
    """The phases were fitted on first halves."""
    waits = np.concatenate([r.waits(r.half, r.counts.size) for r in read_recordings(DATA)])
    for times in WAIT_MULTIPLES:
        assert (waits > times * waits.mean()).mean() == pytest.approx(share_of_waits_over(times), abs=0.025)
