"""Questions to a cloud's metadata service: plain http to a link-local address, no proxies, no redirects followed."""

from __future__ import annotations

import calendar
import http.client
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import mktime_tz, parsedate_tz
from urllib.parse import urlsplit

LINK_LOCAL = "http://169.254.169.254"
LARGEST_ANSWER = 65536
OK, UNAUTHORIZED, MISSING = 200, 401, 404
# The Date of an answer is cut to whole seconds: so much less may be left than it says.
CUT = 1.0


class Trouble(Exception):  # noqa: N818  (a state of the other side)
    """The service did not answer, or with nothing that can be used; look again later."""


@dataclass(frozen=True)
class Answer:
    """``at``: seconds of this machine's monotonic clock when it came."""

    status: int
    headers: Message
    text: str
    at: float

    def left(self, moment: object) -> float | None:
        """Seconds from this answer until ``moment``, at least 0, by the service's own clock; None where either is not
        known. Never more than there are."""
        then, now = seconds_of(moment), seconds_of(self.headers.get("Date"))
        return None if then is None or now is None else max(0.0, then - now - CUT)


class Service:
    """A metadata service at a base URL. Safe to use from several threads."""

    def __init__(self, url: str, *, seconds: float) -> None:
        self._url, self._seconds = urlsplit(url), seconds

    def ask(
        self,
        path: str,
        headers: Mapping[str, str],
        *,
        method: str = "GET",
        body: bytes | None = None,
        seconds: float | None = None,
    ) -> Answer:
        """One question; any status is an answer. Raises :class:`Trouble`."""
        connection = http.client.HTTPConnection(
            self._url.hostname or "", self._url.port, timeout=self._seconds if seconds is None else seconds
        )
        try:
            connection.request(method, self._url.path.rstrip("/") + path, body, {**headers, "Connection": "close"})
            answer = connection.getresponse()
            text = answer.read(LARGEST_ANSWER).decode("utf-8", "replace")
            return Answer(answer.status, answer.headers, text, time.monotonic())
        except (OSError, http.client.HTTPException) as error:
            raise Trouble(f"{path.partition('?')[0]}: {type(error).__name__}: {error}") from None
        finally:
            connection.close()


def seconds_of(moment: object) -> float | None:
    """``2026-11-21T18:00:00Z``, ``Sat, 21 Nov 2026 18:00:00 GMT`` or ``21 Nov 2026 18:00:00 GMT`` in seconds since
    1970; None for anything else."""
    if not isinstance(moment, str):
        return None
    iso = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:Z|\+00:00)", moment.strip())
    try:
        if iso:
            return float(calendar.timegm((*(int(part) for part in iso.groups()), 0, 0, 0)))
        found = parsedate_tz(moment)
        return float(mktime_tz(found)) if found else None
    except (ValueError, OverflowError):
        return None


def unexpected(path: str, answer: Answer) -> Trouble:
    """For a status that is no answer to the question."""
    return Trouble(f"{path.partition('?')[0]}: HTTP {answer.status}")
