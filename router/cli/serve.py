"""Command ``stepfare serve``: show plans, jobs, quotes, prices and costs in a browser, and answer programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.options import wall_clock
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, acting_user, open_state_store


def serve(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8321,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Show plans, jobs, quotes, prices and costs in a browser, and answer programs over HTTP.

    \b
    stepfare serve
    stepfare serve --port 9000
    """
    from router.access.identity import local_operator
    from router.console.answers import AnswerCache
    from router.console.app import make_console
    from router.console.server import run_server
    from router.console.site import ConsoleSite
    from router.queries.context import QueryContext

    with open_state_store(deploy, clouds) as (opened, store):
        operator = local_operator(acting_user())
        context = QueryContext(opened, store, wall_clock, operator)
        app = make_console(ConsoleSite(context, lambda _: operator, AnswerCache()))
        run_server(app, host, port, lambda url: console.note(f"listening on {url} (Ctrl-C stops it)"))
    return ExitCode.OK
