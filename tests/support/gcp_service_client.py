"""The Google Cloud adapter set on the stand-in of ``gcp_service.py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

from pricing.book_file import embedded_book
from providers.caller import Caller
from providers.gcp.provider import GcpProvider
from providers.registry import open_provider
from providers.session import Session, Settings
from tests.support.gcp_service import GcpService, make_app
from tests.support.gcp_service_data import PROJECT
from tests.support.service import CALL_LIMIT_S, READ_LIMIT_S, in_thread

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
SMALL: dict[str, Any] = {"regions": ["us-central1"], "cpu_types": 5, "skus": 300}


def session_at(url: str, *, attempts: int = 3, read_timeout_s: float = READ_LIMIT_S, **settings: Any) -> Session:
    """A session whose two endpoints are ``url``."""
    merged: dict[str, Any] = {
        "endpoints": {"compute": url, "billing": url},
        "options": {"project": PROJECT},
        "read_timeout_s": read_timeout_s,
        **settings,
    }
    return Session(Settings(**merged), embedded_book(), NOW, Caller("gcp", CALL_LIMIT_S, attempts=attempts))


def provider_at(url: str, **settings: Any) -> GcpProvider:
    return cast(GcpProvider, open_provider("gcp", session_at(url, **settings)))


@contextmanager
def serving(*faults: dict[str, Any], attempts: int = 3, **options: Any) -> Iterator[tuple[GcpProvider, GcpService]]:
    """A provider on a small service with these faults."""
    app = cast(GcpService, make_app(**{**SMALL, "faults": list(faults), **options}))
    with in_thread(app) as url:
        yield provider_at(url, attempts=attempts), app
