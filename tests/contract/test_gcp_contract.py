"""The provider contract on the Google Cloud adapter, through the real SDKs against a local service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from providers.protocol import Provider
from providers.registry import open_provider
from providers.session import Settings
from tests.contract.provider_contract import NOW, ProviderContract
from tests.support.gcp_service import make_app
from tests.support.service import in_thread


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    app = make_app(regions=3, cpu_types=20, skus=1500, page_size=7, sku_page_size=400, now=NOW.isoformat())
    with in_thread(app) as base:
        yield base


class TestGcp(ProviderContract):
    clouds: ClassVar[tuple[str, ...]] = ("gcp",)

    @pytest.fixture
    def provider(self, url: str) -> Provider:
        settings = Settings(endpoints={"compute": url, "billing": url}, options={"project": "a-project"})
        return open_provider("gcp", self.session(settings))
