"""The one list of clouds. An adapter, and the SDK behind it, is imported when it is opened."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from providers.errors import ProviderError
from providers.protocol import Provider
from providers.session import Session


@dataclass(frozen=True, slots=True)
class Entry:
    """One cloud: how people call it, the ``module:function`` that makes its provider from (cloud, session), the
    extra of this package that installs its SDK ("" for none), and whether it is asked without being configured.
    """

    title: str
    factory: str
    extra: str = ""
    by_default: bool = True


_NEOCLOUD = "providers.neoclouds.provider:make"

CLOUDS: Mapping[str, Entry] = MappingProxyType(
    {
        "aws": Entry("Amazon EC2", "providers.aws.provider:make", "aws"),
        "gcp": Entry("Google Compute Engine", "providers.gcp.provider:make", "gcp"),
        "azure": Entry("Azure", "providers.azure.provider:make", "azure"),
        "lambda": Entry("Lambda", _NEOCLOUD),
        "nebius": Entry("Nebius", _NEOCLOUD),
        "runpod": Entry("RunPod", _NEOCLOUD),
        "verda": Entry("Verda (DataCrunch)", _NEOCLOUD),
        "vast": Entry("Vast.ai", _NEOCLOUD),
        "static": Entry("hosts of your own", "providers.static.provider:make", by_default=False),
        "sandbox": Entry("sandbox on this machine", "providers.sandbox.provider:make", by_default=False),
    }
)


def open_provider(cloud: str, session: Session) -> Provider:
    """The adapter of ``cloud`` (a key of :data:`CLOUDS`; KeyError otherwise). Touches no network.

    ProviderError when its SDK is missing and it cannot do without, naming the extra that installs it.
    """
    entry = CLOUDS[cloud]
    module, _, function = entry.factory.partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if not entry.extra:
            raise
        remedy = f"pip install 'stepfare[{entry.extra}]'"
        raise ProviderError(cloud, f"its SDK is not installed: {error.name}", remedy=remedy) from None
    return cast(Provider, make(cloud, session))
