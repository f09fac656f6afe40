"""Queue of EC2's interruption notices, fed by EventBridge (docs/accounts/aws-interruptions.tf.json makes one)."""

from __future__ import annotations

from collections.abc import Sequence

from providers.aws.access import FIND_CREDENTIALS
from providers.aws.parse.queue_messages import read_messages
from providers.aws.queue import QueueClient
from providers.errors import AccountNotUsedError, CredentialsError
from providers.notices import NoticeQueue, QueueBatch, QueueMessage
from providers.session import QUEUE_OPTION, Session

# The longest wait that SQS allows.
_LONGEST_WAIT_S = 20
# The read timeout must be longer than the wait of SQS by this margin.
_MARGIN_S = 3.0


def make(cloud: str, session: Session) -> NoticeQueue:
    """Return the queue that the option ``interruption_queue`` names; KeyError without it."""
    return AwsNoticeQueue(cloud, session)


class AwsNoticeQueue:
    """Receive notices from an SQS queue; see :class:`providers.notices.NoticeQueue`."""

    def __init__(self, cloud: str, session: Session) -> None:
        self._cloud, self._settings = cloud, session.settings
        self._url = session.settings.options[QUEUE_OPTION]
        self._client = QueueClient(cloud, session)
        self._is_checked = False

    @property
    def cloud(self) -> str:
        return self._cloud

    def receive(self, wait_s: float) -> QueueBatch:
        self._check_account()
        wait = min(wait_s, _LONGEST_WAIT_S, self._settings.read_timeout_s - _MARGIN_S)
        return read_messages(self._cloud, self._client.receive(self._url, max(0, int(wait))))

    def done(self, letters: Sequence[QueueMessage]) -> None:
        if letters:
            self._client.delete(self._url, [letter.receipt for letter in letters])

    def _check_account(self) -> None:
        if self._is_checked:
            return
        if not self._settings.credentials:
            raise AccountNotUsedError(self._cloud, "the settings say to leave the account alone")
        if not self._client.has_credentials():
            raise CredentialsError(self._cloud, "none were found", none_found=True, remedy=FIND_CREDENTIALS)
        self._is_checked = True
