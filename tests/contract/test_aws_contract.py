"""The AWS adapter is held to the provider contract: as an account, and with the public files alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from providers.protocol import Provider
from providers.registry import open_provider
from tests.contract.provider_contract import NOW, ProviderContract
from tests.support.aws_service import make_app
from tests.support.aws_service_session import CANARY, nobody, settings, somebody
from tests.support.service import in_thread


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with in_thread(make_app(regions=2, now=NOW.isoformat(), history_rows=600, history_days=10)) as address:
        yield address


class TestAwsAccount(ProviderContract):
    clouds = ("aws",)
    canary = CANARY

    @pytest.fixture
    def provider(self, url: str, monkeypatch: pytest.MonkeyPatch) -> Provider:
        somebody(monkeypatch)
        return open_provider("aws", self.session(settings(url)))


class TestAwsPublicFiles(ProviderContract):
    clouds = ("aws",)

    @pytest.fixture
    def provider(self, url: str, monkeypatch: pytest.MonkeyPatch) -> Provider:
        nobody(monkeypatch)
        return open_provider("aws", self.session(settings(url)))
