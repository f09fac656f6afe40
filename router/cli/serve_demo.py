"""Serve made-up data from a home of its own: nothing of the user's is read, and nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.console import ExitCode
from router.cli.options import wall_clock
from router.cli.serve_socket import listen
from router.cli.site_options import SettingsOptions, open_state_store


def serve_demo(host: str, port: int, folder: Path | None) -> ExitCode:
    """Serve the demo until Ctrl-C; its home is ``folder``, which stays, or a new one, which goes."""
    from router.access.identity import Grant, Identity, Role
    from router.app.console_demo import DEMO_AT, DEMO_USER, write_demo_home
    from router.app.queries.context import QueryContext
    from router.console.answers import AnswerCache
    from router.console.app import make_console
    from router.console.server import run_server
    from router.console.site import ConsoleSite
    from router.console.spend_questions import keep_costs_current
    from router.console.task_kinds import FUNCTIONS
    from router.console.work import ProcessWorker, TaskRunner

    _require_empty(folder)
    with listen(host, port) as listener, _new_home(folder) as home:
        write_demo_home(home)
        with open_state_store(SettingsOptions(home / "deploy.yaml")) as (opened, store):
            user = Identity(DEMO_USER, (Grant(Role.ADMIN),))
            context = QueryContext(opened, store, lambda: DEMO_AT, user)
            site = ConsoleSite(context, lambda _: user, AnswerCache(), banner="Demo: made-up data")

            def announce(url: str) -> None:
                console.note(f"demo home: {home}")
                console.note(f"listening on {url} (Ctrl-C stops it)")

            runner = TaskRunner(store, ProcessWorker(opened), wall_clock, FUNCTIONS)
            with runner.running(), keep_costs_current(site):
                run_server(make_console(site), listener, announce, site.readiness, on_drain=runner.drain)
    return ExitCode.OK


def _require_empty(folder: Path | None) -> None:
    """Raise InvalidInputError for a folder that holds something."""
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise InvalidInputError.single(f"{folder} is not empty", field="--dir", remedy="name a new folder")


@contextmanager
def _new_home(folder: Path | None) -> Iterator[Path]:
    """Make the home that all of this process reads."""
    with TemporaryDirectory(prefix="stepfare-demo-") as scratch:
        home = Path(scratch) / "home" if folder is None else folder
        for name in ("STEPFARE_DEPLOY", "STEPFARE_SANDBOX"):
            os.environ.pop(name, None)  # noqa: TID251  the process is the demo's alone
        os.environ["STEPFARE_HOME"] = str(home)  # noqa: TID251
        os.environ["STEPFARE_CLOUDS"] = str(home / "clouds.yaml")  # noqa: TID251
        yield home
