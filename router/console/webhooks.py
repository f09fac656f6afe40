"""Deliver events to webhooks: signed, in order, again until they are taken, by one server at a time.

Signatures follow Standard Webhooks (standardwebhooks.com), for which most languages have a library.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import requests

from pricing.problems import InvalidInputError
from router.app.webhook_events import StateEvent, WebhookCursor, events_since
from router.deploy.console_settings import WebhookEntry, WebhookEvent, resolve_secret
from router.state.errors import LeaseHeldError, LeaseLostError, StateError
from router.state.lease import Lease
from router.state.lock_owner import LockOwner
from router.state.store import StateStore
from router.state.webhook_deliveries import WebhookDelivery

LOG = logging.getLogger("stepfare.console")
LEASE = "webhooks"
LEAST_SECRET = 24
DEAD_AFTER = timedelta(hours=24)
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(hours=1)
# The cursor is written at most so often while nothing is to be told.
CURSOR_PAUSE = timedelta(minutes=1)
LOOK_SECONDS, WAIT_SECONDS = 2.0, 20.0
_PRUNE_SECONDS = 3600.0
_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 10.0
_STOP_SECONDS = 5.0
_KEY_PREFIX = "whsec_"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A program to tell. Address and key are not shown: both may be secrets."""

    url: str = field(repr=False)
    events: frozenset[WebhookEvent]
    key: bytes = field(repr=False)
    number: int = 0

    @property
    def id(self) -> str:
        """Return the identity by which deliveries name it."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """Return what may be shown: its place in the deploy file and its host."""
        return f"webhooks[{self.number}] ({urlsplit(self.url).hostname})"


def open_webhooks(entries: Sequence[WebhookEntry], environment: Mapping[str, str]) -> tuple[Webhook, ...]:
    """Return the webhooks of the deploy file with their keys. InvalidInputError for a secret that is missing or short.

    A secret that begins with ``whsec_`` is base64, as libraries of Standard Webhooks write it.
    """
    found = []
    for number, entry in enumerate(entries):
        where = f"webhooks[{number}].secret"
        secret = resolve_secret(entry.secret, environment, where)
        try:
            is_coded = secret.startswith(_KEY_PREFIX)
            key = base64.b64decode(secret.removeprefix(_KEY_PREFIX), validate=True) if is_coded else secret.encode()
        except binascii.Error:
            raise InvalidInputError.single(
                "is no base64 after whsec_", field=where, remedy="copy it whole, or choose one"
            ) from None
        if len(key) < LEAST_SECRET:
            raise InvalidInputError.single(
                f"refers to a secret of less than {LEAST_SECRET} characters", field=where, remedy="openssl rand -hex 32"
            )
        found.append(Webhook(entry.url, frozenset(entry.events), key, number))
    return tuple(found)


def sign(key: bytes, delivery_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a delivery: ``v1,`` and the HMAC-SHA256 over id, timestamp and body, in base64."""
    content = f"{delivery_id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()}"


