"""Queue of EC2's interruption notices, fed by EventBridge (docs/accounts/aws-interruptions.tf.json makes one).

``interruptions.json`` grants the calls that read the queue and delete what was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from providers.aws.client import AwsClient, queue_region
from providers.aws.parse.queue_messages import read_messages
from providers.notices import NoticeQueue, QueueBatch, QueueMessage
from providers.session import QUEUE_OPTION, Session

BATCH = 10


class QueueClient(AwsClient):
    """Read and delete queue messages; see :class:`providers.aws.client.AwsClient`."""

    POLICY = "interruptions.json"

    def receive(self, queue_url: str, wait_s: int) -> Sequence[Mapping[str, Any]]:
        """Return at most ten messages, with body and receipt; waits for the first.

        They are hidden for the queue's visibility time-out.
        """
        answer = self._ask(
            "sqs",
            "ReceiveMessage",
            self._region(queue_url),
            QueueUrl=queue_url,
            MaxNumberOfMessages=BATCH,
            WaitTimeSeconds=wait_s,
        )
        messages: Sequence[Mapping[str, Any]] = answer.get("Messages") or ()
        return messages

    def delete(self, queue_url: str, receipts: Sequence[str]) -> None:
        """Delete messages by their receipts; one that is refused stays."""
        for first in range(0, len(receipts), BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": receipt}
                for number, receipt in enumerate(receipts[first : first + BATCH])
            ]
            self._ask("sqs", "DeleteMessageBatch", self._region(queue_url), QueueUrl=queue_url, Entries=entries)

    def _region(self, queue_url: str) -> str:
        return queue_region(queue_url) or self.home


# The longest wait that SQS allows.
_LONGEST_WAIT_S = 20
# The read timeout must be longer than the wait of SQS by this margin.
_MARGIN_S = 3.0


class AwsNoticeQueue(NoticeQueue):
    """Receive notices from an SQS queue; see :class:`providers.notices.NoticeQueue`."""

    def __init__(self, cloud: str, session: Session) -> None:
        self.cloud, self._settings = cloud, session.settings
        self._url = session.settings.options[QUEUE_OPTION]
        self._client = QueueClient(cloud, session)
        self._is_checked = False

    def receive(self, wait_s: float) -> QueueBatch:
        if not self._is_checked:
            self._client.require_credentials()
            self._is_checked = True
        wait = min(wait_s, _LONGEST_WAIT_S, self._settings.read_timeout_s - _MARGIN_S)
        return read_messages(self.cloud, self._client.receive(self._url, max(0, int(wait))))

    def done(self, letters: Sequence[QueueMessage]) -> None:
        if letters:
            self._client.delete(self._url, [letter.receipt for letter in letters])
