"""What a cloud does when it does not do what it is told, ordered by the file that STEPFARE_STANDIN_FAULTS names.

    {"refuse": [{"call": "RunInstances", "code": "InsufficientInstanceCapacity", "region": "us-east-2", "after": 2,
                 "times": 3}],
     "pending": ["2"]}

``refuse``: calls of that name to that region (any) are answered with that error once ``after`` of them (0) have come
through, ``times`` times (for ever). The answer takes the way of a real one, so that the SDK does what it does about it:
tries again where it is throttled. ``pending``: machines of these ranks never get as far as ``running``.

Every call that was made is a line in the file FILE.calls: its name, and the error that it was answered with.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

STATUS = {
    "InsufficientInstanceCapacity": 500,
    "RequestLimitExceeded": 503,
    "VcpuLimitExceeded": 400,
    "UnauthorizedOperation": 403,
    "AuthFailure": 401,
}
# As EC2 puts it.
WORDS = {
    "InsufficientInstanceCapacity": "We currently do not have sufficient p5.48xlarge capacity in the Availability "
    "Zone you requested (us-east-1a). Our system will be working on provisioning additional capacity.",
    "RequestLimitExceeded": "Request limit exceeded.",
    "VcpuLimitExceeded": "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the "
    "instance bucket that the specified instance type belongs to. Please visit "
    "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
    "UnauthorizedOperation": "You are not authorized to perform this operation.",
    "AuthFailure": "AWS was not able to validate the provided access credentials",
}


class Body:
    """The body of an answer, as botocore reads one."""

    def __init__(self, text: str) -> None:
        self.text = text

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self.text.encode()


class Faults:
    """The orders of one file; without a file everything works."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        orders: dict[str, Any] = json.loads(Path(file).read_text()) if file else {}
        self.refuse: list[dict[str, Any]] = orders.get("refuse", [])
        self.pending: list[str] = orders.get("pending", [])

    @classmethod
    def ordered(cls) -> Faults:
        return cls(os.environ.get("STEPFARE_STANDIN_FAULTS"))

    def watch(self, client: Any) -> Any:
        """The client, its calls answered as ordered."""
        if self.file:
            client.meta.events.register("before-send.*", self.answer)
        return client

    def answer(self, request: Any, event_name: str, **_: object) -> AWSResponse | None:
        """An error in the place of the service's answer; None lets the call through."""
        call = event_name.rpartition(".")[2]
        with Path(f"{self.file}.calls").open("a+", encoding="utf-8") as journal:
            # Calls come from several threads, and one command after another.
            fcntl.flock(journal, fcntl.LOCK_EX)
            journal.seek(0)
            earlier = [line.split() for line in journal if line.split()[0] == call]
            code = self._code(call, _region(request), earlier)
            journal.write(f"{call} {code or '-'}\n")
        if code is None:
            return None
        error = f"<Error><Code>{code}</Code><Message>{WORDS[code]}</Message></Error>"
        text = f"<Response><Errors>{error}</Errors><RequestID>5a1f0c3e-stand-in</RequestID></Response>"
        return AWSResponse(request.url, STATUS[code], HTTPHeaders.from_dict({"Content-Type": "text/xml"}), Body(text))

    def _code(self, call: str, region: str, earlier: list[list[str]]) -> str | None:
        for rule in self.refuse:
            if rule["call"] != call or rule.get("region", region) != region:
                continue
            if sum(line[1] == "-" for line in earlier) < rule.get("after", 0):
                continue
            if sum(line[1] == rule["code"] for line in earlier) < rule.get("times", float("inf")):
                return str(rule["code"])
        return None


def _region(request: Any) -> str:
    """The region that a request was signed for: the address is the same for all of them here."""
    signed = request.headers.get("Authorization", b"")
    words = (signed.decode() if isinstance(signed, bytes) else str(signed)).partition("Credential=")[2].split("/")
    return words[2] if len(words) > 2 else ""
