"""Benches that documents name run to their end, small: an assertion at their end once failed unseen."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.repository import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "last"),
    [
        (("storm", "--gangs", "10"), "10 next places in"),
        (("speed_estimates",), ""),
        (("start", "--runs", "1"), "`stepfare status`"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_bench_ends_as_it_should(words: tuple[str, ...], last: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.{words[0]}", *words[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert last in done.stdout.splitlines()[-1]
