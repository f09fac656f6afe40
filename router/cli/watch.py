"""``stepfare watch``: the coordinator as a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.site_options import (
    CLOUDS_HELP,
    DEPLOY_HELP,
    leave_when_asked_again,
    opened_site,
    terminated_as_interrupted,
)

if TYPE_CHECKING:
    from router.running.site import Site
    from router.running.watching import Watcher

_SECONDS = 0.5


def watch(
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    book: Annotated[
        str, typer.Option(metavar="BOOK", help="Prices for new places: latest, embedded, FILE.")
    ] = "latest",
) -> ExitCode:
    """Look after all gangs: release each when its training ends; when a cloud takes a machine back or one is lost, have
    the training save, find the best place that is left, make the gang there and go on from what was saved. Runs until
    it is stopped; stopping it ends no training, and the next one goes on where it was.

    \b
    stepfare watch
    stepfare watch --deploy deploy.yaml
    """
    from router.state.errors import StateError

    with opened_site(deploy, clouds, listen=True) as (_, site), terminated_as_interrupted():
        console.note(f"listening at {site.home.url}")
        watcher = watcher_of(site, book)
        trouble = ""
        try:
            while not site.stop.wait(_SECONDS):
                try:
                    watcher.look()
                    trouble = ""
                except StateError as error:
                    # A disk may have room again, a server come back: nothing is lost by looking again.
                    if str(error) != trouble:
                        trouble = str(error)
                        console.note(f"the state cannot be used: {trouble}", "error")
        except BaseException:
            site.stop.set()
            if not watcher.idle:
                leave_when_asked_again("stopping: what is half made is being released, and made by the next `watch`")
            raise
        finally:
            watcher.close()
    return ExitCode.OK


def watcher_of(site: Site, book: str, plan: str | None = None) -> Watcher:
    """What looks after gangs, at the prices of ``book`` as they are when they are needed."""
    from router.prices.books import CurrentBook
    from router.running.advising import Adviser
    from router.running.recovering import Replanner
    from router.running.watching import Watcher
    from router.running.work import one_at_a_time

    replanner = Replanner(site, CurrentBook(book))
    return Watcher(site, replanner, Adviser(replanner), lambda: one_at_a_time(site), plan)
