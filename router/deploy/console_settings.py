"""Define the sections ``console`` and ``webhooks`` of the deploy file: who may sign in, and which programs are told."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pricing.problems import InvalidInputError
from router.access.identity import Grant, Role
from router.deploy.notify_settings import is_encrypted, resolve_reference, split_url
from router.jobs.fields import Flag, RefusedError, Spec, Text, as_many, suggest
from router.planning.document.plan_names import NIGHT, parse_plan_name

_FILE_PREFIX = "file:"
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:(?:~?/)[^\0]*[^/\0]")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_RATE = re.compile(r"[1-9][0-9]{0,6}/(?:second|minute|hour)")
_LARGEST_SECRET = 65_536


def _check_reference(value: str) -> str:
    # The value is not shown: somebody may have written the secret itself.
    if not _REFERENCE.fullmatch(value):
        raise RefusedError("is no reference to a secret", "write env:NAME or file:/PATH")
    return value


def _check_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise RefusedError("is no name of a host", "write stepfare.example.com, without scheme and port")
    return value.lower()


def _check_network(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        raise RefusedError("is no address or network", "write 10.0.0.5 or 10.0.0.0/24") from None
    return value


def _check_rate(value: str) -> str:
    if not _RATE.fullmatch(value):
        raise RefusedError("is no rate", "write 600/minute: a number, a slash, and second, minute or hour")
    return value


def _check_grant(value: str) -> str:
    try:
        return str(Grant.parse(value))
    except ValueError:
        role = value.partition(":")[0]
        remedy = suggest(role, [each.value for each in Role]) or "write viewer, or viewer:TEAM"
        raise RefusedError(f"{value!r} is no role, nor a role of a team", remedy) from None


SecretReference = Annotated[Text, AfterValidator(_check_reference)]
HostName = Annotated[Text, AfterValidator(_check_name)]
Network = Annotated[Text, AfterValidator(_check_network)]
Rate = Annotated[Text, AfterValidator(_check_rate)]
GrantText = Annotated[Text, AfterValidator(_check_grant)]


class OidcEntry(Spec):
    """Signing in with an identity provider, by OpenID Connect (the extra ``oidc``)."""

    issuer: Text = Field(
        description="URL of the provider; its discovery document says where everything else is.",
        examples=["https://login.example.com/realms/research"],
    )
    client_id: Text = Field(description="Identifier that the provider gave the console.")
    client_secret: SecretReference | None = Field(
        default=None,
        description="Secret that the provider gave it; left out: a public client, protected by PKCE alone.",
        examples=["env:STEPFARE_OIDC_SECRET", "file:/etc/stepfare/oidc-secret"],
    )
    scopes: Annotated[tuple[Text, ...], BeforeValidator(as_many)] = Field(
        default=("openid", "email", "profile"), description="What is asked of the provider; `openid` belongs to it."
    )
    groups_claim: Text = Field(default="groups", description="Claim of the ID token that lists a person's groups.")
    name_claim: Text = Field(
        default="email",
        description="Claim that names the person in the audit log. `email` counts only if the provider verified it; "
        "without one it is `sub`.",
    )
    grants: dict[Text, Annotated[tuple[GrantText, ...], BeforeValidator(as_many)]] = Field(
        description="By group: roles, each of all teams or of one. Whoever is in none of these groups is refused.",
        examples=[{"speech": ["job_owner:speech"], "finance": ["finance"]}],
        min_length=1,
    )
    hosts: Annotated[tuple[HostName, ...], BeforeValidator(as_many)] = Field(
        default=(),
        description="Other hosts that the provider's keys and tokens may come from; left out: the issuer's alone.",
        examples=[["oauth2.googleapis.com", "www.googleapis.com"]],
    )

    @model_validator(mode="after")
    def _check_issuer(self) -> OidcEntry:
        remedy = "write https://login.example.com"
        parts = split_url(self.issuer, remedy, at=("issuer",))
        if not is_encrypted(parts):
            raise RefusedError("is no https URL", remedy, at=("issuer",))
        if parts.username is not None or parts.query or parts.fragment:
            raise RefusedError("holds more than host and path", remedy, at=("issuer",))
        if "openid" not in self.scopes:
            raise RefusedError("lacks openid: the provider would not say who signs in", at=("scopes",))
        return self


class ConsoleEntry(Spec):
    """The console (`stepfare serve`): who may sign in, and how it is reached. Other addresses than loopback need it."""

    hosts: Annotated[tuple[HostName, ...], BeforeValidator(as_many)] = Field(
        default=(),
        description="Names under which browsers and programs reach it, beside those of loopback; others are refused.",
        examples=[["stepfare.example.com"]],
    )
    tokens: Flag = Field(default=False, description="Whether tokens of `stepfare token make` are accepted.")
    oidc: OidcEntry | None = None
    certificate: Text | None = Field(default=None, description="PEM file; then it speaks https.")
    key: Text | None = Field(default=None, description="PEM file of the certificate's key.")
    behind_proxy: Flag = Field(
        default=False, description="Whether a proxy in front of it speaks https and sets X-Forwarded-For."
    )
    trusted_proxies: Annotated[tuple[Network, ...], BeforeValidator(as_many)] = Field(
        default=(),
        description="Addresses of that proxy; X-Forwarded-For counts from them alone.",
        examples=["10.0.0.5"],
    )
    night: Annotated[Text, AfterValidator(parse_plan_name)] = Field(
        default=NIGHT,
        description="Name of the plans (`stepfare plan --name`) that Tonight shows, and whose limits quotes are under.",
    )
    requests: Rate = Field(default="6000/minute", description="The most requests of one identity, at each server.")
    failed_sign_ins: Rate = Field(default="10/minute", description="The most failed sign-ins from one address.")

    @model_validator(mode="after")
    def _check_transport(self) -> ConsoleEntry:
        if (self.certificate is None) != (self.key is None):
            raise RefusedError("a certificate and its key belong together", "give both, or none", at=("certificate",))
        if self.behind_proxy and not self.trusted_proxies:
            raise RefusedError(
                "names no proxy: anybody could say where a request comes from",
                "write trusted_proxies: [ADDRESS]",
                at=("behind_proxy",),
            )
        if self.trusted_proxies and not self.behind_proxy:
            raise RefusedError("counts only with behind_proxy: true", "add it", at=("trusted_proxies",))
        return self

    @property
    def has_identity(self) -> bool:
        """Whether people can sign in by what is configured."""
        return self.tokens or self.oidc is not None

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach it over https."""
        return self.certificate is not None or self.behind_proxy


