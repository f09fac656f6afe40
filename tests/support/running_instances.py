"""Random instances with many running jobs, and what their plans do to them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from pricing.money import Usd
from router.jobs.limits import FairShare
from router.jobs.spec import Job, Placement, Status
from tests.support.instances import Instance, make_instance


def make_running_instance(seed: int) -> Instance:
    """The instance of that seed, in which most jobs run on an offer that suits them, and priorities differ."""
    instance = make_instance(seed)
    rng = Random(f"running jobs of {seed}")
    jobs = tuple(_running(rng, instance, job) for job in instance.jobs)
    return replace(instance, jobs=jobs)


def _running(rng: Random, instance: Instance, job: Job) -> Job:
    changes: dict[str, Any] = {"priority": rng.choice((0, 0, 1, 2))}
    if rng.random() < 0.25:
        changes["checkpoint"] = None
    places = [
        Placement(
            cloud=offer.cloud,
            region=offer.region,
            zone=offer.zone,
            instance_type=offer.instance_type,
            market=offer.market,
            accelerators=option.count,
        )
        for offer in instance.book.offers
        for option in job.gang.options
        if (machine := instance.book.machine(offer.cloud, offer.instance_type)) is not None
        and machine.accelerator == option.accelerator
        and option.count % machine.accelerator_count == 0
    ]
    if places and rng.random() < 0.65:
        done = 0 if "checkpoint" in changes or job.checkpoint is None else rng.choice((0, job.steps // 3))
        changes["status"] = Status(steps_done=done, running=rng.choice(places))
    return job.model_copy(update=changes)


def make_sharing_instance(seed: int) -> Instance:
    """The instance of that seed in which the jobs are of three teams with shares and recent use; some of them run."""
    instance = make_running_instance(seed) if seed % 3 == 0 else make_instance(seed)
    rng = Random(f"shares of {seed}")
    teams = ("red", "blue", "green")
    jobs = tuple(job.model_copy(update={"team": rng.choice(teams)}) for job in instance.jobs)
    shares = {team: float(rng.choice((1, 2, 3))) for team in teams if rng.random() < 0.8}
    used = {team: Usd.parse(str(rng.choice((0, 100, 250, 900)))) for team in teams if rng.random() < 0.8}
    fair = FairShare(shares=shares, recent_usd=used)
    return replace(instance, jobs=jobs, limits=instance.limits.model_copy(update={"fair_share": fair}))
