"""Errors of clouds, in one small vocabulary; each adapter's ``errors.py`` maps its codes to it.

No message carries a secret: adapters build them from codes and names, never from headers or request bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


class ProviderError(Exception):
    """A cloud refused or failed to do something. ``code`` is the cloud's own word for it, "" when it has none."""

    title = "failed"

    def __init__(self, cloud: str, what: str, *, code: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.cloud = cloud
        self.what = what
        self.code = code
        self.remedy = remedy

    def __str__(self) -> str:
        code = f" ({self.code})" if self.code and self.code not in self.what else ""
        return f"{self.title}: {self.what}{code}"


class CredentialsError(ProviderError):
    """No identity was found (``none_found``), or the cloud does not accept it: wrong, expired, revoked; exit code 7."""

    title = "no valid credentials"

    def __init__(self, cloud: str, what: str, *, none_found: bool = False, code: str = "", remedy: str = "") -> None:
        super().__init__(cloud, what, code=code, remedy=remedy)
        self.none_found = none_found


class PermissionDeniedError(ProviderError):
    """The identity may not make this call; exit code 7.

    ``permission`` is the one it lacks, as the cloud's policies name it.
    """

    title = "not permitted"

    def __init__(self, cloud: str, what: str, *, permission: str = "", code: str = "", remedy: str = "") -> None:
        super().__init__(cloud, what, code=code, remedy=remedy)
        self.permission = permission


class AccountNotUsedError(ProviderError):
    """The settings say to use public sources only."""

    title = "account not used"


class SdkMissingError(ProviderError):
    """The cloud's SDK is not installed; ``what`` names the module, the remedy the extra that brings it."""

    title = "its SDK is not installed"


class RegionOffError(ProviderError):
    """The region exists and is not enabled for this account."""

    title = "region not enabled"


class NotForSaleError(ProviderError):
    """The machine type does not exist there, or not for this account."""

    title = "not for sale"


class NoCapacityError(ProviderError):
    """The cloud sells it there and has none left at the moment."""

    title = "no capacity"


class QuotaError(ProviderError):
    """The account's quota does not allow it."""

    title = "over quota"


class NotReachedError(ProviderError):
    """No connection is possible: no network, no such host, refused. Only the next command tries again."""

    title = "could not be reached"


class RetryableError(ProviderError):
    """The same call may well succeed in a moment."""


class ThrottledError(RetryableError):
    """The cloud refused because of too many calls.

    ``retry_after_s`` is the wait it asked for, None when it did not say.
    """

    title = "throttled"

    def __init__(
        self, cloud: str, what: str, *, retry_after_s: float | None = None, code: str = "", remedy: str = ""
    ) -> None:
        super().__init__(cloud, what, code=code, remedy=remedy)
        self.retry_after_s = retry_after_s


class TransientError(RetryableError):
    """The cloud itself failed, a connection broke, or a time limit was reached."""

    title = "temporary failure"


class UnreadableError(TransientError):
    """The answer was cut off midway, or is not of the documented form. Nothing of it is used."""

    title = "unreadable answer"


def index_words(words: Mapping[type[ProviderError], str]) -> Mapping[str, type[ProviderError]]:
    """Return the kind of error that each of a cloud's words means, from the words of each kind."""
    return MappingProxyType({word: kind for kind, text in words.items() for word in text.split()})