def resolve_secret(reference: str, environment: Mapping[str, str], field: str) -> str:
    """Return the secret that ``env:NAME`` or ``file:PATH`` refers to, without whitespace around it.

    InvalidInputError, which shows no value, where it is missing, empty or unreadable.
    """
    if not reference.startswith(_FILE_PREFIX):
        return resolve_reference(reference, environment, field)
    path = Path(reference.removeprefix(_FILE_PREFIX)).expanduser()
    try:
        with path.open("rb") as file:
            secret = file.read(_LARGEST_SECRET).decode().strip()
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise InvalidInputError.single(
            f"refers to {path}: {reason}", field=field, remedy="give the file to whoever serves"
        ) from None
    if not secret:
        raise InvalidInputError.single(f"refers to {path}, which is empty", field=field)
    return secret


class WebhookEvent(StrEnum):
    """The kinds of events that programs can be told of."""

    PLAN_MADE = "plan.made"
    PLAN_APPROVED = "plan.approved"
    PLAN_APPLIED = "plan.applied"
    JOB_INTERRUPTED = "job.interrupted"
    MONTH_CLOSED = "month.closed"


def _check_url(value: str) -> str:
    # The value is not shown: addresses of some services are secrets themselves.
    remedy = "write https://HOST/PATH; http is for loopback alone"
    parts = split_url(value, remedy)
    if not is_encrypted(parts):
        raise RefusedError("is no https URL", remedy)
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise RefusedError("holds more than host, path and query", "give the secret as `secret`")
    return value


class WebhookEntry(Spec):
    """A program that is told of events by signed POST requests (docs/console.md)."""

    url: Annotated[Text, AfterValidator(_check_url)] = Field(
        description="Where events are sent; https, or http on loopback.", examples=["https://ci.example.com/stepfare"]
    )
    events: Annotated[tuple[WebhookEvent, ...], BeforeValidator(as_many)] = Field(
        default=tuple(WebhookEvent), description="Events to send; left out: all."
    )
    secret: SecretReference = Field(
        description="Key of the signatures, at least 24 characters.", examples=["env:STEPFARE_WEBHOOK_SECRET"]
    )
