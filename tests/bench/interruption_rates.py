"""Fit interruption rates on the first half of recorded spot traces and judge them on the second half.

    python -m tests.bench.interruption_rates [--draws 1000]

First table: log-likelihood per machine-hour by folder of traces, higher is better; the last column is the gain over the
memoryless fit with its 90 % interval (traces and blocks of half a day are drawn with replacement). Second table: how
much more often a gang of n machines is hit than one, as an exponent of n, on traces of 4 held and 16 probed machines.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from router.spot.simulator.traces import Floats
from tests.bench.interruption_rules import Trace, fit_prior_shape, fitted_rules, read_trace
from tests.support.repository import ROOT

TRACES: Final = ROOT.parent / "shared" / "data" / "spot-traces"
BLOCK_H: Final = 12.0
MEMORYLESS: Final = "memoryless"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Judge fitted interruption rates on the second halves of traces.")
    parser.add_argument("--draws", type=int, default=1000, help="draws of the intervals (default 1000)")
    options = parser.parse_args()
    if not TRACES.is_dir():
        print("INTERRUPTION RATES: skipped, the shared data are not here")
        return
    traces = read_traces()
    for line in (*rule_lines(traces, options.draws), "", *gang_lines(traces, options.draws)):
        print(line, flush=True)


def read_traces() -> list[Trace]:
    """Return every trace of the shared folder, by path."""
    paths = sorted(path for part in ("availability", "preemption") for path in (TRACES / part).rglob("*.json"))
    return [read_trace(path, TRACES) for path in paths]


def rule_lines(traces: Sequence[Trace], draws: int) -> Iterator[str]:
    """Yield the table of rules."""
    prior = fit_prior_shape([trace.first for trace in traces])
    folders = sorted({trace.folder for trace in traces})
    yield f"INTERRUPTION RATES: {len(traces)} traces; prior of shape {prior.shape:.2f}, mean {prior.mean:.2f} an hour"
    for number, folder in enumerate(folders, 1):
        yield f"  {number} {folder} ({sum(t.folder == folder for t in traces)})"
    yield f"  {'rule':25}{''.join(f'{n:8}' for n in range(1, len(folders) + 1))}     all  gain over memoryless"
    blocks = {name: [score_blocks(t, rule(t)) for t in traces] for name, rule in fitted_rules(traces).items()}
    for name, scores in blocks.items():
        parts = [per_hour([s for s, t in zip(scores, traces, strict=True) if t.folder == f]) for f in folders]
        gain = ""
        if name != MEMORYLESS:
            low, mid, high = gain_interval(scores, blocks[MEMORYLESS], draws)
            gain = f"  {mid:+.3f} ({low:+.3f} to {high:+.3f})"
        yield f"  {name:25}{''.join(f'{part:8.3f}' for part in parts)}{per_hour(scores):8.3f}{gain}"


def score_blocks(trace: Trace, rate: Floats) -> Floats:
    """Return by block of the second half its log-likelihood and its machine-hours."""
    later = slice(trace.half, None)
    values = trace.log_likelihood(rate[later], later)
    size = max(1, round(BLOCK_H / trace.tick_h))
    starts = np.arange(0, values.size, size)
    hours = trace.up[later] * trace.tick_h
    return np.stack([np.add.reduceat(values, starts), np.add.reduceat(hours, starts)], axis=1)


def per_hour(scores: Sequence[Floats]) -> float:
    """Return the log-likelihood per machine-hour of some traces together."""
    value, hours = np.concatenate(scores).sum(axis=0)
    return float(value / hours)


def gain_interval(scores: Sequence[Floats], others: Sequence[Floats], draws: int) -> tuple[float, float, float]:
    """Return the gain per machine-hour over another rule: low, as measured, high."""
    rng = np.random.default_rng(55)
    gains = []
    for _ in range(draws):
        value = hours = 0.0
        for i in rng.integers(0, len(scores), len(scores)):
            drawn = rng.integers(0, len(scores[i]), len(scores[i]))
            value += float((scores[i][drawn, 0] - others[i][drawn, 0]).sum())
            hours += float(scores[i][drawn, 1].sum())
        gains.append(value / hours)
    low, high = np.quantile(gains, (0.05, 0.95))
    return float(low), per_hour(scores) - per_hour(others), float(high)


def gang_lines(traces: Sequence[Trace], draws: int) -> Iterator[str]:
    """Yield the exponent of each trace of several machines, and of each folder of them."""
    many = [trace for trace in traces if trace.up.max() > 1]
    yield "GANG FACTOR: a gang of n is hit n ** e times as often as one machine (0: together, 1: independently)"
    for folder in sorted({trace.folder for trace in many}):
        own = [trace for trace in many if trace.folder == folder]
        for members, name in [*(([trace], trace.name) for trace in own), (own, f"all {len(own)}")]:
            low, mid, high = exponent_interval(members, draws)
            lost = sum(int(t.losses.sum()) for t in members) / sum(int((t.losses > 0).sum()) for t in members)
            yield f"  {folder:34} {name:18} e {mid:.2f} ({low:.2f} to {high:.2f}), {lost:.1f} lost at a time"


def exponent_interval(traces: Sequence[Trace], draws: int) -> tuple[float, float, float]:
    """Return the exponent with its 90 % interval, over blocks of half a day."""
    rng = np.random.default_rng(55)
    blocks = [gang_blocks(trace) for trace in traces]
    found = []
    for _ in range(draws):
        drawn = [b[rng.integers(0, len(b), len(b))].sum(axis=0) for b in blocks]
        exponent = fit_exponent(drawn)
        if exponent is not None:
            found.append(exponent)
    low, high = np.quantile(found, (0.05, 0.95))
    measured = fit_exponent([b.sum(axis=0) for b in blocks])
    assert measured is not None
    return float(low), measured, float(high)


def gang_blocks(trace: Trace) -> Floats:
    """Return by block and number of machines up: hours, ticks at which any was lost, and machines lost."""
    size = max(1, round(BLOCK_H / trace.tick_h))
    most = int(trace.up.max())
    blocks = -(-trace.up.size // size)
    cell = np.arange(trace.up.size) // size * (most + 1) + trace.up
    columns = (np.full(trace.up.size, trace.tick_h), trace.losses > 0, trace.losses)
    counts = [np.bincount(cell, column, blocks * (most + 1)) for column in columns]
    return np.stack(counts, axis=1).reshape(blocks, most + 1, len(columns)).astype(np.float64)


def fit_exponent(tables: Sequence[Floats]) -> float | None:
    """Return e where a gang of n is hit at the rate of one machine times n ** e, by the counts of all n at once.

    The rate of one machine is losses over machine-hours, of each trace its own. None without losses of two and more.
    """
    hours, hits, expected = [], [], []
    for table in tables:
        n = np.arange(table.shape[0], dtype=np.float64)
        machine_hours = float((table[:, 0] * n).sum())
        rate = float(table[:, 2].sum()) / machine_hours if machine_hours else 0.0
        hours.append(n[2:])
        hits.append(table[2:, 1])
        expected.append(table[2:, 0] * rate)
    n, y, base = (np.concatenate(parts) for parts in (hours, hits, expected))
    if y.sum() == 0:
        return None
    low, high = -2.0, 2.0
    while high - low > 1e-6:  # the slope of the Poisson likelihood falls in e
        middle = (low + high) / 2
        slope = float((np.log(n) * (y - base * n**middle)).sum())
        low, high = (middle, high) if slope > 0 else (low, middle)
    return (low + high) / 2


if __name__ == "__main__":
    main()
