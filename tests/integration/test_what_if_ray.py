"""A sweep of 200 plans on a Ray cluster of two nodes of this machine equals that of processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.ray_here import ray_cluster
from tests.support.repository import ROOT


@pytest.mark.slow
def test_a_sweep_on_two_nodes_equals_that_of_processes() -> None:
    with ray_cluster(2) as cluster:
        command = [sys.executable, "-m", "tests.support.ray_sweep", cluster.address]
        result = subprocess.run(
            command, env=cluster.environment, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
        )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["ray"] == found["processes"]
    assert found["ray"]["plans"] == 201
    assert found["costs"] > 20
    assert found["nodes"] == 2
    assert found["interrupted"]
    assert found["refusal"] == "--price: task 7 is refused"
