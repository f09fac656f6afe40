"""Deallocate a machine of Azure from within: a machine there that only powers off goes on being billed.

It needs an identity of the machine with the right to deallocate; without one nothing happens, and that is said.
Source: learn.microsoft.com, "States and billing status of Azure Virtual Machines", and Virtual Machines - Deallocate.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable

from router.agent.imds import LINK_LOCAL, OK, MetadataClient, NoticeSourceError, status_error

MANAGEMENT = "https://management.azure.com"
RESOURCE = "/metadata/instance/compute/resourceId?api-version=2021-02-01&format=text"
TOKEN = f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={MANAGEMENT}/"
API_VERSION = "2024-07-01"
SECONDS = 20.0

Open = Callable[[urllib.request.Request], int]


def main(service: str = LINK_LOCAL, open_url: Open | None = None) -> int:
    """Ask Azure to deallocate this machine; return 0 once it will, 1 where it does not."""
    try:
        deallocate_machine(MetadataClient(service, seconds=SECONDS), open_url or _open)
    except (NoticeSourceError, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"stepfare: the machine is not deallocated, and billed until it is: {error}\n")
        return 1
    return 0


def deallocate_machine(metadata: MetadataClient, open_url: Open) -> None:
    """Ask for the deallocation of this machine, also one of a scale set.

    Raises NoticeSourceError, OSError, or ValueError and KeyError for an answer that is not understood.
    """
    token = json.loads(_get(metadata, TOKEN))["access_token"]
    url = f"{MANAGEMENT}{_get(metadata, RESOURCE).strip()}/deallocate?api-version={API_VERSION}"
    request = urllib.request.Request(url, b"", {"Authorization": f"Bearer {token}"}, method="POST")
    try:
        open_url(request)
    except urllib.error.HTTPError as error:
        raise NoticeSourceError(f"deallocate: HTTP {error.code}") from None


def _get(metadata: MetadataClient, path: str) -> str:
    answer = metadata.ask(path, {"Metadata": "true"})
    if answer.status != OK:
        raise status_error(path, answer)
    return answer.text


def _open(request: urllib.request.Request) -> int:
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return int(answer.status)
