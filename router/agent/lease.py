"""The lease of a machine: it lasts while the coordinator answers, and ends the machine some time after that.

A machine whose coordinator is gone for good, because a laptop was closed or its service lost its disk, must not go on
costing money. A run that is late but still answered is never ended.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from router.agent.guard import run_quietly
from router.agent.imds import LINK_LOCAL, MetadataClient, NoticeSourceError
from router.agent.protocol import END_SERVICE, LIFETIME_TIMER

# systemd ends the machine if the agent cannot: its timer begins anew while the lease lasts, this often in seconds.
REARM_SECONDS = 600.0
POWER_OFF = ["systemctl", "start", "--no-block", END_SERVICE]


class MachineLease:
    """The lease of one machine. Any thread may call :meth:`renew`.

    ``unheard``: seconds without an answer after which it may end, None: never. ``lifetime``: seconds that the training
    may take at least, however long nobody answers. ``ticks`` counts seconds.
    """

    def __init__(
        self, unheard: float | None, lifetime: float | None, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._unheard, self._lifetime, self._ticks = unheard, lifetime, ticks
        self._began = self._renewed = ticks()
        self._ended: float | None = None

    def renew(self) -> None:
        """Note that the coordinator answered."""
        self._renewed = self._ticks()

    def end_training(self) -> None:
        """Note that the training is over: from now on only the lease keeps the machine."""
        self._ended = self._ticks()

    @property
    def may_end(self) -> bool:
        """Return whether the machine ends by itself at all."""
        return self._unheard is not None

    @property
    def is_held(self) -> bool:
        """Return whether the coordinator answered lately."""
        return self._unheard is None or self._ticks() - self._renewed <= self._unheard

    @property
    def why_over(self) -> str:
        """Return why the machine is to end, "" while it is not."""
        if self._unheard is None:
            return ""
        now = self._ticks()
        since = self._renewed if self._ended is None else max(self._renewed, self._ended)
        if now - since <= self._unheard:
            return ""
        silence = f"no coordinator answered for {(now - self._renewed) / 60:.0f} min"
        if self._ended is not None:
            return f"{silence} after the training"
        if self._lifetime is None or now - self._began <= self._lifetime:
            return ""
        return f"{silence}, and the machine is up for {(now - self._began) / 60:.0f} min"


class LifetimeTimer:
    """The timer of systemd that ends a machine of a cloud whatever becomes of its agent; used by one thread."""

    def __init__(
        self,
        ticks: Callable[[], float] = time.monotonic,
        run: Callable[[list[str]], None] = run_quietly,
    ) -> None:
        self._ticks, self._run = ticks, run
        self._rearmed = ticks()

    def rearm(self) -> None:
        """Let the timer begin anew, unless it did a moment ago."""
        if self._ticks() - self._rearmed >= REARM_SECONDS:
            self._rearmed = self._ticks()
            self._run(["systemctl", "restart", LIFETIME_TIMER])

    def power_off(self) -> None:
        self._run(POWER_OFF)


MANAGEMENT = "https://management.azure.com"
RESOURCE = "/metadata/instance/compute/resourceId?api-version=2021-02-01&format=text"
TOKEN = f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={MANAGEMENT}/"
API_VERSION = "2024-07-01"
HEADERS = {"Metadata": "true"}
SECONDS = 20.0

Open = Callable[[urllib.request.Request], int]


def deallocate(service: str = LINK_LOCAL, open_url: Open | None = None) -> int:
    """Ask Azure to deallocate this machine; return 0 once it will, 1 where it does not."""
    try:
        deallocate_machine(MetadataClient(service, seconds=SECONDS), open_url or _open)
    except (NoticeSourceError, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"stepfare: the machine is not deallocated, and billed until it is: {error}\n")
        return 1
    return 0


def deallocate_machine(metadata: MetadataClient, open_url: Open) -> None:
    """Ask for the deallocation of this machine, also one of a scale set: switched off alone it is billed on.

    Its identity needs the right to that. Source: learn.microsoft.com, "States and billing status of Azure Virtual
    Machines", and Virtual Machines - Deallocate.

    Raises NoticeSourceError, OSError, or ValueError and KeyError for an answer that is not understood.
    """
    token = json.loads(metadata.get(TOKEN, HEADERS).text)["access_token"]
    url = f"{MANAGEMENT}{metadata.get(RESOURCE, HEADERS).text.strip()}/deallocate?api-version={API_VERSION}"
    request = urllib.request.Request(url, b"", {"Authorization": f"Bearer {token}"}, method="POST")
    try:
        open_url(request)
    except urllib.error.HTTPError as error:
        raise NoticeSourceError(f"deallocate: HTTP {error.code}") from None


def _open(request: urllib.request.Request) -> int:
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return int(answer.status)
