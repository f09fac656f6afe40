"""``stepfare watch``: the coordinator as a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_site, terminated_as_interrupted

_SECONDS = 0.5


def watch(
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Listen to the machines of all gangs, and release each gang when its training ends or a machine is lost. Runs
    until it is stopped; stopping it ends no training.

    \b
    stepfare watch
    stepfare watch --deploy deploy.yaml
    """
    from router.running.applying import one_at_a_time
    from router.running.deploying import is_interrupted
    from router.running.following import Silence, pass_over

    with opened_site(deploy, clouds, listen=True) as (_, site), terminated_as_interrupted():
        console.note(f"listening at {site.home.url}")
        silence = Silence(site.deploy.patience.lost.total_seconds())
        while not site.stop.wait(_SECONDS):
            alive = [a for a in site.store.attempts(alive=True) if not is_interrupted(a)]
            pass_over(site, alive, silence, lambda: one_at_a_time(site, patient=True))
    return ExitCode.OK
