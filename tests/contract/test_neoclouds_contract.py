"""The small clouds held to the provider contract, at a local service that speaks their catalogues' layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from providers.neoclouds.clouds import load_catalogue_entries
from providers.protocol import Provider
from providers.registry import CLOUDS, open_provider, open_public_provider
from providers.session import Settings
from tests.contract.provider_contract import ProviderContract
from tests.support.neocloud_service import make_app
from tests.support.service import in_thread


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with in_thread(make_app()) as url:
        yield url


class TestNeoclouds(ProviderContract):
    """All of them, one after another."""

    clouds: ClassVar[tuple[str, ...]] = ("gcp", "lambda", "nebius", "runpod", "vast", "verda")

    @pytest.fixture(params=clouds)
    def provider(self, request: pytest.FixtureRequest, address: str) -> Provider:
        endpoints = {"catalogue": f"{address}/v3", "market": f"{address}/api/v0/bundles/"}
        session = self.session(Settings(endpoints=endpoints))
        return open_public_provider(request.param, session) or open_provider(request.param, session)


def test_every_cloud_of_the_catalogue_is_in_the_registry_and_covered() -> None:
    served = {cloud for cloud, e in CLOUDS.items() if "providers.neoclouds." in e.factory + e.public}
    assert set(load_catalogue_entries()) == served == set(TestNeoclouds.clouds)
