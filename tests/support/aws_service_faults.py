"""Faults of the stand-in for AWS: which call is met by which, and what is answered then.

A fault is {"match": substring of "Action region" or of a path, "kind", "after": calls served well first, "times":
how many then (default all)} and, by kind: throttle ("retry_after" seconds), error500, expired_token, forbidden,
region_off, refused ("code", "status"), half_page, bad_json, drop_connection, and changes to what is answered:
price_zero, duplicate, currency, undated (no Last-Modified), clock ("offset_s"), new_type (for good, in the regions
that match).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.service import Fault, Faults

CHANGES = frozenset({"price_zero", "duplicate", "currency"})
_EC2 = {
    "throttle": (503, "RequestLimitExceeded"),
    "error500": (500, "InternalError"),
    "expired_token": (400, "RequestExpired"),
    "forbidden": (403, "UnauthorizedOperation"),
    "region_off": (403, "OptInRequired"),
}
_JSON = {
    "throttle": (400, "ThrottlingException"),
    "error500": (500, "InternalServerError"),
    "expired_token": (400, "ExpiredTokenException"),
    "forbidden": (400, "AccessDeniedException"),
    "region_off": (400, "OptInRequired"),
}


@dataclass(frozen=True)
class Answer:
    """What goes back: ``promised`` is the Content-Length, when it is not that of the body."""

    body: bytes
    content_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    promised: int | None = None


class AwsFaults(Faults):
    """Counts calls by their action, and knows which types came out today."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__([fault for fault in faults if fault["kind"] != "new_type"])
        self._news = [str(fault.get("match", "")) for fault in faults if fault["kind"] == "new_type"]
        self._calls: Counter[str] = Counter()

    def with_new_types(self, regions: Sequence[str]) -> frozenset[str]:
        return frozenset(region for region in regions if any(match in region for match in self._news))

    def meet(self, action: str, place: str) -> list[Fault]:
        """Count the call; return the faults that it meets."""
        with self._lock:
            self._calls[action] += 1
        return self.met_by(f"{action} {place}")

    @property
    def calls(self) -> Mapping[str, int]:
        with self._lock:
            return dict(sorted(self._calls.items()))


def refusal(fault: Fault, service: str, echoed: str) -> Answer | None:
    """The error answer of a fault; None when it is not one that refuses. ``echoed`` stands in the message, as
    services do repeat what they were sent."""
    table = _EC2 if service in ("ec2", "sts") else _JSON
    status, code = table.get(fault["kind"], (400, ""))
    if fault["kind"] == "refused":
        status, code = int(fault.get("status", 400)), str(fault["code"])
    if not code:
        return None
    if service == "files" and fault["kind"] == "throttle":
        status = 503
    headers = {"Retry-After": str(fault["retry_after"])} if "retry_after" in fault else {}
    return error(service, status, code, f"You sent {echoed}.", headers)


def error(service: str, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """As each protocol words it: EC2's XML, the query protocol's XML, or JSON 1.1."""
    if service == "ec2":
        body = f"<Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
        xml = f'<?xml version="1.0" encoding="UTF-8"?>\n<Response>{body}<RequestID>0</RequestID></Response>'
        return Answer(xml.encode(), "text/xml;charset=UTF-8", status, headers or {})
    if service == "sts":
        body = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
        xml = f'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{body}<RequestId>0</RequestId>'
        return Answer(f"{xml}</ErrorResponse>".encode(), "text/xml", status, headers or {})
    text = json.dumps({"__type": code, "message": message})
    return Answer(text.encode(), "application/x-amz-json-1.1", status, headers or {})


def spoil(fault: Fault, answer: Answer) -> Answer:
    """The answer as it arrives under a fault of transport."""
    if fault["kind"] == "half_page":
        return Answer(answer.body[: len(answer.body) // 2], answer.content_type)
    if fault["kind"] == "undated":
        return Answer(answer.body, answer.content_type)
    if fault["kind"] == "bad_json":
        return Answer(b'{"not": "what was asked', answer.content_type)
    if fault["kind"] == "drop_connection":
        return Answer(answer.body[: len(answer.body) // 2], answer.content_type, promised=len(answer.body))
    return answer
