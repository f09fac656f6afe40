"""``stepfare watch``: the coordinator as a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli.clock import chosen_clock
from router.cli.console import ExitCode
from router.cli.log_lines import HELP, Log, LogStyle, logging_to
from router.cli.site_options import (
    CLOUDS_HELP,
    DEPLOY_HELP,
    leave_when_asked_again,
    opened_site,
    terminated_as_interrupted,
)

if TYPE_CHECKING:
    from router.controller.context import Site
    from router.controller.supervisor import Watcher

_SECONDS = 0.5
_HISTORY = "price history"  # said in the place of a job


def watch(
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    book: Annotated[
        str, typer.Option(metavar="BOOK", help="Prices for new places: latest, sandbox, embedded, FILE.")
    ] = "latest",
    log: Annotated[LogStyle, typer.Option("--log", help=HELP)] = LogStyle.TEXT,
) -> ExitCode:
    """Look after all gangs: release each when its training ends; when a cloud takes a machine back or one is lost, have
    the training save, find the best place that is left, make the gang there and go on from what was saved. Runs until
    it is stopped; stopping it ends no training, and the next one goes on where it was.

    \b
    stepfare watch
    stepfare watch --deploy deploy.yaml
    stepfare watch --log json
    """
    from router.app.controller import interruption_queues
    from router.controller.cloud_notices import announced
    from router.controller.notify import notifying
    from router.prices.books import load_book

    # A book that there is not is said now, not when a gang is lost.
    load_book(book)
    with (
        logging_to(log, chosen_clock()) as said,
        opened_site(deploy, clouds, listen=True, tell=said.tell) as (opened, site),
        notifying(site, said.event),
        announced(site.store, interruption_queues(opened, site.wall_clock), site.clock, site.wall_clock, site.tell),
        terminated_as_interrupted(),
    ):
        said.note(f"listening at {site.home.url}")
        watcher = watcher_of(site, book)
        try:
            _look(site, watcher, said)
        except BaseException:
            site.stop.set()
            if not watcher.idle:
                leave_when_asked_again("stopping: what is half made is being released, and made by the next `watch`")
            raise
        finally:
            watcher.close()
    return ExitCode.OK


def _look(site: Site, watcher: Watcher, said: Log) -> None:
    """Until the site is stopped. A disk may have room again, a server come back, a price book be replaced: nothing is
    lost by looking again."""
    from router.state.errors import StateError

    trouble = ""
    while not site.stop.wait(_SECONDS):
        try:
            watcher.look()
            trouble = ""
        except (StateError, InvalidInputError) as error:
            if str(error) != trouble:
                trouble = str(error)
                said.note(f"looking again: {trouble}", "error")


def watcher_of(site: Site, book: str, plan: str | None = None) -> Watcher:
    """What looks after gangs, at the prices of ``book`` and by the price history as they are when they are needed."""
    from router.app.quotes import PoolsOfNow
    from router.controller.policy_runner import Adviser
    from router.controller.replanner import Replanner
    from router.controller.run_policies import RecordedPolicies
    from router.controller.supervisor import Watcher
    from router.controller.worker_pool import one_at_a_time
    from router.prices.books import CurrentBook
    from router.prices.home import history_folder
    from router.spot.live.selection import policy_named, policy_of

    watched = PoolsOfNow(history_folder(), site.wall_clock, lambda text: site.tell(_HISTORY, text))
    hints = site.deploy.heed_hints
    policy = policy_named(site.deploy.policy, heeds_hints=hints, watched=watched)
    recorded = RecordedPolicies(lambda one: policy_of(one, heeds_hints=hints, watched=watched), site.tell)
    replanner = Replanner(site, CurrentBook(book), policy, recorded=recorded)
    return Watcher(site, replanner, Adviser(replanner), lambda: one_at_a_time(site), plan)
