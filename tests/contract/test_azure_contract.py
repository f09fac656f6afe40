"""The provider contract against the local Azure service: with an account, and without one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from azure.core.credentials import AccessToken

from providers.azure.provider import AzureProvider
from providers.protocol import Provider
from providers.registry import open_provider
from providers.session import Settings
from tests.contract.provider_contract import ProviderContract
from tests.support.azure_service import SUBSCRIPTION, make_app
from tests.support.service import in_thread

REGIONS = ("eastus", "swedencentral", "westeurope")
CANARY = "canary-of-the-azure-token"


class Signed:
    """A credential whose token carries the canary."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        claims = base64.urlsafe_b64encode(json.dumps({"tid": "contoso", "appid": "robot"}).encode()).decode()
        return AccessToken(f"head.{claims.rstrip('=')}.{CANARY}", 4102444800)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with in_thread(make_app(regions=REGIONS, price_rows=300, sku_rows=60, price_page=50, sku_page=25)) as address:
        yield address


class TestAzureWithAccount(ProviderContract):
    clouds: ClassVar[tuple[str, ...]] = ("azure",)
    canary = CANARY

    @pytest.fixture
    def provider(self, url: str) -> Provider:
        settings = Settings(
            endpoints={"prices": url, "management": url}, options={"subscription": SUBSCRIPTION}, regions=REGIONS
        )
        return AzureProvider("azure", self.session(settings), Signed())


class TestAzureWithoutAccount(ProviderContract):
    clouds: ClassVar[tuple[str, ...]] = ("azure",)

    @pytest.fixture
    def provider(self, url: str) -> Provider:
        settings = Settings(endpoints={"prices": url}, regions=REGIONS)
        return open_provider("azure", self.session(settings))
