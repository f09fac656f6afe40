"""Loopback services that messages are sent to: a webhook, and a mail server that speaks as much SMTP as is needed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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


@dataclass
class Webhook:
    """What came. ``statuses``: what the next calls are answered with; 200 when there is nothing left."""

    url: str = ""
    came: list[dict[str, Any]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Answer HTTP requests on loopback while the block runs; the value is the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Serves while the block runs."""
    made = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status = made.statuses.pop(0) if made.statuses else 200
            if status == 200:
                made.came.append(json.loads(body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with answering(Handler) as port:
        made.url = f"json://127.0.0.1:{port}/hook"
        yield made


@dataclass
class Mailbox:
    port: int = 0
    came: list[Message] = field(default_factory=list)


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    """Serves while the block runs."""
    made = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 test")
            while line := self.rfile.readline():
                word = line.split()[0].upper() if line.split() else b""
                if word == b"DATA":
                    self._say("354 go on")
                    made.came.append(message_from_bytes(b"".join(self._lines()), policy=default))
                self._say("221 bye" if word == b"QUIT" else "250 fine")
                if word == b"QUIT":
                    return

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def _lines(self) -> Iterator[bytes]:
            for line in self.rfile:
                if line.rstrip() == b".":
                    return
                yield line.removeprefix(b".") if line.startswith(b"..") else line

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
