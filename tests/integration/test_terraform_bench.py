"""The bench of many nodes measures both ways and says how they compare."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.terraform_nodes import figures
from tests.support.terraform_runs import needs_engine

pytestmark = needs_engine


@pytest.mark.slow
def test_figures_of_both_ways(tmp_path: Path) -> None:
    title, _, plain, ours, ratio = figures(tmp_path, 2, 2)
    assert title.startswith("2 IDLE SANDBOX NODES (parallelism 64, 2 rounds, Terraform ")
    for line in (plain, ours):
        assert len(re.findall(r"[\d.]+ \[[\d.]+, [\d.]+\]", line)) == 4
    assert re.search(r"clock [\d.]+ \[.*\], processor [\d.]+ \[", ratio)
