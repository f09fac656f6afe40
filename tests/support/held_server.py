"""`python -m tests.support.held_server`: the command `stepfare`, whose plans wait where its home has a file HOLD.

With TAKEOVER_SECONDS in the environment, workers that are silent for so long are missed, and hearts beat faster. Child
processes import this file too, so that plans wait there.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from router.app.queries import plan_making
from router.console import webhooks, work
from router.planning.planner import make_plan
from router.state import tasks

HOLD, TAKEOVER_SECONDS, HELD = "hold", "TAKEOVER_SECONDS", "waiting as told"


def make_held_plan(*inputs: Any, progress: Any, **options: Any) -> Any:
    """Make a plan; where it is held, say so and wait until that is over."""
    waiting, hold = threading.Event(), Path(os.environ["STEPFARE_HOME"]) / HOLD
    if hold.exists():
        progress(HELD)
    while hold.exists():
        waiting.wait(0.05)
    return make_plan(*inputs, progress=progress, **options)


vars(plan_making)["make_plan"] = make_held_plan
webhooks.WAIT_SECONDS = 0.5
if TAKEOVER_SECONDS in os.environ:
    seconds = float(os.environ[TAKEOVER_SECONDS])
    tasks.SILENT = timedelta(seconds=seconds)
    work.HEARTBEAT_SECONDS = seconds / 8

if __name__ == "__main__":
    from router.cli.main import main

    main()
