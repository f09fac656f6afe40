"""The context that provisioning and releasing machines needs: state, Terraform, folders, clocks and a reporter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from providers.fleet import Fleet
from router.controller.workers import Workers
from router.controller.workspace.workspaces import CoordinatorEndpoint
from router.deploy.deploy_settings import Deploy
from router.state.store import StateStore
from terraform.runner import Runner
from terraform.spec import Host
from terraform.workdir import PluginSources

Reporter = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """Everything that provisioning and releasing machines needs.

    ``runs`` holds a run directory for each attempt. ``fleet`` opens a cloud's machines by tag, None where a cloud has
    no tags; it may raise a ProviderError. ``pool`` is (region, instance type) -> own hosts. ``environment`` is where
    secret references are looked up. ``tell`` reports to a person what happens to a job. ``clock`` may run fast, as in a
    sandbox; ``wall_clock`` never does. Setting ``stop`` asks everything to wind up. ``choosing`` is held while own
    hosts are assigned to an attempt, ``copying`` while data are copied. ``workers`` make and release gangs.
    ``sold_zones``: the zones that sell machine types as the cloud said, by cloud, region and types, and when it did.
    """

    store: StateStore
    runner: Runner
    runs: Path
    deploy: Deploy
    home: CoordinatorEndpoint
    clock: Callable[[], datetime]
    wall_clock: Callable[[], datetime]
    fleet: Callable[[str], Fleet | None]
    tell: Reporter
    plugins: PluginSources = field(default_factory=PluginSources)
    pool: Mapping[tuple[str, str], tuple[Host, ...]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    stop: threading.Event = field(default_factory=threading.Event)
    choosing: threading.Lock = field(default_factory=threading.Lock)
    copying: threading.Lock = field(default_factory=threading.Lock)
    sold_zones: dict[tuple[str, ...], tuple[tuple[str, ...] | None, datetime]] = field(default_factory=dict)
    workers: Workers = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", Workers(self.deploy.parallel))

    def directory(self, attempt_directory: str) -> Path:
        """Return the run directory of an attempt."""
        return self.runs / attempt_directory
