"""What making and releasing machines needs, put together once: the state, Terraform, folders, a clock, who listens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from providers.fleet import Fleet
from router.config.deploy_file import Deploy
from router.controller.workspaces import Home
from router.state.store import Store
from terraform.cli_config import Plugins
from terraform.runner import Runner
from terraform.spec import Host

Tell = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Site:
    """``runs`` holds a run directory for each attempt. ``fleet`` opens a cloud's machines by tag, None where a cloud
    knows no tags; it may raise a ProviderError. ``pool`` is (region, instance type) -> hosts of one's own.
    ``environment`` is where secret references look. ``tell`` says to a person what happens to a job. ``clock`` may be
    sped up, as a sandbox is; ``wall_clock`` never is. ``stop`` set:
    wind up."""

    store: Store
    runner: Runner
    runs: Path
    deploy: Deploy
    home: Home
    clock: Callable[[], datetime]
    wall_clock: Callable[[], datetime]
    fleet: Callable[[str], Fleet | None]
    tell: Tell
    plugins: Plugins = field(default_factory=Plugins)
    pool: Mapping[tuple[str, str], tuple[Host, ...]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    stop: threading.Event = field(default_factory=threading.Event)
    choosing: threading.Lock = field(default_factory=threading.Lock)

    def directory(self, attempt_directory: str) -> Path:
        """The run directory of an attempt."""
        return self.runs / attempt_directory
