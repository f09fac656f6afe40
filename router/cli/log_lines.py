"""What a service says of jobs, on stderr: lines for a person, or an object a line for a program."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from router.cli import console

if TYPE_CHECKING:
    from router.controller.events import Event

HELP = "How to say what happens: text, or json: an object a line with at, level, job, attempt, event, text."
_NAME = "stepfare"
# Libraries' and our own modules' warnings, which would otherwise go unheard.
_OTHERS = ("router", "providers", "terraform")
# What is said names the attempt that it is about, if it is about one (router/controller/workspaces.py names them).
_ATTEMPT = re.compile(r"(?<![\w/.-])[a-z][a-z0-9-]*-[0-9a-f]{10}(?![\w/-])")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class LogStyle(StrEnum):
    """How a service says what happens."""

    TEXT = "text"
    JSON = "json"


class JsonLines(logging.Formatter):
    """One object a line: ``at`` (real time, UTC), ``level``, ``job``, ``attempt``, ``event``, ``text``; what is not
    known is ""."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        words = {name: str(getattr(record, name, "")) for name in ("job", "attempt", "event")}
        content = {"at": at, "level": record.levelname.lower(), **words, "text": record.getMessage()}
        if record.name != _NAME:
            content["logger"] = record.name
        return json.dumps(content, ensure_ascii=False)


class Log:
    """``tell`` takes what happens to a job, ``event`` what people are told of, ``note`` what is about no job."""

    def __init__(self, style: LogStyle, clock: Callable[[], datetime]) -> None:
        self._style, self._clock = style, clock
        self._logger = logging.getLogger(_NAME)

    def tell(self, job: str, text: str) -> None:
        """Says what happens to a job."""
        if self._style is LogStyle.TEXT:
            console.note(f"{self._clock():%H:%M:%S} {job}: {text}")
            return
        found = _ATTEMPT.search(text)
        self._logger.info("%s", text, extra={"job": job, "attempt": found[0] if found else ""})

    def event(self, event: Event) -> None:
        """Says it to a program; a person hears of the same things by :meth:`tell`."""
        if self._style is LogStyle.JSON:
            extra = {"job": event.job, "attempt": event.attempt, "event": event.what.value}
            self._logger.log(_LEVELS[event.level.value], "%s", event.text, extra=extra)

    def note(self, text: str, level: str = "info") -> None:
        """Says what is about no job; ``level``: info, warning or error."""
        if self._style is LogStyle.TEXT:
            console.note(text, "" if level == "info" else level)
        else:
            self._logger.log(_LEVELS[level], "%s", text)


@contextmanager
def logging_to(style: LogStyle, clock: Callable[[], datetime], stream: TextIO | None = None) -> Iterator[Log]:
    """A log for as long as the block runs, to ``stream`` (stderr). In JSON the warnings of this program's own modules
    are lines of it too."""
    log = Log(style, clock)
    if style is LogStyle.TEXT:
        yield log
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    loggers = [logging.getLogger(name) for name in (_NAME, *_OTHERS)]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.INFO if logger.name == _NAME else logging.WARNING)
    try:
        yield log
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
