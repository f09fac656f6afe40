"""A receiver of webhooks on loopback, as a customer would write one: it checks signatures by the public rules."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.listeners import answering


@dataclass
class Receiver:
    """The calls received: ids and contents, each with the answer that it got. ``statuses`` are the next answers."""

    url: str = ""
    secret: str = ""
    statuses: list[int] = field(default_factory=list)
    calls: list[tuple[str, int]] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    refused: int = 0

    @property
    def kinds(self) -> list[str]:
        """The types of the events that were taken, in order."""
        return [each["type"] for each in self.taken]


def is_signed(headers: Any, body: bytes, secret: str) -> bool:
    """Whether a request is signed with the secret, as Standard Webhooks prescribes."""
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha256).digest()).decode()
    return any(each == f"v1,{wanted}" for each in headers["webhook-signature"].split())


@contextmanager
def webhook_receiver(secret: str) -> Iterator[Receiver]:
    """Serve while the block runs."""
    made = Receiver(secret=secret)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status = made.statuses.pop(0) if made.statuses else 204
            made.bodies.append(body.decode())
            if not is_signed(self.headers, body, secret):
                made.refused += 1
                status = 401
            made.calls.append((str(self.headers["webhook-id"]), status))
            if status < 300:
                made.taken.append(json.loads(body))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", made.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with answering(Handler) as port:
        made.url = f"http://127.0.0.1:{port}/hook?token=private"
        yield made