class WebhookSender:
    """Derives events and delivers them. Its thread runs while :meth:`running`; tests call :meth:`send_due`.

    ``clock`` is the time of day.
    """

    def __init__(self, store: StateStore, hooks: Sequence[Webhook], clock: Callable[[], datetime]) -> None:
        self._store = store
        self._hooks = {hook.id: hook for hook in hooks}
        self._clock = clock
        self._stopping = threading.Event()
        self._pruned_at = float("-inf")
        self._session = requests.Session()
        # Without this the library would send passwords that a .netrc file has for the host.
        self._session.auth = lambda request: request

    @contextmanager
    def running(self) -> Iterator[WebhookSender]:
        """Deliver while the block runs; without hooks nothing happens."""
        if not self._hooks:
            yield self
            return
        thread = threading.Thread(target=self._work, name="webhooks", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.drain()
            thread.join(_STOP_SECONDS)
            self._session.close()

    def drain(self) -> None:
        """Begin nothing more, and leave the rest to another server; a delivery under way is finished."""
        self._stopping.set()

    def derive(self) -> int:
        """Write deliveries for what happened since the last time, and return how many.

        The first time begins at the present.
        """
        deliveries, now = self._store.webhooks, self._clock()
        text = deliveries.cursor()
        if text is None:
            deliveries.put((), WebhookCursor(deliveries.heads(), now).text())
            return 0
        before = WebhookCursor.parse(text)
        events, after = events_since(self._store, before, now)
        wanted = [self._delivery(event, hook, now) for event in events for hook in self._hooks.values()]
        found = {each.id: each for each in wanted if each is not None}
        new = deliveries.new_ids(found)
        # A transaction that writes waits for the disk. What is read again meanwhile makes no second delivery.
        if not new and now - before.plans < (LONGEST_PAUSE if before.heads == after.heads else CURSOR_PAUSE):
            return 0
        return deliveries.put([each for each in found.values() if each.id in new], after.text())

    def send_due(self, lease: Lease | None = None) -> int:
        """Try what is due, in order, and return how many were taken. LeaseLostError where another server took over."""
        taken = 0
        resting: set[str] = set()
        for delivery in self._store.webhooks.due(self._clock()):
            if self._stopping.is_set():
                break
            if delivery.hook in resting:
                continue
            if lease is not None:
                lease.check()
            is_taken, rests = self._try(delivery)
            taken += is_taken
            if rests:
                resting.add(delivery.hook)
        return taken

    def _try(self, delivery: WebhookDelivery) -> tuple[bool, bool]:
        """Try one delivery; return whether it was taken, and whether its hook is to be left alone for now."""
        deliveries, now = self._store.webhooks, self._clock()
        hook = self._hooks.get(delivery.hook)
        if hook is None:
            deliveries.give_up(delivery.id, "the deploy file no longer names where it goes", now)
            return False, False
        deliveries.begin(delivery.id)
        problem, is_hooks = self._post(hook, delivery, now)
        if not problem:
            deliveries.delivered(delivery.id, now)
            return True, False
        if now - delivery.at >= DEAD_AFTER:
            deliveries.give_up(delivery.id, problem, now)
            LOG.warning("%s: %s %s is given up: %s", hook.name, delivery.event, delivery.id, problem)
            return False, False
        pause: timedelta = min(FIRST_PAUSE * 2 ** min(delivery.tries, 20), LONGEST_PAUSE)
        deliveries.failed(delivery.id, problem, now + pause)
        if is_hooks:
            deliveries.postpone(hook.id, now + pause)
        LOG.info("%s: %s %s is tried again: %s", hook.name, delivery.event, delivery.id, problem)
        return False, is_hooks

    def _post(self, hook: Webhook, delivery: WebhookDelivery, now: datetime) -> tuple[str, bool]:
        """Send a delivery; return what went wrong, "" for nothing, and whether the hook as a whole does not answer."""
        body, timestamp = delivery.payload.encode(), int(now.timestamp())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "stepfare",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(hook.key, delivery.id, timestamp, body),
        }
        try:
            with self._session.post(
                hook.url,
                data=body,
                headers=headers,
                timeout=(_CONNECT_SECONDS, _ANSWER_SECONDS),
                # Another address than that of the deploy file is never asked.
                allow_redirects=False,
                stream=True,
            ) as response:
                status = response.status_code
        except requests.RequestException as error:
            # The text of the error would quote the address.
            return f"it cannot be reached ({type(error).__name__})", True
        if 200 <= status < 300:
            return "", False
        return f"it answered {status}", status >= 500 or status in (408, 429)

    def _delivery(self, event: StateEvent, hook: Webhook, now: datetime) -> WebhookDelivery | None:
        """Return the delivery of an event to a hook; None where the hook does not want it, or it is too old."""
        if event.kind not in hook.events or now - event.at >= DEAD_AFTER:
            return None
        return WebhookDelivery(event.delivery_id(hook.id), event.kind.value, hook.id, event.payload(), event.at, now)

    def _work(self) -> None:
        """Deliver while this server holds the lease; else wait for it."""
        while not self._stopping.is_set():
            try:
                with self._store.lease(LEASE, LockOwner.of_this_process(), self._clock) as lease:
                    while not self._stopping.wait(LOOK_SECONDS):
                        self._prune()
                        self.derive()
                        self.send_due(lease)
            except (LeaseHeldError, LeaseLostError):
                pass
            except StateError as error:
                LOG.warning("webhooks: %s", error)
            except Exception:
                # Whatever is wrong with one event must not end the deliveries of all later ones.
                LOG.exception("webhooks: failed unexpectedly")
            self._stopping.wait(WAIT_SECONDS)

    def _prune(self) -> None:
        if time.monotonic() - self._pruned_at >= _PRUNE_SECONDS:
            self._store.webhooks.prune(self._clock())
            self._pruned_at = time.monotonic()
