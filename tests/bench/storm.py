"""Hundreds of gangs lose their zone in one second: until all are told to save, and until the next place of each is
written down.

    python -m tests.bench.storm [--gangs 500] [--ranks 2] [--profile]

Run from the repository's root. The gangs run in one zone, as far as the state knows; their agents are one process
(:mod:`tests.bench.storm_agents`) that calls the real coordinator over loopback. Watcher, replanner, policy and adviser
are the real ones, with a state of SQLite on the disk of the temporary folder, in one process as in ``stepfare watch``.
Releasing is real too, of gangs of which nothing was ever made, with a second of waiting for what Terraform would take;
only making the next gang is left out.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from pricing.book import PriceBook
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market
from router.agent import protocol
from router.controller.context import ControllerContext, apply_lock
from router.controller.plans import Order, store_limits
from router.controller.provision.provision_order import PlacedAttempt, ProvisionResult, ProvisionStatus
from router.controller.release.release import release
from router.controller.supervise.policy_runner import Adviser
from router.controller.supervise.replanner import PendingGang, PlacementAccepted, ReplanAnswer, Replanner
from router.controller.supervise.supervisor import Supervisor
from router.controller.workspace.bootstrap import CoordinatorEndpoint
from router.coordinator.app import make_app
from router.coordinator.handlers import AgentMessageHandler
from router.coordinator.server import CoordinatorServer
from router.deploy.deploy_settings import Deploy
from router.jobs.job_json import job_json
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.state.records import Attempt, NodeRecord, Phase
from router.state.store import StateStore
from terraform.engine import Engine, EngineKind
from terraform.runner import Runner
from tests.support import made_up_book
from tests.support.coordinations import TOKEN, gang_records
from tests.support.made_up_jobs import make_limits, simple_job

GANGS, RANKS = 500, 2
SPREAD_S = 1.0
PASS_S = 0.5  # as `stepfare watch`
GIVE_UP_S = 120.0
RELEASE_S = 1.0
IDLE_PASSES = 10
_HOUR = timedelta(hours=1)
RUN = timedelta(hours=30)
HERE = ("aws", "north-1", "north-1a")
_PLACES = (
    ("aws/north-1", "p9.48xlarge", 60, "abc"), ("aws/south-1", "p9.48xlarge", 50, "abc"),
    ("aws/alps-1", "p9.48xlarge", 45, "ab"), ("azure/fjord-1", "ND96_h9", 48, "ab"),
    ("gcp/lake-1", "a9-highgpu-8g", 40, "ab"), ("gcp/rhine-1", "a9-highgpu-8g", 42, "ab"),
)  # fmt: skip
_PLAN_BYTES_A_JOB = 4000


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description="How soon hundreds of gangs that lose their zone have another place.")
    parser.add_argument("--gangs", type=int, default=GANGS)
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--profile", action="store_true", help="says also where the watcher's time goes")
    asked = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="stepfare-storm-") as folder:
        for line in figures(Path(folder), asked.gangs, asked.ranks, profile=asked.profile):
            print(line, flush=True)


def figures(folder: Path, gangs: int, ranks: int, *, profile: bool = False) -> Iterator[str]:
    with StateStore.open(f"sqlite:///{folder / 'state.db'}", now=real_clock()) as store:
        made = time.perf_counter()
        limits = fill(store, gangs, ranks)
        site = site_of(store, folder)
        yield f"STORM: {gangs} gangs of {ranks} in one zone ({time.perf_counter() - made:.1f} s to write them down)"
        attendance = AgentMessageHandler(store, folder / "logs", real_clock)
        with CoordinatorServer(make_app(attendance, b"agent", store.id), "127.0.0.1", 0) as server:
            site = replace(site, home=CoordinatorEndpoint(server.url, "0" * 64))
            replanner = Timed(site, book)
            watcher = Supervisor(site, replanner, Adviser(replanner), lambda: apply_lock(site))
            with (
                agents(server.url, gangs, ranks) as process,
                patch("router.controller.supervise.supervisor.provision_recorded", pretended),
                patch("router.controller.supervise.supervisor.release", released),
            ):
                assert process.stdout is not None
                assert process.stdin is not None
                assert process.stdout.readline() == "ready\n"
                yield from idle(watcher)
                with profiled(profile):
                    process.stdin.write("go\n")
                    process.stdin.flush()
                    busy, began = time.process_time(), time.monotonic()
                    passes = availability(watcher, replanner, gangs)
                    busy = time.process_time() - busy
                found = json.loads(process.stdout.readline())
                yield from shown(found, replanner, passes, gangs, ranks)
                yield f"  this process was busy {busy:.1f} s of {time.monotonic() - began:.1f} s, {load()}"
                watcher.close()
        yield checked(store, gangs, limits)


def idle(watcher: Supervisor) -> Iterator[str]:
    """Passes with nothing new, beside agents that only beat."""
    took = []
    for _ in range(IDLE_PASSES):
        time.sleep(PASS_S)
        began = (time.perf_counter(), time.thread_time())
        watcher.reconcile()
        took.append((time.perf_counter() - began[0], time.thread_time() - began[1]))
    wall, own = ([pair[i] * 1000 for pair in took[1:]] for i in (0, 1))
    yield (
        f"  a pass with nothing new: median {statistics.median(wall):.0f} ms, slowest {max(wall):.0f} ms "
        f"(of the processor {statistics.median(own):.0f} ms), the first {took[0][0] * 1000:.0f} ms; {load()}"
    )


def availability(watcher: Supervisor, replanner: Timed, gangs: int) -> list[tuple[float, float]]:
    """Passes until every gang has a place: when each began, how long it took."""
    passes = []
    ends = time.monotonic() + GIVE_UP_S
    while replanner.placed_count < gangs:
        assert time.monotonic() < ends, f"{replanner.placed_count} of {gangs} placed after {GIVE_UP_S:.0f} s"
        began = time.monotonic()
        watcher.reconcile()
        passes.append((began, time.monotonic() - began))
        time.sleep(PASS_S)
    return passes


def shown(
    found: dict[str, dict[str, float]], replanner: Timed, passes: list[tuple[float, float]], gangs: int, ranks: int
) -> Iterator[str]:
    """The phases, each from the first notice."""
    first = min(found["told"].values())
    told, ordered, saved = (max(found[name].values()) - first for name in ("told", "ordered", "saved"))
    assert len(found["ordered"]) == gangs * ranks
    assert len({name.split()[0] for name in found["saved"]}) == gangs
    yield f"  after the first notice: all noticed {told:.2f} s, told to save {ordered:.2f} s, saved {saved:.2f} s"
    for batch in replanner.batches:
        yield (
            f"  {batch.gangs} gangs planned together: begun {batch.began - first:.2f} s, thought out in "
            f"{batch.planned - batch.began:.2f} s, written down by {batch.written - first:.2f} s"
        )
    yield f"  all have their next place {max(batch.written for batch in replanner.batches) - first:.2f} s after it"
    yield f"  passes meanwhile: {len(passes)}, the longest {max(took for _, took in passes):.2f} s"


def checked(store: StateStore, gangs: int, limits: Limits) -> str:
    """That each has one successor, elsewhere, at what was saved, and all together keep to the limits."""
    found = store.attempts.find()
    successors = {attempt.resumes: attempt for attempt in found if attempt.resumes}
    assert len(successors) == gangs, len(successors)
    assert len(found) == 2 * gangs
    assert all(one.first_step == 1000 for one in successors.values())
    nodes = [node for one in successors.values() for node in store.attempts.nodes(one.id)]
    assert not any(node.zone == HERE[2] and node.market is Market.SPOT for node in nodes)
    for limit in limits.limits:
        taken = sum(
            sum(n.accelerators for n in nodes if n.attempt == one.id and n.market.value == limit.market)
            for one in successors.values()
            if (one.cloud, one.region) == (limit.cloud, limit.region)
        )
        assert taken <= limit.amount, (limit.name, taken)
    regions = sorted({f"{one.cloud}/{one.region}" for one in successors.values()})
    return f"  {len(successors)} next places in {len(regions)} regions, every limit kept"


@dataclass(slots=True)
class Batch:
    gangs: int
    began: float
    planned: float
    written: float = 0.0


@dataclass(slots=True)
class Timed(Replanner):
    """Knows when it was asked, and when its answers were written down."""

    batches: list[Batch] = field(default_factory=list)
    placed_count: int = 0

    def replan(self, wanting: Sequence[PendingGang]) -> list[ReplanAnswer]:
        began = time.monotonic()
        # By its class: a dataclass with slots is made twice, and `super()` means the first.
        answers = Replanner.replan(self, wanting)
        self.batches.append(Batch(len(wanting), began, time.monotonic()))
        return answers

    def placed(self, going: Sequence[tuple[PendingGang, PlacementAccepted]]) -> list[PlacedAttempt | ProvisionResult]:
        done = Replanner.placed(self, going)
        self.placed_count += sum(isinstance(one, PlacedAttempt) for one in done)
        self.batches[-1].written = time.monotonic()
        return done


def pretended(site: ControllerContext, request: object, placed: PlacedAttempt, when_whole: object) -> ProvisionResult:
    """The gang as if it were made, in no time."""
    now = site.clock()
    up = site.store.attempts.update(placed.attempt.id, lambda a: replace(a, phase=Phase.READY, met_at=now))
    return ProvisionResult(Order(up.job, up.gang, up.start, up.end, ()), ProvisionStatus.READY, up)


def released(site: ControllerContext, attempt: Attempt, reason: str, message: str) -> Attempt:
    """As it is, but for what Terraform would take."""
    site.stop.wait(RELEASE_S)
    return release(site, attempt, reason, message)


@contextmanager
def agents(url: str, gangs: int, ranks: int) -> Iterator[subprocess.Popen[str]]:
    """The process of all agents."""
    counts = ["--gangs", str(gangs), "--ranks", str(ranks), "--spread", str(SPREAD_S)]
    command = [sys.executable, "-m", "tests.bench.storm_agents", url, *counts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Says on the way out where this thread's time went."""
    if not wanted:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(70)


