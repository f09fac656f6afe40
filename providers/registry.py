"""Registry of clouds, the only list of them. An adapter, and the SDK behind it, is imported when it is opened."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from providers.errors import SdkMissingError
from providers.session import QUEUE_OPTION

if TYPE_CHECKING:  # Settings name clouds without loading what adapters return.
    from providers.fleet import Fleet
    from providers.notices import NoticeQueue
    from providers.protocol import Provider
    from providers.session import Session


@dataclass(frozen=True, slots=True)
class CloudRegistration:
    """One cloud of the registry.

    ``title`` is its name for people; ``factory`` the ``module:function`` that makes its provider from (cloud, session);
    ``extra`` the extra of this package that installs its SDK ("" for none); ``public`` makes the provider of its public
    prices where ``factory`` needs an account ("" where it does not); ``by_default``: it is asked without being
    configured; ``fleet`` makes its fleet ("" where attempts make nothing that could be left there); ``notices`` makes
    its queue of notices; ``sellers`` are names in its bills besides the cloud's name and title;
    ``credential_places`` is where its tools keep credentials ("" where none are needed).
    """

    title: str
    factory: str
    extra: str = ""
    public: str = ""
    by_default: bool = True
    fleet: str = ""
    notices: str = ""
    sellers: tuple[str, ...] = ()
    credential_places: str = ""


_NEOCLOUD = "providers.neoclouds.provider:make"

CLOUDS: Mapping[str, CloudRegistration] = MappingProxyType(
    {
        "aws": CloudRegistration(
            "Amazon EC2",
            "providers.aws.provider:make",
            "aws",
            fleet="providers.aws.fleet:make",
            notices="providers.aws.interruptions:make",
            sellers=("Amazon Web Services", "Amazon Web Services, Inc.", "Amazon"),
            credential_places="providers.aws.credential_places:PLACES",
        ),
        "gcp": CloudRegistration(
            "Google Compute Engine",
            "providers.gcp.provider:make",
            "gcp",
            _NEOCLOUD,
            fleet="providers.gcp.fleet:make",
            sellers=("Google Cloud", "Google Cloud Platform", "Google"),
            credential_places="providers.gcp.credential_places:PLACES",
        ),
        "azure": CloudRegistration(
            "Azure",
            "providers.azure.provider:make",
            "azure",
            fleet="providers.azure.fleet:make",
            sellers=("Microsoft Azure", "Microsoft", "Microsoft Corporation"),
            credential_places="providers.azure.credential_places:PLACES",
        ),
        "lambda": CloudRegistration("Lambda", _NEOCLOUD, sellers=("Lambda Labs", "Lambda Cloud")),
        "nebius": CloudRegistration("Nebius", _NEOCLOUD, sellers=("Nebius B.V.", "Nebius AI Cloud")),
        "runpod": CloudRegistration("RunPod", _NEOCLOUD),
        "verda": CloudRegistration("Verda (DataCrunch)", _NEOCLOUD, sellers=("Verda", "DataCrunch")),
        "vast": CloudRegistration("Vast.ai", _NEOCLOUD, sellers=("Vast",)),
        "static": CloudRegistration("hosts of your own", "providers.static.provider:make", by_default=False),
        "sandbox": CloudRegistration(
            "sandbox on this machine",
            "providers.sandbox.provider:make",
            by_default=False,
            fleet="providers.sandbox.fleet:make",
        ),
    }
)


def find_cloud(name: str) -> str | None:
    """Return the cloud (a key of :data:`CLOUDS`) that a bill calls ``name``, in any case; None without one."""
    folded = name.strip().casefold()
    for cloud, entry in CLOUDS.items():
        if folded in {word.casefold() for word in (cloud, entry.title, *entry.sellers)}:
            return cloud
    return None


def open_provider(cloud: str, session: Session) -> Provider:
    """Return the adapter of ``cloud`` (a key of :data:`CLOUDS`; KeyError otherwise). Touches no network.

    SdkMissingError when its SDK is missing and it cannot do without, naming the extra that installs it.
    """
    return cast("Provider", _open(cloud, CLOUDS[cloud].factory, session))


def open_public_provider(cloud: str, session: Session) -> Provider | None:
    """Return the provider of public prices of ``cloud``, for when its own adapter needs an account.

    None where there is no such thing, or the adapter reads public sources by itself.
    """
    entry = CLOUDS[cloud]
    return cast("Provider", _make(entry.public, cloud, session)) if entry.public else None


def open_fleet(cloud: str, session: Session) -> Fleet | None:
    """Return the fleet of ``cloud`` (a key of :data:`CLOUDS`; KeyError otherwise), which finds and releases machines.

    None where attempts make no machines. Touches no network. SdkMissingError as :func:`open_provider`.
    """
    entry = CLOUDS[cloud]
    return cast("Fleet", _open(cloud, entry.fleet, session)) if entry.fleet else None


def open_notices(cloud: str, session: Session) -> NoticeQueue | None:
    """Return the notice queue in the settings of ``cloud`` (a key of :data:`CLOUDS`; KeyError otherwise).

    None where they name none, or the cloud has no such thing. Touches no network. SdkMissingError as
    :func:`open_provider`.
    """
    entry = CLOUDS[cloud]
    if not entry.notices or QUEUE_OPTION not in session.settings.options:
        return None
    return cast("NoticeQueue", _open(cloud, entry.notices, session))


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
