"""What can go wrong at the local Azure service: which call, after how many good ones, how often."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Faults that answer instead of the service, and those that change what it answers.
INSTEAD = frozenset(
    {
        "throttle", "error500", "error503", "expired_token", "forbidden", "region_off", "unregistered", "not_found",
        "drop_connection",
    }
)  # fmt: skip
# The Retail Prices API knows no accounts.
OF_ACCOUNTS = frozenset({"expired_token", "forbidden", "region_off", "unregistered", "not_found"})
BODY = frozenset({"half_page", "bad_json", "not_a_page", "astray", "circle"})
ROWS = frozenset(
    {"price_zero", "duplicate", "currency", "new_type", "future", "odd_row", "odd_rate", "two_rates", "empty"}
)
HEADERS = frozenset({"clock"})


@dataclass
class Fault:
    """One entry of the ``faults`` option."""

    match: str
    kind: str
    after: int = 0
    times: int | None = None
    retry_after: float | None = None
    seconds: float = 600.0
    met: int = 0

    def strikes(self, text: str) -> bool:
        """Counts a call; whether this one is to fail."""
        if self.match not in text:
            return False
        self.met += 1
        return self.met > self.after and (self.times is None or self.met <= self.after + self.times)


class Faults:
    """All faults of a service; thread-safe."""

    def __init__(self, options: Sequence[Mapping[str, Any]]) -> None:
        self._faults = [Fault(**option) for option in options]
        self._lock = threading.Lock()
        known = INSTEAD | BODY | ROWS | HEADERS
        for fault in self._faults:
            assert fault.kind in known, fault.kind

    def met_by(self, text: str) -> list[Fault]:
        """The faults that strike a call described by ``text``."""
        with self._lock:
            return [fault for fault in self._faults if fault.strikes(text)]


# (status, code, message) as Azure Resource Manager words them: "Troubleshoot common Azure deployment errors" and
# "Understand how Azure Resource Manager throttles requests", Microsoft Learn.
ARM_ERRORS: Mapping[str, tuple[str, str, str]] = {
    "throttle": ("429 Too Many Requests", "TooManyRequests", "The request was throttled."),
    "error500": ("500 Internal Server Error", "InternalServerError", "Encountered internal server error."),
    "error503": ("503 Service Unavailable", "ServiceUnavailable", "The service is temporarily unavailable."),
    "expired_token": (
        "401 Unauthorized",
        "ExpiredAuthenticationToken",
        "The access token expiry UTC time '11/21/2026 5:00:00 PM' is earlier than current UTC time.",
    ),
    "forbidden": (
        "403 Forbidden",
        "AuthorizationFailed",
        "The client 'someone' does not have authorization to perform action over scope '/subscriptions/...'.",
    ),
    "region_off": (
        "400 Bad Request",
        "LocationNotAvailableForResourceType",
        "The provided location is not available for resource type 'Microsoft.Compute/skus'.",
    ),
    "unregistered": (
        "409 Conflict",
        "MissingSubscriptionRegistration",
        "The subscription is not registered to use namespace 'Microsoft.Compute'.",
    ),
    "not_found": (
        "404 Not Found",
        "SubscriptionNotFound",
        "The subscription 'x' could not be found.",
    ),
}