def fill(store: StateStore, gangs: int, ranks: int, *, grouped: int = 0) -> Limits:
    """Store plan, limits, jobs, and a gang of each that runs in the zone; the first ``grouped`` jobs are a group."""
    now = real_clock()
    limits = limits_of(gangs, ranks)
    jobs = [job_of_gang(number, ranks) for number in range(gangs)]
    jobs = [j.model_copy(update={"group": "rlhf"}) if n < grouped else j for n, j in enumerate(jobs)]
    plan = {"as_of": now.isoformat(), "jobs": [{"job": job.name, "why": "x" * _PLAN_BYTES_A_JOB} for job in jobs]}
    store.plans.put_plan("p" * 64, json.dumps(plan), now)
    store_limits(store, "p" * 64, limits)
    store.plans.put_jobs({job.digest: job_json(job) for job in jobs}, now)
    for number, job in enumerate(jobs):
        store.attempts.add(*gang(number, job, ranks, now))
    return limits


def job_of_gang(number: int, ranks: int) -> Job:
    """Eight H100 a machine, a checkpoint; one in three has a deadline, one in ten more priority."""
    more: dict[str, Any] = {"deadline": "+3d"} if number % 3 == 0 else {}
    return simple_job(
        f"job-{number:03}",
        ("H100", 8 * ranks),
        steps=20_000 + 100 * (number % 37),
        steps_per_hour=1000,
        checkpoint={"size_gib": 10 + number % 5},
        startup_minutes=10,
        team=f"team-{number % 5}",
        priority=int(number % 10 == 0),
        **more,
    )


