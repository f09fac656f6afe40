"""Access to the AWS account: whether there is one to ask, determined once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from providers.aws.account import AwsAccount
from providers.aws.public import PublicFiles
from providers.errors import AccountNotUsedError, CredentialsError, ProviderError, SdkMissingError
from providers.session import Session

if TYPE_CHECKING:
    from providers.aws.client import AwsClient

FIND_CREDENTIALS = "give credentials as for the `aws` command (environment, profile, SSO or a role)"


@dataclass(frozen=True, slots=True)
class OpenedAccount:
    """An account with credentials; the first call shows whether they are accepted."""

    client: AwsClient
    account: AwsAccount


class AccountAccess:
    """Open the account at most once; safe for threads. Loads the SDK at first use."""

    def __init__(self, cloud: str, session: Session, files: PublicFiles) -> None:
        self._cloud = cloud
        self._session = session
        self._files = files
        self._lock = threading.Lock()
        self._outcome: OpenedAccount | ProviderError | None = None

    def open(self) -> OpenedAccount | ProviderError:
        """Return the account, or the error that says why there is none.

        Raises CredentialsError when the credentials that were found cannot be used.
        """
        with self._lock:
            if self._outcome is None:
                self._outcome = self._find()
            return self._outcome

    def _find(self) -> OpenedAccount | ProviderError:
        if not self._session.settings.credentials:
            return AccountNotUsedError(self._cloud, "the settings say to use public sources only")
        try:
            from providers.aws.client import AwsClient
        except ModuleNotFoundError as error:
            remedy = "pip install 'stepfare[aws]'"
            return SdkMissingError(self._cloud, str(error.name), remedy=remedy)
        client = AwsClient(self._cloud, self._session)
        if not client.has_credentials():
            return CredentialsError(self._cloud, "none were found", none_found=True, remedy=FIND_CREDENTIALS)
        return OpenedAccount(client, AwsAccount(self._cloud, self._session, client, self._files))
