"""Gangs of one region on moto that share a network, and a process that joins it and can be killed meanwhile.

``python -m tests.support.shared_networks FOLDER URL MIRROR ATTEMPT`` joins the network of the state in FOLDER.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from router.controller.context import ControllerContext
from router.controller.release.shared_network import join_network
from router.state.records import Attempt, Phase
from terraform.runner import Runner
from terraform.spec import WorkspaceSpec
from terraform.workdir import PluginSources, prepare
from tests.support.bare_site import bare_site
from tests.support.repository import ROOT
from tests.support.state_values import attempt as an_attempt
from tests.support.state_values import node
from tests.support.terraform_moto import KEYS, LIMITS, gang
from tests.support.terraform_runs import embedded


@contextmanager
def moto_site(folder: Path, url: str, mirror: Path, told: list[str] | None = None) -> Iterator[ControllerContext]:
    """A site whose Terraform leads to the moto server at ``url``."""
    environment = {"PATH": os.environ["PATH"], "AWS_ENDPOINT_URL": url, "PYTHONPATH": str(ROOT), **KEYS}
    changes = {
        "runner": Runner(embedded(), environment, LIMITS),
        "wall_clock": lambda: datetime.now(UTC),
        "plugins": PluginSources(mirror=mirror),
    }
    with bare_site(folder, told, **changes) as site:
        site.runs.mkdir(exist_ok=True)
        yield site


def record(site: ControllerContext, spec: WorkspaceSpec) -> Attempt:
    """Record an attempt that is being provisioned, as the controller does before it makes anything."""
    name, machines = spec.attempt, len(spec.nodes)
    attempt = an_attempt(name, gang=name, job=name, region=spec.region, directory=name, machines=machines)
    attempt = replace(attempt, phase=Phase.PROVISIONING, made_at=site.clock())
    site.store.attempts.add(attempt, tuple(node(name, rank) for rank in range(machines)))
    return attempt


def make(site: ControllerContext, spec: WorkspaceSpec) -> Attempt:
    """Make a gang in the network that its region shares."""
    attempt = record(site, spec)
    joined = join_network(site, attempt, spec)
    prepare(site.directory(attempt.directory), joined, plugins=site.plugins)
    site.runner.apply(site.directory(attempt.directory))
    return attempt


def main(folder: str, url: str, mirror: str, name: str) -> None:
    with moto_site(Path(folder), url, Path(mirror)) as site:
        spec = gang(name, 1, fabric="none")
        join_network(site, record(site, spec), spec)


if __name__ == "__main__":
    main(*sys.argv[1:])