def gang(number: int, job: Job, ranks: int, now: datetime) -> tuple[Attempt, list[NodeRecord]]:
    cloud, region, zone = HERE
    attempt, nodes = gang_records(ranks, name=f"gang-{number:03}", token=TOKEN)
    attempt = replace(
        attempt,
        plan="p" * 64,
        job=job.name,
        job_digest=job.digest,
        gang="g0",
        start=now - _HOUR,
        end=now + RUN,
        cloud=cloud,
        region=region,
        team=job.team,
        phase=Phase.RUNNING,
        # It has run for an hour: nobody believes a thousand steps after a second.
        met_at=now - _HOUR,
        created_at=now - _HOUR,
        at_risk_usd=UsdPerHour.parse("60").over(RUN),
        checkpoint_seconds=1800.0,
    )
    running = [
        replace(
            node,
            zone=zone,
            instance_type="p9.48xlarge",
            market=Market.SPOT,
            agent=protocol.RUNNING,
            step=900,
            incarnation=f"life-{node.rank}",
            agent_address=f"10.0.{number % 256}.{node.rank}",
            heard_at=now,
        )
        for node in nodes
    ]
    return attempt, running


def limits_of(gangs: int, ranks: int) -> Limits:
    """Room for all, but not where it is cheapest: a quota by region and market; teams with money."""
    per_region = gangs * ranks * 8 // 9
    quotas = [
        {
            "name": f"{place} {market}",
            "cloud": place.split("/")[0],
            "region": place.split("/")[1],
            "market": market,
            "unit": "accelerators",
            "amount": per_region,
        }
        for place, *_ in _PLACES
        for market in ("spot", "on_demand")
    ]
    teams = [{"team": f"team-{number}", "budget": 50_000_000} for number in range(5)]
    return make_limits({"limits": quotas, "teams": teams})


def book() -> PriceBook:
    """Six regions of three clouds, spot by zone and on demand: twenty places for a gang."""
    return _BOOK


def _offers() -> Iterator[Offer]:
    for place, kind, dollars, zones in _PLACES:
        names = [f"{place.split('/')[1]}{zone}" for zone in zones]
        yield made_up_book.offer(place, kind, "on_demand", str(dollars), zone=names[0])
        for number, zone in enumerate(names):
            yield made_up_book.offer(place, kind, "spot", f"{dollars * (40 + 3 * number) / 100:.2f}", zone=zone)


_BOOK = made_up_book.book(list(_offers()))


def site_of(store: StateStore, folder: Path) -> ControllerContext:
    return ControllerContext(
        store=store,
        runner=Runner(Engine(folder / "no-engine", EngineKind.TERRAFORM, "1.9.0"), {}),
        runs=folder / "runs",
        deploy=Deploy(),
        home=CoordinatorEndpoint("http://127.0.0.1:1", "0" * 64),
        clock=real_clock,
        wall_clock=real_clock,
        fleet=lambda cloud: None,
        tell=lambda job, text: None,
    )


def real_clock() -> datetime:
    return datetime.now(UTC)


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    main(sys.argv[1:])
