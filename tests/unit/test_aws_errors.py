"""AWS codes and SDK exceptions in our words."""

from __future__ import annotations

from collections import Counter

import botocore.exceptions
import pytest
import requests.exceptions
import urllib3.exceptions

from providers import errors as ours
from providers.aws.errors import (
    _CODES,
    _EXCEPTIONS,
    BY_CODE,
    BY_EXCEPTION,
    from_code,
    from_exception,
    parse_server_time,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("RequestLimitExceeded", ours.ThrottledError),
        ("Throttling", ours.ThrottledError),
        ("ThrottlingException", ours.ThrottledError),
        ("TooManyRequestsException", ours.ThrottledError),
        ("SlowDown", ours.ThrottledError),
        ("UnauthorizedOperation", ours.PermissionDeniedError),
        ("AccessDenied", ours.PermissionDeniedError),
        ("AccessDeniedException", ours.PermissionDeniedError),
        ("OptInRequired", ours.RegionOffError),
        ("InsufficientInstanceCapacity", ours.NoCapacityError),
        ("MaxSpotInstanceCountExceeded", ours.QuotaError),
        ("VcpuLimitExceeded", ours.QuotaError),
        ("InvalidInstanceType", ours.NotForSaleError),
        ("Unsupported", ours.NotForSaleError),
        ("InternalError", ours.TransientError),
        ("ExpiredToken", ours.CredentialsError),
        ("ExpiredTokenException", ours.CredentialsError),
        ("RequestExpired", ours.CredentialsError),
        ("AuthFailure", ours.CredentialsError),
        ("UnrecognizedClientException", ours.CredentialsError),
        ("InvalidClientTokenId", ours.CredentialsError),
    ],
)
def test_codes_in_our_words(code: str, kind: type[ours.ProviderError]) -> None:
    error = from_code("aws", "DescribeSpotPriceHistory in us-east-1", code, status=400, permission="ec2:Describe")
    assert type(error) is kind
    assert error.code == code
    assert str(error) == f"{kind.title}: DescribeSpotPriceHistory in us-east-1 ({code})"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (500, ours.TransientError),
        (503, ours.TransientError),
        (429, ours.ThrottledError),
        (403, ours.PermissionDeniedError),
        (401, ours.CredentialsError),
        (400, ours.ProviderError),
    ],
)
def test_unknown_codes_are_judged_by_status(status: int, kind: type[ours.ProviderError]) -> None:
    assert type(from_code("aws", "x", "NewCodeOfNextYear", status=status)) is kind


def test_a_code_stands_in_the_table_once() -> None:
    for table in (_CODES, _EXCEPTIONS):
        names = Counter(name for names in table.values() for name in names.split())
        assert [name for name, count in names.items() if count > 1] == []


def test_every_kind_of_error_can_come_from_a_code_or_an_exception() -> None:
    kinds = {kind for kind in vars(ours).values() if isinstance(kind, type) and issubclass(kind, ours.ProviderError)}
    reached = set(BY_CODE.values()) | set(BY_EXCEPTION.values())
    # About this machine's settings and environment, not of anything that AWS says.
    ours_alone = {ours.AccountNotUsedError, ours.SdkMissingError}
    assert kinds - reached == {ours.ProviderError, ours.RetryableError} | ours_alone


def test_a_refusal_says_what_would_mend_it() -> None:
    clock = from_code("aws", "x", "RequestTimeTooSkewed", status=403)
    assert "clock" in clock.remedy
    denied = from_code("aws", "x", "UnauthorizedOperation", status=403, permission="ec2:DescribeRegions")
    assert isinstance(denied, ours.PermissionDeniedError)
    assert denied.permission == "ec2:DescribeRegions"
    assert "ec2:DescribeRegions" in denied.remedy


def test_a_wait_that_is_asked_for_is_kept() -> None:
    error = from_code("aws", "x", "RequestLimitExceeded", status=503, retry_after_s=2.5)
    assert isinstance(error, ours.ThrottledError)
    assert error.retry_after_s == 2.5


@pytest.mark.parametrize(
    ("date", "age", "told"),
    [
        ("Sat, 21 Nov 2026 18:00:00 GMT", None, "18:00:00"),
        ("Sat, 21 Nov 2026 18:00:00 GMT", "90", "18:01:30"),
        ("Sat, 21 Nov 2026 18:00:00 -0000", None, None),
        ("yesterday", None, None),
        ("Sat, 21 Nov 2026 18:00:00 GMT", "old", None),
        (None, "90", None),
    ],
)
def test_the_clouds_time_is_read_from_its_answers(date: str | None, age: str | None, told: str | None) -> None:
    at = parse_server_time(date, age)
    assert (None if at is None else f"{at:%H:%M:%S}") == told


def test_names_of_exceptions_exist() -> None:
    """A name that no library has would never match; those of the standard library are listed here."""
    standard = {"ConnectionResetError", "RemoteDisconnected", "IncompleteRead", "ParseError", "UnicodeDecodeError"}
    libraries = (botocore.exceptions, requests.exceptions, urllib3.exceptions)
    known = standard | {"ResponseParserError"} | {name for library in libraries for name in vars(library)}
    # Of newer or older SDKs than the one that is installed.
    other_releases = {"LoginRefreshRequired"}
    assert BY_EXCEPTION.keys() - known - other_releases == set()


def test_an_exception_is_known_by_what_it_wraps() -> None:
    chain = ["ConnectionError", "MaxRetryError", "NewConnectionError", "ConnectionRefusedError"]
    assert type(from_exception("aws", "x", chain)) is ours.NotReachedError
    reset = ["ConnectionError", "ProtocolError", "ConnectionResetError"]
    assert type(from_exception("aws", "x", reset)) is ours.TransientError
    assert type(from_exception("aws", "x", ["KeyError"])) is ours.ProviderError
