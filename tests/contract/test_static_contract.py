"""The static pool held to the provider contract, with the example's hosts."""

from __future__ import annotations

from typing import ClassVar

import pytest

from providers.protocol import Provider
from providers.registry import open_provider
from providers.session import Settings
from providers.static.pool import Pool
from router.config.document_file import read_single_document
from tests.contract.provider_contract import ProviderContract
from tests.support.repository import ROOT

EXAMPLE = ROOT / "examples" / "pool" / "pool.yaml"


class TestStatic(ProviderContract):
    """``canary``: an address, which must not leave the file."""

    clouds: ClassVar[tuple[str, ...]] = ("static",)
    canary: ClassVar[str] = "10.20.0.11"

    @pytest.fixture
    def provider(self) -> Provider:
        return open_provider("static", self.session(Settings(document=read_single_document(EXAMPLE, Pool))))

    def test_the_canary_is_there_to_be_found(self) -> None:
        assert self.canary in EXAMPLE.read_text(encoding="utf-8")
