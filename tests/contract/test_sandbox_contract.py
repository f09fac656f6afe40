"""The sandbox held to the provider contract, with the script that comes with it and with one of ours."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from providers.protocol import Provider
from providers.registry import open_provider
from providers.sandbox.script import Script
from providers.session import Settings
from router.config.document_file import read_single_document
from tests.contract.provider_contract import ProviderContract
from tests.support.repository import ROOT

EXAMPLE = ROOT / "examples" / "pool" / "sandbox.yaml"


class TestSandbox(ProviderContract):
    """The default script, and the example."""

    clouds: ClassVar[tuple[str, ...]] = ("sandbox",)

    @pytest.fixture(params=[None, EXAMPLE], ids=["default", "example"])
    def provider(self, request: pytest.FixtureRequest) -> Provider:
        path: Path | None = request.param
        document = None if path is None else read_single_document(path, Script)
        return open_provider("sandbox", self.session(Settings(document=document)))
