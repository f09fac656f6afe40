"""The fault campaign's scripts come from their seeds alone, and what it looks for is found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.support.campaign_checks import interleaved, rows_of
from tests.support.campaign_places import SETTINGS, Kind, script_of

SEEDS = range(200)


def test_a_seed_is_a_script() -> None:
    assert [script_of(seed) for seed in SEEDS] == [script_of(seed) for seed in SEEDS]
    assert len({str(script_of(seed)) for seed in SEEDS}) == len(SEEDS)


def test_every_fault_comes_often_enough_in_two_hundred() -> None:
    kinds = Counter(fault.kind for seed in SEEDS for fault in script_of(seed).faults)
    assert min(kinds[kind] for kind in Kind) >= 5, kinds
    assert {script_of(seed).setting for seed in SEEDS} == set(SETTINGS)
    soon = sum(fault.after is not None for seed in SEEDS for fault in script_of(seed).faults)
    assert soon > 100


def test_two_gangs_that_train_at_once_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    assert rows_of(file) == []
    line = '{{"step": {}, "loss": 1.5, "time": 2.0, "attempt": "{}"}}\n'
    steps = ((1, "a"), (2, "a"), (2, "b"))
    file.write_text("".join(line.format(*step) for step in steps) + '{"step": 3, "lo\n')
    assert len(rows_of(file)) == 3
    assert list(interleaved(rows_of(file))) == []
    file.write_text(file.read_text() + line.format(3, "a"))
    assert list(interleaved(rows_of(file))) == ["a trains on after b began, at step 3"]
