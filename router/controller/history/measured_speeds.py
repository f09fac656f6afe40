"""Measure how fast a job's gangs train, from what their machines reported. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pricing.book import PriceBook
from router.controller.history.attempt_history import AttemptHistory
from router.jobs.measured_speed import MeasuredSpeed, correct_workload
from router.jobs.spec import Job
from router.state.records import Attempt, NodeRecord

# A gang is measured over this long at least, and over so many steps: what comes before its first step counts as well.
_LEAST_TIME = timedelta(hours=1)
# Where the training's own time of a step agrees with the clock, this is enough.
_LEAST_TIME_AGREED = timedelta(minutes=10)
_LEAST_STEPS = 10
_LEAST_SHARE = 0.5  # of its time a gang spends in steps, else its own time of a step is not believed


def job_as_measured(job: Job, chain: AttemptHistory, book: PriceBook, earlier: Sequence[MeasuredSpeed] = ()) -> Job:
    """Return the job with the speeds of its own gangs, the newest gang's first, and then those of ``earlier`` runs.

    Unchanged where nothing was measured, or where the book does not know the machines.
    """
    lives = zip(reversed(chain.attempts), reversed(chain.nodes), strict=True)
    own = [measure_speed(attempt, nodes, book) for attempt, nodes in lives]
    workload = correct_workload(job.workload, [*(each for each in own if each is not None), *earlier], book)
    return job if workload is job.workload else job.model_copy(update={"workload": workload})


def measure_speed(attempt: Attempt, nodes: Sequence[NodeRecord], book: PriceBook) -> MeasuredSpeed | None:
    """Return the speed of an attempt; None where it ran too shortly, or on machines of several types.

    It is that of the slowest rank, for a gang trains as fast as that. The training's own time of a step counts where it
    explains at least half of the time since all ranks met; else steps by that time, start and saves included: a clock
    that runs fast, or one slow step, is no measure.
    """
    heard = max((node.heard_at for node in nodes if node.heard_at is not None), default=None)
    types = {node.instance_type for node in nodes}
    if attempt.met_at is None or heard is None or len(types) != 1:
        return None
    machine = book.machine(attempt.cloud, types.pop())
    elapsed = min(heard, attempt.gone_at or heard) - attempt.met_at
    done = max((node.step for node in nodes if node.step is not None), default=0) - attempt.first_step
    if machine is None or done < _LEAST_STEPS or elapsed < _LEAST_TIME_AGREED:
        return None
    by_clock = elapsed.total_seconds() / done
    reported = max((node.step_seconds for node in nodes if node.step_seconds), default=None)
    if reported is not None and _LEAST_SHARE * by_clock <= reported <= by_clock:
        return MeasuredSpeed(machine, len(nodes), 3600 / reported)
    return None if elapsed < _LEAST_TIME else MeasuredSpeed(machine, len(nodes), 3600 / by_clock)
