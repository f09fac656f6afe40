"""A token never travels over plain http."""

from __future__ import annotations

import pytest

from providers.errors import ProviderError
from providers.gcp.wire import find_endpoint, is_anonymous
from providers.session import Settings


def test_googles_own_addresses_are_the_default() -> None:
    assert find_endpoint("gcp", "compute", Settings()) == "https://compute.googleapis.com"
    assert find_endpoint("gcp", "billing", Settings()) == "https://cloudbilling.googleapis.com"


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://localhost:8080/", "http://[::1]:8080"])
def test_this_machine_is_called_without_an_identity(url: str) -> None:
    found = find_endpoint("gcp", "compute", Settings(endpoints={"compute": url}))
    assert found == url.rstrip("/")
    assert is_anonymous(found)


def test_another_https_address_is_called_with_one() -> None:
    found = find_endpoint("gcp", "compute", Settings(endpoints={"compute": "https://compute.example.com"}))
    assert not is_anonymous(found)


@pytest.mark.parametrize(
    "url",
    ["http://compute.googleapis.com", "http://10.0.0.1", "http://127.0.0.1.example.com", "ftp://x", "https://", "x"],
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(ProviderError, match="must start with https://"):
        find_endpoint("gcp", "compute", Settings(endpoints={"compute": url}))
