"""Notices that a machine receives about its end or health, and requests to the metadata services that report them."""

from __future__ import annotations

import calendar
import http.client
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from email.utils import mktime_tz, parsedate_tz
from typing import Protocol
from urllib.parse import urlsplit


@dataclass(frozen=True)
class MachineNotice:
    """A notice to this machine.

    ``id`` belongs to the announcement itself, whoever reads it and however often; ``kind`` is a word of
    :mod:`router.agent.protocol`. ``seconds``: how long was left ``at`` this moment of the monotonic clock; None: not
    known. ``waits``: whether the cloud waits, at most that long, for this machine alone to let the event begin.
    """

    id: str
    kind: str
    source: str
    seconds: float | None
    what: str
    at: float = field(default_factory=time.monotonic)
    waits: bool = False

    def left(self) -> float | None:
        """Return the seconds left now, at least 0."""
        return None if self.seconds is None else max(0.0, self.seconds - (time.monotonic() - self.at))


class NoticeWatch(Protocol):
    """A source of notices that one thread reads repeatedly."""

    name: str

    def look(self, tell: Callable[[MachineNotice], None]) -> float:
        """Call ``tell`` with each current notice and return the seconds until the next call.

        Notices that were reported before are reported again. May raise anything; the source is then read again later.
        """


LINK_LOCAL = "http://169.254.169.254"
LARGEST_ANSWER = 65536
OK, UNAUTHORIZED, MISSING = 200, 401, 404
# The Date of an answer is cut to whole seconds, so this much less time may remain than it implies.
CUT = 1.0


class NoticeSourceError(Exception):
    """The service did not answer, or its answer cannot be used; it may be asked again later."""


@dataclass(frozen=True)
class MetadataAnswer:
    """An answer of the service. ``at``: seconds of this machine's monotonic clock when it came."""

    status: int
    headers: Message
    text: str
    at: float

    def left(self, moment: object) -> float | None:
        """Return the seconds from this answer until ``moment`` by the service's own clock, at least 0.

        None where either time is not known. The result is never more than the time that remains.
        """
        then, now = parse_timestamp(moment), parse_timestamp(self.headers.get("Date"))
        return None if then is None or now is None else max(0.0, then - now - CUT)


class MetadataClient:
    """A metadata service at a base URL. Safe to use from several threads."""

    def __init__(self, url: str, *, seconds: float) -> None:
        self._url, self._seconds = urlsplit(url), seconds

    def get(self, path: str, headers: Mapping[str, str], *, seconds: float | None = None) -> MetadataAnswer:
        """Return the answer of a GET. Raises :class:`NoticeSourceError`, also for another status than 200."""
        answer = self.ask(path, headers, seconds=seconds)
        if answer.status != OK:
            raise status_error(path, answer)
        return answer

    def ask(
        self,
        path: str,
        headers: Mapping[str, str],
        *,
        method: str = "GET",
        body: bytes | None = None,
        seconds: float | None = None,
    ) -> MetadataAnswer:
        """Send one request; any status is an answer. Raises :class:`NoticeSourceError`."""
        connection = http.client.HTTPConnection(
            self._url.hostname or "", self._url.port, timeout=self._seconds if seconds is None else seconds
        )
        try:
            connection.request(method, self._url.path.rstrip("/") + path, body, {**headers, "Connection": "close"})
            answer = connection.getresponse()
            text = answer.read(LARGEST_ANSWER).decode("utf-8", "replace")
            return MetadataAnswer(answer.status, answer.headers, text, time.monotonic())
        except (OSError, http.client.HTTPException) as error:
            raise NoticeSourceError(f"{path.partition('?')[0]}: {type(error).__name__}: {error}") from None
        finally:
            connection.close()


def parse_timestamp(moment: object) -> float | None:
    """Return a time in seconds since 1970; None if it cannot be read.

    Accepts ``2026-11-21T18:00:00Z``, ``Sat, 21 Nov 2026 18:00:00 GMT`` and ``21 Nov 2026 18:00:00 GMT``.
    """
    if not isinstance(moment, str):
        return None
    iso = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:Z|\+00:00)", moment.strip())
    try:
        if iso:
            return float(calendar.timegm((*(int(part) for part in iso.groups()), 0, 0, 0)))
        parsed = parsedate_tz(moment)
        return float(mktime_tz(parsed)) if parsed else None
    except (ValueError, OverflowError):
        return None


def status_error(path: str, answer: MetadataAnswer) -> NoticeSourceError:
    """Return the exception for a status that does not answer the request."""
    return NoticeSourceError(f"{path.partition('?')[0]}: HTTP {answer.status}")
