"""Command ``stepfare serve``: show plans, jobs, quotes, prices and costs in a browser, and answer programs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from pricing.problems import InvalidInputError
from router.access.identity import Grant, Identity, Role
from router.cli import console
from router.cli.approvals import require_administrator
from router.cli.console import CommandError
from router.cli.options import wall_clock
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store, own_context


def serve(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8321,
    open_access: Annotated[
        bool, typer.Option("--open-access", help="Let everybody on this machine look, without signing in.")
    ] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Show made-up data in a home of its own.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="FOLDER", help="With --demo: the home to make and leave there.")
    ] = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Show plans, jobs, quotes, prices and costs in a browser, and answer programs over HTTP.

    It prints a link, good once and for 15 minutes, that signs you in; with --demo nobody signs in, and it prints the
    address. Other addresses than loopback need the section `console` of the deploy file: who may sign in, and https.

    \b
    stepfare serve --demo
    stepfare serve
    stepfare serve --port 9000 --open-access
    stepfare serve --host 0.0.0.0 --deploy deploy.yaml

    SIGTERM or Ctrl-C ends it when the answers under way are sent, 10 s at most; a second one ends it at once. After
    SIGTERM it accepts connections for 3 s more, so that a proxy hears from /ready that it stops.

    Exit codes: 0 told to end; 1 the address is in use, or the state cannot be used; 2 others would get in without
    signing in, or not over https; 130 told to end at once.
    """
    from router.console.access import check_certificate, check_exposure, open_console
    from router.console.app import make_console
    from router.console.server import run_server
    from router.console.spend_questions import keep_costs_current
    from router.console.task_kinds import FUNCTIONS
    from router.console.webhooks import WebhookSender, open_webhooks
    from router.console.work import ProcessWorker, TaskRunner

    if demo or folder is not None:
        _check_demo(host, demo=demo, others=open_access or settings_files != DEFAULT_FILES)
        serve_demo(host, port, folder)
        return
    with open_state_store(settings_files) as (opened, store), ExitStack() as stack:
        entry = opened.deploy.console
        check_exposure(entry, host, open_access=open_access)
        check_certificate(entry)
        if entry.oidc is not None:
            # Whoever names the identity provider decides who is who.
            require_administrator(store, "serves a console with console.oidc")
        # Before a link is made and work is taken: who cannot listen leaves nothing behind.
        listener = stack.enter_context(listen(host, port))
        context = own_context(opened, store, wall_clock)
        site, link = open_console(context, entry, dict(os.environ), open_access=open_access)  # noqa: TID251

        def announce(url: str) -> None:
            if link:
                console.note(f"sign in, once and within 15 minutes, at {url}login?link={link}")
            console.note(f"listening on {url} (Ctrl-C stops it)")

        tls = None if entry.certificate is None or entry.key is None else (entry.certificate, entry.key)
        app = make_console(site)
        hooks = open_webhooks(opened.deploy.webhooks, opened.environment)
        runner = TaskRunner(store, ProcessWorker(opened), wall_clock, FUNCTIONS)
        sender = WebhookSender(store, hooks, wall_clock)

        def drain() -> None:
            runner.drain()
            sender.drain()

        with runner.running(), sender.running(), keep_costs_current(site), site.job_work.in_child():
            run_server(app, listener, announce, site.readiness, on_drain=drain, tls=tls, proxies=entry.trusted_proxies)


def _check_demo(host: str, *, demo: bool, others: bool) -> None:
    """Raise InvalidInputError for options that do not go together."""
    from router.console.access import is_loopback

    if not demo:
        raise InvalidInputError.single("is the home of a demo", field="--dir", remedy="add --demo")
    if others:
        raise InvalidInputError.single("has files and access of its own", field="--demo", remedy="leave the others out")
    if not is_loopback(host):
        raise InvalidInputError.single("is for this machine alone", field="--host", remedy="leave it out with --demo")


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on an address while the block runs. CommandError where it cannot be had."""
    from router.console.server import listening
    from router.coordinator.server import ListenError

    with ExitStack() as stack:
        try:
            opened = stack.enter_context(listening(host, port))
        except ListenError as error:
            raise CommandError(error.what, remedy=error.remedy) from None
        yield opened


def serve_demo(host: str, port: int, folder: Path | None) -> None:
    """Serve the demo until Ctrl-C; its home is ``folder``, which stays, or a new one, which goes."""
    from router.app.queries.context import QueryContext
    from router.app.state_restoration import DEMO_AT, DEMO_USER, write_demo_home
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
        with open_state_store(SettingsOptions(home / "deploy.yaml"), warns=False) as (opened, store):
            user = Identity(DEMO_USER, (Grant(Role.ADMIN),))
            context = QueryContext(opened, store, lambda: DEMO_AT, user)
            site = ConsoleSite(context, lambda _: user, AnswerCache(), banner="Demo: made-up data")

            def announce(url: str) -> None:
                console.note(f"demo home: {home}")
                console.note(f"listening on {url} (Ctrl-C stops it)")

            runner = TaskRunner(store, ProcessWorker(opened), wall_clock, FUNCTIONS)
            with runner.running(), keep_costs_current(site):
                run_server(make_console(site), listener, announce, site.readiness, on_drain=runner.drain)


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
