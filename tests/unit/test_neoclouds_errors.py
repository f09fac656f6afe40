"""HTTP answers as our errors."""

from __future__ import annotations

import pytest

from providers.errors import (
    CredentialsError,
    NotForSaleError,
    NotReachedError,
    PermissionDeniedError,
    ProviderError,
    RetryableError,
    ThrottledError,
    TransientError,
)
from providers.neoclouds.errors import connection_error, status_error


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ProviderError),
        (401, CredentialsError),
        (403, PermissionDeniedError),
        (404, NotForSaleError),
        (429, ThrottledError),
        (500, TransientError),
        (503, ThrottledError),
        (599, TransientError),
    ],
)
def test_a_status_is_one_error(status: int, kind: type[ProviderError]) -> None:
    error = status_error("c", status, "catalogue", 3.0)
    assert type(error) is kind
    assert (error.cloud, error.code) == ("c", str(status))
    assert isinstance(error, RetryableError) == (status in {429, 500, 503, 599})


def test_the_wait_is_kept() -> None:
    error = status_error("c", 429, "catalogue", 3.0)
    assert isinstance(error, ThrottledError)
    assert error.retry_after_s == 3.0


def test_no_connection_is_another_error_than_a_broken_one() -> None:
    assert type(connection_error("c", "ConnectionError", "catalogue", connected=False)) is NotReachedError
    assert type(connection_error("c", "ReadTimeout", "catalogue", connected=True)) is TransientError
