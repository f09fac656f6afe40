"""Whether the compact program and columns agree: both plan the same random nights, and neither may disprove the other.

    python -m tests.bench.agreement [--instances 300] [--seed 0]

Nights are those of :func:`tests.bench.nights.mid_size_request`, numbered from the seed. The independent checker judges
both plans. Each bound must be at most its own plan's cost, and at most the other's where as many jobs of each priority
are left out; that no plan leaves out fewer is never said to be proven where the other one does. Exit code 1 and the
night's number for each violation.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

import tests.support.made_up_book  # noqa: F401  (its machines have images)
from router.planning.document.plan import Plan
from tests.bench.nights import mid_size_request
from tests.support.plan_agreement import Agreement, compare_planners, value_of

SAME = 1e-6  # relative difference of two costs that are the same


@dataclass(frozen=True)
class Night:
    """One night's figures; ``dearer`` is what columns cost more than the compact program, relative."""

    seed: int
    jobs: int
    offers: int
    seconds: float
    agreement: Agreement

    @property
    def dearer(self) -> float:
        """The relative difference of the two values; zero where there is nothing to pay."""
        compact, columns = value_of(self.agreement.compact), value_of(self.agreement.columns)
        return (columns - compact) / max(compact, columns, 1e-9)


def measure(seed: int) -> Night:
    request = mid_size_request(seed)
    began = time.process_time()
    agreement = compare_planners(request)
    return Night(seed, len(request.jobs), len(request.book.offers), time.process_time() - began, agreement)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Whether the compact program and columns agree.")
    parser.add_argument("--instances", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="number of the first night")
    asked = parser.parse_args(arguments)
    nights = []
    for seed in range(asked.seed, asked.seed + asked.instances):
        night = measure(seed)
        nights.append(night)
        for words in night.agreement.wrong:
            print(f"night {seed}: {words}", flush=True)
    _show(nights)
    if any(night.agreement.wrong for night in nights):
        sys.exit(1)


def _show(nights: list[Night]) -> None:
    compact = [night.agreement.compact for night in nights]
    columns = [night.agreement.columns for night in nights]
    same = [night for night in nights if night.agreement.same_left_out]
    dearer = sorted(night.dearer for night in same)
    jobs, offers = sorted(night.jobs for night in nights), sorted(night.offers for night in nights)
    seconds = [night.seconds for night in nights]
    print(f"AGREEMENT   {len(nights)} nights of {jobs[0]} to {jobs[-1]} jobs over {offers[0]} to {offers[-1]} offers")
    print(f"            both planners together: median {statistics.median(seconds):.1f} s, most {max(seconds):.1f} s")
    print(f"            as many jobs of each priority left out: {len(same)}")
    print(f"            left out proven: compact {_proven(compact)}, columns {_proven(columns)}")
    print(f"            gap reached: compact {_reached(compact)}, columns {_reached(columns)}")
    if dearer:
        print(
            f"            of those with as many left out, the same cost: {sum(abs(part) <= SAME for part in dearer)},"
            f" columns cheaper: {sum(part < -SAME for part in dearer)}; columns dearer by"
            f" {statistics.median(dearer):.2%} (median), {statistics.fmean(dearer):.2%} (mean), {dearer[-1]:.1%} (most)"
        )
    print(f"            violations: {sum(len(night.agreement.wrong) for night in nights)}")


def _proven(plans: list[Plan]) -> int:
    return sum(plan.stage_one_proven for plan in plans)


def _reached(plans: list[Plan]) -> int:
    return sum(plan.gap <= plan.gap_asked + 1e-12 for plan in plans)


if __name__ == "__main__":
    main()
