"""API calls that read a queue and delete what was read. ``interruptions.json`` grants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from providers.aws.client import AwsClient, queue_region

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
