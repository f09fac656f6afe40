"""A site with a real state database and nothing to make machines with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from router.controller.context import ControllerContext
from router.controller.workspace.bootstrap import CoordinatorEndpoint
from router.deploy.deploy_settings import Deploy
from terraform.engine import Engine, EngineKind
from terraform.runner import Runner
from tests.support.new_state import open_state
from tests.support.scenes import NOW


@contextmanager
def bare_site(folder: Path, told: list[str] | None = None, **changes: Any) -> Iterator[ControllerContext]:
    """One whose clock stands at the scenes' moment; what it tells is gathered in ``told``."""
    heard = [] if told is None else told
    with open_state(folder / "state.db", NOW) as store:
        fields: dict[str, Any] = {
            "store": store,
            "runner": Runner(Engine(folder / "no-engine", EngineKind.TERRAFORM, "1.9.0"), {}),
            "runs": folder / "runs",
            "deploy": Deploy(),
            "home": CoordinatorEndpoint("http://127.0.0.1:1", "0" * 64),
            "clock": lambda: NOW,
            "wall_clock": lambda: NOW,
            "fleet": lambda cloud: None,
            "tell": lambda job, text: heard.append(f"{job}: {text}"),
        }
        yield ControllerContext(**{**fields, **changes})
