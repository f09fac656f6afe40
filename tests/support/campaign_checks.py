"""What must be true of a world of the fault campaign when all is over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from router.controller.history.lifecycle import ReleaseReason
from router.controller.supervise.replanner import TICK
from router.demo.stage import TrainingResult
from router.state.records import Attempt, Phase
from tests.support.campaign_places import STEPS, cloud_time
from tests.support.campaign_world import World
from tests.support.deployed_checks import disagreements
from tests.support.seen_machines import SeenMachines


@dataclass(frozen=True)
class Found:
    """``wrong``: what breaks an invariant, by its name. ``reasons``: of jobs that failed. ``repeated``: steps that were
    done more than once; ``lost``: of them, those that had been confirmed to be saved; ``destroyed``: the same where the
    saved file was destroyed afterwards. ``late``: jobs that were done after their deadline, or not at
    all though their training did not fail; ``close``: those, and
    jobs that were done less than a tick of the policy before it."""

    wrong: tuple[tuple[str, str], ...]
    finished: int = 0
    reasons: tuple[str, ...] = ()
    gangs: int = 0
    repeated: int = 0
    lost: int = 0
    destroyed: int = 0
    late: tuple[str, ...] = ()
    close: tuple[str, ...] = ()


PLAYED, ENDS, ORPHANS, DOUBLES, LOST, SAME, BOOKS, WATCHERS, DEADLINE = (
    "it could be played", "every job ends", "no orphan", "never two gangs", "no confirmed step lost",
    "the same to the last bit", "ledger, state, audit agree", "watchers end as told", "deadline where on-demand has it",
)  # fmt: skip
INVARIANTS = (PLAYED, ENDS, ORPHANS, DOUBLES, LOST, SAME, BOOKS, WATCHERS, DEADLINE)


def found_wrong(world: World, alone: TrainingResult, seen_machines: SeenMachines) -> Found:
    wrong = [(ENDS if "not over" in what else WATCHERS, what) for what in world.wrong]
    finished, reasons = 0, list[str]()
    late, close = list[str](), list[str]()
    repeated = lost = destroyed = 0
    for job in world.setting.jobs:
        attempts = world.attempts(job)
        rows = rows_of(world.place(job) / "metrics.jsonl")
        ended = _end(attempts)
        if ended == "":
            finished += 1
            wrong += [(SAME, f"{job}: {what}") for what in _differences(world.place(job), rows, alone)]
        else:
            reasons.append(ended)
            if ended.startswith("no reason"):
                wrong.append((ENDS, f"{job}: {ended}"))
        left = _deadline(world) - _done_at(world, rows)
        # A training that failed by itself, a full disk under it, is no matter of places.
        if not ended.startswith(ReleaseReason.FAILED):
            late += [job] if ended or left < timedelta(0) else []
            close += [job] if ended or left < TICK else []
        wrong += [(DOUBLES, f"{job}: {what}") for what in interleaved(rows)]
        repeated += len(rows) - len({row["step"] for row in rows})
        gone, spoilt = _again(attempts, rows, world.destroyed.get(job))
        lost, destroyed = lost + gone, destroyed + spoilt
        if gone:
            wrong.append((LOST, f"{job}: {gone} steps that were confirmed to be saved were done again"))
    for what in disagreements(world.site, seen_machines):
        wrong.append((DOUBLES if " gangs of " in what or "machines for rank" in what else BOOKS, what))
    wrong += [(ORPHANS, what) for what in _left(world)]
    gangs = sum(one.met_at is not None for one in world.attempts())
    return Found(tuple(wrong), finished, tuple(reasons), gangs, repeated, lost, destroyed, tuple(late), tuple(close))


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; one that a full disk cut short is passed over."""
    rows = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and {"step", "loss", "time", "attempt"} <= set(row):
            rows.append(row)
    return rows


def interleaved(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Attempts that go on after another one had begun."""
    over = set()
    before = None
    for attempt, some in groupby(rows, key=lambda row: str(row["attempt"])):
        if attempt in over:
            yield f"{attempt} trains on after {before} began, at step {next(some)['step']}"
        over.add(attempt)
        before = attempt


def _end(attempts: Sequence[Attempt]) -> str:
    if any(one.phase is Phase.FINISHED for one in attempts):
        return ""
    last = attempts[-1] if attempts else None
    if last is None or not last.phase.is_over or not last.reason:
        return f"no reason, {last.phase if last else 'no attempt'}"
    return f"{last.reason}: {last.message}"


def _differences(place: Path, rows: list[dict[str, Any]], alone: TrainingResult) -> Iterator[str]:
    losses: dict[int, float] = {}
    for row in rows:
        if losses.setdefault(row["step"], row["loss"]) != row["loss"]:
            yield f"step {row['step']} has two losses"
    for step, loss in alone.losses.items():
        if losses.get(step) not in (loss, None):
            yield f"the loss of step {step}"
    missing = sorted(set(alone.losses) - set(losses))
    if missing:
        yield f"no step {missing[0]}, and {len(missing) - 1} more"
    last = place / alone.checkpoint.name
    if not last.exists() or last.read_bytes() != alone.checkpoint.read_bytes():
        yield "the state after the last step"


def _again(attempts: Sequence[Attempt], rows: list[dict[str, Any]], destroyed: int | None) -> tuple[int, int]:
    """Steps done again by a later attempt though they had been confirmed; and those for which that is no wonder."""
    by_number = {one.id: one.number for one in attempts}
    again: set[tuple[int, int]] = set()
    for one in attempts:
        again |= {
            (row["step"], by_number.get(row["attempt"], 0))
            for row in rows
            if by_number.get(row["attempt"], 0) > one.number and row["step"] <= (one.kept_step or 0)
        }
    spoilt = {pair for pair in again if destroyed is not None and pair[0] > destroyed}
    return len(again - spoilt), len(spoilt)


def _done_at(world: World, rows: list[dict[str, Any]]) -> datetime:
    """When the last step was done, on the cloud's clock as it first was."""
    return cloud_time(world.first_clock, max((row["time"] for row in rows if row["step"] == STEPS), default=0.0))


def _deadline(world: World) -> datetime:
    said: Mapping[str, Any] = json.loads(world.site.plan.read_text())
    as_of = datetime.fromisoformat(said["as_of"]).astimezone(UTC)
    return as_of + world.setting.deadline


def _left(world: World) -> Iterator[str]:
    swept = world.site.run("sweep", "-o", "json", environment=world.environment)
    if swept.code:
        yield f"sweep ends with {swept.code}: {swept.err}"
        return
    yield from (orphan["what"] for orphan in swept.json["orphans"] if orphan["ours"])
    yield from (f"lost: {one}" for one in swept.json["lost"])
    yield from (f"not asked: {one}" for one in swept.json["gaps"])
