"""Command ``stepfare watch``: run the supervisor and the coordinator as a service, with its log."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.completion import complete_books
from router.cli.options import chosen_clock
from router.cli.site_options import (
    DEFAULT_FILES,
    SettingsOptions,
    exit_on_second_interrupt,
    interrupt_on_sigterm,
    open_controller_session,
)
from router.prices.data_folders import history_folder
from router.state.errors import StateError

if TYPE_CHECKING:
    from router.controller.context import ControllerContext
    from router.controller.history.events import GangEvent
    from router.controller.supervise.supervisor import Supervisor

_SECONDS = 0.5
_HISTORY = "price history"  # stands in place of a job in messages


def watch(
    settings_files: SettingsOptions = DEFAULT_FILES,
    book: Annotated[
        str,
        typer.Option(
            metavar="BOOK",
            autocompletion=complete_books,
            help="Prices for replacements: latest, sandbox, embedded, FILE.",
        ),
    ] = "latest",
    log: Annotated[LogStyle, typer.Option("--log", help=HELP)] = "text",
) -> None:
    """Supervise all gangs: release each when its training ends, and replace gangs that are interrupted.

    When a machine is preempted or lost, the training saves, the best remaining place is chosen, and a new gang there
    resumes from the saved checkpoint. The command runs until it is stopped. Stopping it ends no training, and the next
    `watch` continues where it stopped.

    \b
    stepfare watch
    stepfare watch --deploy deploy.yaml
    stepfare watch --log json
    """
    from router.app.controller import interruption_queues
    from router.app.queries.approvals import approval_rules
    from router.app.queries.plan_news import find_plan_news
    from router.controller.report.cloud_notices import listen_for_notices
    from router.controller.report.notify import run_notifier
    from router.prices.books import load_book

    # A missing price book must be reported now, not when a gang is lost.
    load_book(book)
    with (
        open_service_log(log, chosen_clock()) as service_log,
        open_controller_session(settings_files, listen=True, tell=service_log.tell, warns=False) as (opened, site),
        run_notifier(
            site,
            service_log.event,
            lambda now: find_plan_news(site.store, approval_rules(opened, site.store), now),
        ),
        listen_for_notices(
            site.store, interruption_queues(opened, site.wall_clock), site.clock, site.wall_clock, site.tell
        ),
        interrupt_on_sigterm(),
    ):
        service_log.note(f"listening at {site.home.url}")
        watcher = build_supervisor(site, book)
        try:
            _reconcile(site, watcher, service_log)
        except BaseException:
            site.stop.set()
            if not watcher.idle:
                exit_on_second_interrupt(
                    "stopping: half provisioned gangs are being released; the next `watch` provisions them again"
                )
            raise
        finally:
            watcher.close()


def _reconcile(site: ControllerContext, watcher: Supervisor, service_log: Log) -> None:
    """Reconcile until the context is stopped.

    Errors of the state or the price book are reported, and the next round tries again, because a disk may get room, a
    server may return, or a price book may be replaced.
    """
    failure = ""
    while not site.stop.wait(_SECONDS):
        try:
            watcher.reconcile()
            failure = ""
        except (StateError, InvalidInputError) as error:
            if str(error) != failure:
                failure = str(error)
                service_log.note(f"trying again: {failure}", "error")


def build_supervisor(site: ControllerContext, book: str, plan: str | None = None) -> Supervisor:
    """Return the supervisor, which reads ``book`` and the price history anew whenever it needs them."""
    from router.app.quotes import HourlyWatchedPools
    from router.controller.accept.run_policies import RecordedPolicies
    from router.controller.context import apply_lock
    from router.controller.history.run_records import EarlierRuns
    from router.controller.supervise.policy_runner import Adviser
    from router.controller.supervise.replanner import Replanner
    from router.controller.supervise.supervisor import Supervisor
    from router.prices.books import CurrentBook
    from router.spot.live.selection import build_named_policy, build_policy

    observed_pools = HourlyWatchedPools(history_folder(), site.wall_clock, lambda text: site.tell(_HISTORY, text))
    hints = site.deploy.heed_hints
    policy = build_named_policy(site.deploy.policy, heeds_hints=hints, watched=observed_pools)
    recorded = RecordedPolicies(
        lambda run_policy: build_policy(run_policy, heeds_hints=hints, watched=observed_pools), site.tell
    )
    earlier = EarlierRuns(site.store, site.clock)
    replanner = Replanner(site, CurrentBook(book), policy, recorded=recorded, earlier=earlier)
    return Supervisor(site, replanner, Adviser(replanner), lambda: apply_lock(site), plan)


HELP = "Log format: text, or json with one object per line: at, level, job, attempt, event, text."
_NAME = "stepfare"
# Loggers of this program's own packages, whose warnings would otherwise be lost.
_OTHERS = ("router", "providers", "terraform")
# Messages about an attempt contain its id, as router/controller/workspace/workspaces.py builds it.
_ATTEMPT = re.compile(r"(?<![\w/.-])[a-z][a-z0-9-]*-[0-9a-f]{10}(?![\w/-])")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LogStyle = Literal["text", "json"]


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object: ``at`` (real time, UTC), ``level``, ``job``, ``attempt``, ``event``,
    ``text``.

    Unknown values are empty strings. Records of other loggers also carry ``logger``.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        words = {name: str(getattr(record, name, "")) for name in ("job", "attempt", "event")}
        content = {"at": at, "level": record.levelname.lower(), **words, "text": record.getMessage()}
        if record.name != _NAME:
            content["logger"] = record.name
        return json.dumps(content, ensure_ascii=False)


class Log:
    """Log of a service: ``tell`` for messages about a job, ``event`` for notified events, ``note`` for all else."""

    def __init__(self, style: LogStyle, clock: Callable[[], datetime]) -> None:
        self._style, self._clock = style, clock
        self._logger = logging.getLogger(_NAME)

    def tell(self, job: str, text: str) -> None:
        if self._style == "text":
            console.note(f"{self._clock():%H:%M:%S} {job}: {text}")
            return
        found = _ATTEMPT.search(text)
        self._logger.info("%s", text, extra={"job": job, "attempt": found[0] if found else ""})

    def event(self, event: GangEvent) -> None:
        """Log an event in JSON; in text :meth:`tell` reports the same things."""
        if self._style == "json":
            extra = {"job": event.job, "attempt": event.attempt, "event": event.what.value}
            self._logger.log(_LEVELS[event.level.value], "%s", event.text, extra=extra)

    def note(self, text: str, level: str = "info") -> None:
        """Log a message about no job; ``level`` is info, warning or error."""
        if self._style == "text":
            console.note(text, "" if level == "info" else level)
        else:
            self._logger.log(_LEVELS[level], "%s", text)


@contextmanager
def open_service_log(style: LogStyle, clock: Callable[[], datetime], stream: TextIO | None = None) -> Iterator[Log]:
    """Open a log to ``stream`` (stderr by default) while the block runs.

    In JSON it also carries the warnings of this program's own modules.
    """
    log = Log(style, clock)
    if style == "text":
        yield log
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    loggers = [logging.getLogger(name) for name in (_NAME, *_OTHERS)]
    previous = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.INFO if logger.name == _NAME else logging.WARNING)
    try:
        yield log
    finally:
        for logger, (level, propagate) in zip(loggers, previous, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
