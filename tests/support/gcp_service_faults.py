"""What can go wrong at the stand-in for Google Cloud, worded as the real services word it.

Compute Engine answers ``error.errors[].reason``; the billing catalogue google.rpc ``status`` and ``details``
(https://cloud.google.com/apis/design/errors). Both forms are in every answer here, as Compute Engine's newer ones.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn
from wsgiref.types import StartResponse, WSGIEnvironment

from werkzeug.wrappers import Request, Response

# kind: HTTP status, errors[].reason, status, details[].reason, message
ANSWERS = {
    "throttle": (429, "rateLimitExceeded", "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", "Rate Limit Exceeded"),
    "error500": (503, "backendError", "UNAVAILABLE", "", "Backend Error"),
    "expired_token": (401, "authError", "UNAUTHENTICATED", "", "Invalid Credentials"),
    "forbidden": (403, "forbidden", "PERMISSION_DENIED", "IAM_PERMISSION_DENIED", "Required permission is missing"),
    "api_off": (403, "accessNotConfigured", "PERMISSION_DENIED", "SERVICE_DISABLED", "API has not been used"),
    "region_off": (
        403,
        "forbidden",
        "PERMISSION_DENIED",
        "",
        "Permission denied on 'locations/x' (or it may not exist).",
    ),
    "invalid": (400, "invalid", "INVALID_ARGUMENT", "", "Invalid value for field 'machineType'"),
    "not_found": (404, "notFound", "NOT_FOUND", "", "Machine type is not found"),
}


@dataclass
class Fault:
    """One fault: which calls it meets, after how many, how often (None: always)."""

    match: str
    kind: str
    after: int = 0
    times: int | None = None
    retry_after: float | None = None
    clock_s: float = 0.0
    met: int = field(default=0, init=False)

    @classmethod
    def of(cls, row: dict[str, Any]) -> Fault:
        clock = float(row.get("seconds", 600)) if row["kind"] == "clock" else 0.0
        return cls(row["match"], row["kind"], row.get("after", 0), row.get("times"), row.get("retry_after"), clock)

    def answer(self, request: Request) -> Response | None:
        """An error answer, or None where the right one is spoilt instead."""
        if self.kind not in ANSWERS:
            return None
        status, reason, word, detail, message = ANSWERS[self.kind]
        error: dict[str, Any] = {
            "code": status,
            "message": message,
            "errors": [{"message": message, "domain": "global", "reason": reason}],
            "status": word,
        }
        if detail:
            kind = "type.googleapis.com/google.rpc.ErrorInfo"
            error["details"] = [{"@type": kind, "reason": detail, "domain": "googleapis.com"}]
        response = Response(json.dumps({"error": error}), status, mimetype="application/json")
        if self.retry_after is not None:
            response.headers["Retry-After"] = f"{self.retry_after:g}"
        return response

    def spoil(self, response: Response, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if self.kind == "bad_json":
            body = response.get_data()
            response.set_data(body[: len(body) // 2] + b'"}}')
        elif self.kind == "half_page":
            return _cut(response, environ, start_response)
        elif self.kind == "drop_connection":
            _hang_up(environ)
        return response(environ, start_response)


class Faults:
    """Counts, for every fault, the calls that it matches."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults
        self._lock = threading.Lock()

    def hit(self, call: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.match in call:
                    fault.met += 1
                    if fault.after < fault.met <= fault.after + (fault.times if fault.times is not None else 10**9):
                        return fault
        return None


def _cut(response: Response, environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
    """Promises the whole body, sends half of it and hangs up."""
    body = response.get_data()
    response.headers["Content-Length"] = str(len(body))
    start_response(response.status, list(response.headers))
    yield body[: len(body) // 2]
    _hang_up(environ)


def _hang_up(environ: WSGIEnvironment) -> NoReturn:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError  # which the server takes for a client that went away
