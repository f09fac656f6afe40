"""An account for the stand-in for AWS: credentials in the environment, and a provider that knows only that address."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

import botocore.loaders
import pytest

from pricing.book import PriceBook
from pricing.book_file import embedded_book
from providers.caller import Caller
from providers.protocol import Provider
from providers.registry import open_provider
from providers.session import Session, Settings
from tests.support.service import CALL_LIMIT_S, READ_LIMIT_S

CANARY = "canary7fWq2Zt"
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
NOW_TEXT = NOW.isoformat()
SERVICES = ("ec2", "pricing", "servicequotas", "sts", "sqs", "price_list", "spot_advisor")


@cache
def _loader(search_path_string: str | None = None) -> Any:
    """One for all sessions of a test run: reading EC2's service model takes a third of a second."""
    return botocore.loaders.create_loader(search_path_string)


def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials to be found, whoever runs the test."""
    monkeypatch.setattr("botocore.session.create_loader", _loader)
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_ENDPOINT_URL",
        "HTTP_PROXY",
        "HTTPS_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent/aws")


def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary credentials in the environment; the secret parts hold the canary."""
    nobody(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"secret-{CANARY}")
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"token-{CANARY}")


def settings(url: str, **changed: Any) -> Settings:
    """Every service at ``url``."""
    return Settings(**{"endpoints": dict.fromkeys(SERVICES, url), "read_timeout_s": READ_LIMIT_S, **changed})


def provider(
    url: str, *, book: PriceBook | None = None, limit_s: float = CALL_LIMIT_S, attempts: int = 3, **changed: Any
) -> Provider:
    """The adapter on the embedded book's words, at :data:`NOW`."""
    caller = Caller("aws", limit_s, attempts=attempts)
    return open_provider("aws", Session(settings(url, **changed), book or embedded_book(), NOW, caller))
