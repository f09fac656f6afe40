"""Log of a service on stderr: lines for people, or one JSON object per line for programs."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TextIO

from router.cli import console

if TYPE_CHECKING:
    from router.controller.history.events import GangEvent

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
        """Log a message about a job."""
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
