"""A machine of Azure that deallocates itself, with its metadata service played over HTTP."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from router.agent import lease

GROUP = "/subscriptions/s/resourceGroups/stepfare-a1"
MACHINE = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/g/virtualMachines/3"


class _Metadata(BaseHTTPRequestHandler):
    has_identity = True

    def do_GET(self) -> None:
        """Answer as the instance metadata service does."""
        assert self.headers["Metadata"] == "true"
        is_token = self.path.startswith("/metadata/identity/")
        self.send_response(200 if self.has_identity or not is_token else 400)
        self.end_headers()
        answer = json.dumps({"access_token": "t0ken", "expires_in": "86399"}) if is_token else MACHINE
        self.wfile.write(answer.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def metadata() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Metadata) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_machine_of_a_scale_set_is_deallocated_by_its_own_identity(metadata: str) -> None:
    asked: list[urllib.request.Request] = []

    def open_url(request: urllib.request.Request) -> int:
        asked.append(request)
        return 202

    assert lease.deallocate(metadata, open_url) == 0
    assert [(request.full_url, request.method) for request in asked] == [
        (f"https://management.azure.com{MACHINE}/deallocate?api-version=2024-07-01", "POST")
    ]
    assert asked[0].get_header("Authorization") == "Bearer t0ken"


def test_a_machine_without_an_identity_says_that_it_is_billed_on(
    metadata: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_Metadata, "has_identity", False)
    assert lease.deallocate(metadata, lambda _: pytest.fail("nothing may be asked")) == 1
    assert (
        "not deallocated, and billed until it is: /metadata/identity/oauth2/token: HTTP 400" in capsys.readouterr().err
    )


def test_a_refused_right_shows_no_token(metadata: str, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(request: urllib.request.Request) -> int:
        raise urllib.error.HTTPError(request.full_url, 403, "Forbidden", Message(), None)

    assert lease.deallocate(metadata, refuse) == 1
    said = capsys.readouterr().err
    assert "HTTP 403" in said
    assert "t0ken" not in said
