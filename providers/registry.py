"""The one list of clouds. An adapter, and the SDK behind it, is imported when it is opened."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from providers.announcing import QUEUE, Announcements
from providers.errors import SdkMissingError
from providers.fleet import Fleet
from providers.protocol import Provider
from providers.session import Session


@dataclass(frozen=True, slots=True)
class Entry:
    """One cloud: how people call it, the ``module:function`` that makes its provider from (cloud, session), the
    extra of this package that installs its SDK ("" for none), what makes the provider of its public prices where the
    first needs an account ("" where it does not), whether it is asked without being configured, what makes its
    fleet ("" where nothing is made by attempts that could be left there), and what hears its announcements.
    """

    title: str
    factory: str
    extra: str = ""
    public: str = ""
    by_default: bool = True
    fleet: str = ""
    notices: str = ""


_NEOCLOUD = "providers.neoclouds.provider:make"

CLOUDS: Mapping[str, Entry] = MappingProxyType(
    {
        "aws": Entry(
            "Amazon EC2",
            "providers.aws.provider:make",
            "aws",
            fleet="providers.aws.fleet:make",
            notices="providers.aws.interruptions:make",
        ),
        "gcp": Entry(
            "Google Compute Engine", "providers.gcp.provider:make", "gcp", _NEOCLOUD, fleet="providers.gcp.fleet:make"
        ),
        "azure": Entry("Azure", "providers.azure.provider:make", "azure", fleet="providers.azure.fleet:make"),
        "lambda": Entry("Lambda", _NEOCLOUD),
        "nebius": Entry("Nebius", _NEOCLOUD),
        "runpod": Entry("RunPod", _NEOCLOUD),
        "verda": Entry("Verda (DataCrunch)", _NEOCLOUD),
        "vast": Entry("Vast.ai", _NEOCLOUD),
        "static": Entry("hosts of your own", "providers.static.provider:make", by_default=False),
        "sandbox": Entry(
            "sandbox on this machine",
            "providers.sandbox.provider:make",
            by_default=False,
            fleet="providers.sandbox.fleet:make",
        ),
    }
)


def open_provider(cloud: str, session: Session) -> Provider:
    """The adapter of ``cloud`` (a key of :data:`CLOUDS`; KeyError otherwise). Touches no network.

    SdkMissingError when its SDK is missing and it cannot do without, naming the extra that installs it.
    """
    return cast(Provider, _open(cloud, CLOUDS[cloud].factory, session))


def open_public_provider(cloud: str, session: Session) -> Provider | None:
    """What knows public prices of ``cloud`` when its own adapter can say nothing without an account; None where
    there is no such thing, or the adapter reads public sources by itself."""
    entry = CLOUDS[cloud]
    return cast(Provider, _make(entry.public, cloud, session)) if entry.public else None


def open_fleet(cloud: str, session: Session) -> Fleet | None:
    """What finds and releases the machines of ``cloud`` (a key of :data:`CLOUDS`; KeyError otherwise); None where
    attempts make none. Touches no network. SdkMissingError as :func:`open_provider`."""
    entry = CLOUDS[cloud]
    return cast(Fleet, _open(cloud, entry.fleet, session)) if entry.fleet else None


def open_notices(cloud: str, session: Session) -> Announcements | None:
    """The queue that the settings of ``cloud`` (a key of :data:`CLOUDS`; KeyError otherwise) name; None where they name
    none, or the cloud has no such thing. Touches no network. SdkMissingError as :func:`open_provider`."""
    entry = CLOUDS[cloud]
    if not entry.notices or QUEUE not in session.settings.options:
        return None
    return cast(Announcements, _open(cloud, entry.notices, session))


def _open(cloud: str, factory: str, session: Session) -> object:
    extra = CLOUDS[cloud].extra
    try:
        return _make(factory, cloud, session)
    except ModuleNotFoundError as error:
        if not extra:
            raise
        remedy = f"pip install 'stepfare[{extra}]'"
        raise SdkMissingError(cloud, str(error.name), remedy=remedy) from None


def _make(factory: str, cloud: str, session: Session) -> object:
    module, _, function = factory.partition(":")
    return getattr(importlib.import_module(module), function)(cloud, session)
