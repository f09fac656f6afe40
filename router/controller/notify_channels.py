"""Deliver messages to people through the library apprise, which understands their addresses."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pricing.problems import InvalidInputError
from router.controller.events import EventLevel

_SEPARATOR = "://"


@dataclass(frozen=True, slots=True)
class Channel:
    """A way to reach people.

    ``name`` can be shown; ``send`` (title, text, level) returns whether the message was taken, and raises nothing.
    """

    name: str
    send: Callable[[str, str, EventLevel], bool] = field(repr=False)


def open_channels(addresses: Sequence[str]) -> tuple[Channel, ...]:
    """Return one channel per address. An address may hold a secret and is never shown.

    InvalidInputError for an address that apprise does not know, and where apprise is missing.
    """
    if not addresses:
        return ()
    try:
        import apprise
    except ModuleNotFoundError:
        raise InvalidInputError.single(
            "messages need the library apprise", field="notify.urls", remedy="pip install 'stepfare[notify]'"
        ) from None
    # The library writes addresses into its log.
    logging.getLogger("apprise").disabled = True
    asset = apprise.AppriseAsset(
        app_id="stepfare", app_desc="stepfare", app_url="", async_mode=False, storage_mode="memory", secure_logging=True
    )
    result = []
    for number, address in enumerate(addresses):
        scheme, separator, _ = address.partition(_SEPARATOR)
        name = f"notify.urls[{number}]"
        target = apprise.Apprise(asset=asset)
        with warnings.catch_warnings():
            # The first address makes the library load a deprecated module of Python.
            warnings.simplefilter("ignore", DeprecationWarning)
            is_known = bool(separator) and target.add(address)
        if not is_known:
            raise InvalidInputError.single(
                "is no address that apprise knows",
                field=name,
                remedy="write it as https://github.com/caronc/apprise/wiki has it",
            )
        result.append(Channel(f"{name} ({scheme})", _make_sender(target)))
    return tuple(result)


def _make_sender(target: Any) -> Callable[[str, str, EventLevel], bool]:
    kinds = {EventLevel.INFO: "info", EventLevel.WARNING: "warning", EventLevel.ERROR: "failure"}

    def send(title: str, text: str, level: EventLevel) -> bool:
        try:
            return bool(target.notify(title=title, body=text, notify_type=kinds[level], body_format="text"))
        except Exception:
            # Any failure means that the message was not taken; the error's text may quote the address.
            return False

    return send
