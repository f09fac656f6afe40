"""Compute Engine's metadata server: preemption and host maintenance.

Each value is read by a GET that hangs until it changes.

https://cloud.google.com/compute/docs/metadata/querying-metadata#waitforchange
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from router.agent.imds import (
    LINK_LOCAL,
    OK,
    MachineNotice,
    MetadataClient,
    NoticeSourceError,
    NoticeWatch,
    status_error,
)
from router.agent.protocol import INTERRUPTION, MAINTENANCE

FLAVOR = {"Metadata-Flavor": "Google"}
HANG_SECONDS = 60
# The server may answer a hanging GET some seconds after its time is over.
TIMEOUT, HANGING_TIMEOUT = 5.0, HANG_SECONDS + 10.0
# A server that does not hang is asked no more often than this.
MIN_POLL_SECONDS = 1.0
# Seconds from the metadata's word to the soft off of a Spot VM, as terraform/modules/gcp/machines.tf asks for (unasked,
# there are 30 to the hard off). They may have begun before an answer that did not wait.
SPOT_SECONDS = 120.0
PREEMPTED, MAINTENANCE_EVENT = "preempted", "maintenance-event"


def watches(source: str, url: str | None, every: float | None, _: Path) -> list[NoticeWatch]:
    """Return the sources of notices on a machine of this cloud."""
    service = MetadataClient(url or LINK_LOCAL, seconds=TIMEOUT)
    return [
        MetadataValueWatch(source, service, key, every or MIN_POLL_SECONDS) for key in (PREEMPTED, MAINTENANCE_EVENT)
    ]


class MetadataValueWatch:
    """One value of the instance's metadata.

    ``least``: the minimum of seconds between two requests that were answered with nothing new.
    """

    def __init__(self, source: str, service: MetadataClient, key: str, least: float) -> None:
        self.name = f"the metadata server ({key})"
        self._source, self._service, self._key, self._least = source, service, key, least
        self._path = f"/computeMetadata/v1/instance/{key}"
        self._etag, self._value, self._maintenance_count = "", "", 0

    def look(self, tell: Callable[[MachineNotice], None]) -> float:
        """Report a change of the value.

        The first request is answered at once, later ones when the value changes or after a minute.
        """
        began, hangs = time.monotonic(), bool(self._etag)
        wait = f"?wait_for_change=true&timeout_sec={HANG_SECONDS}&last_etag={quote(self._etag)}" if hangs else ""
        try:
            answer = self._service.ask(self._path + wait, FLAVOR, seconds=HANGING_TIMEOUT if hangs else None)
        except NoticeSourceError:
            # The next request must not hang: the value may change before the server answers again.
            self._etag = ""
            raise
        if answer.status != OK:
            self._etag = ""
            raise status_error(self._path, answer)
        if answer.headers.get("Metadata-Flavor") != FLAVOR["Metadata-Flavor"]:
            raise NoticeSourceError(f"{self._path}: the answer is not of the metadata server")
        value, previous = answer.text.strip(), self._value
        self._etag, self._value = str(answer.headers.get("ETag") or ""), value
        if value == previous:
            return self._least - (time.monotonic() - began)
        if self._key == PREEMPTED and value == "TRUE":
            seconds = SPOT_SECONDS if hangs else None
            tell(MachineNotice(PREEMPTED, INTERRUPTION, self._source, seconds, "the machine is preempted", answer.at))
        elif self._key == MAINTENANCE_EVENT and value not in ("", "NONE"):
            self._maintenance_count += 1
            what = f"host maintenance: {value}"
            tell(MachineNotice(f"{value}-{self._maintenance_count}", MAINTENANCE, self._source, None, what, answer.at))
        return 0.0 if self._etag else self._least
