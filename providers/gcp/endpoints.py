"""Addresses of the two services, and the rule for calls without TLS."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from providers.errors import ProviderError
from providers.gcp.permissions import ENDPOINTS
from providers.session import Settings


def find_endpoint(cloud: str, service: str, settings: Settings) -> str:
    """Return the address of ``compute`` or ``billing``: that of the settings, else Google's own.

    ProviderError for plain http to anything but this machine: a token must not travel unencrypted.
    """
    url = settings.endpoints.get(service, ENDPOINTS[service]).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return url
    raise ProviderError(
        cloud,
        f"the endpoint of {service} must start with https:// (http:// is taken for this machine's own services only)",
        remedy=f"correct endpoints: {service} in the clouds file",
    )


def is_anonymous(url: str) -> bool:
    """Return whether calls go out without any identity: to plain http, hence to this machine only."""
    return url.startswith("http://")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
